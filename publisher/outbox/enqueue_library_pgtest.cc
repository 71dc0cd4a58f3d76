#include <gmock/gmock.h>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/enqueue.h"
#include "publisher/outbox/enqueue_pqxx.h"
#include "publisher/testing/outbox_test.h"

namespace lockstep::publisher {
namespace {

NewEvent Sample() {
  NewEvent event;
  event.topic = "shop.events";
  event.aggregate_type = "item";
  event.aggregate_id = "it's \"k\"";
  event.event_type = "shop.ItemChanged";
  event.version = 1;
  event.payload = std::string("\0\xff'\\", 4);
  event.event_id = "00000000-0000-4000-8000-000000000001";
  event.tenant_id = "t";
  event.attributes = {{"region", "eu \"west\""}};
  event.traceparent = "00-a-b-01";
  event.occurred_at = WallTime(std::chrono::milliseconds(1'700'000'000'123));
  return event;
}

class EnqueueLibraryTest : public OutboxTest {
 protected:
  void ExpectSample() {
    Claimer claimer = NewClaimer("a");
    const Claim claim = claimer.Take();
    ASSERT_EQ(claim.rows.size(), 1u);
    const OutboxRow& row = claim.rows[0];
    EXPECT_EQ(row.payload, Sample().payload);
    EXPECT_EQ(row.aggregate_id, Sample().aggregate_id);
    EXPECT_EQ(row.event_id.value(), Sample().event_id);
    EXPECT_EQ(row.tenant_id, "t");
    EXPECT_EQ(row.attributes, R"({"region": "eu \"west\""})");
    EXPECT_EQ(row.traceparent, "00-a-b-01");
    EXPECT_EQ(row.tracestate, std::nullopt);
    EXPECT_EQ(row.occurred_at, "2023-11-14T22:13:20.123000Z");
  }
};

TEST_F(EnqueueLibraryTest, EnqueuesInATransactionOfOurs) {
  const auto connection = db_.Connect();
  auto transaction = connection->Begin();
  const auto sequence = publisher::Enqueue(*transaction, kTable, Sample());
  ASSERT_TRUE(sequence.ok()) << sequence.status();
  EXPECT_EQ(*publisher::Enqueue(*transaction, kTable, Sample()), *sequence);
  ASSERT_TRUE(transaction->Commit().ok());
  ExpectSample();
}

TEST_F(EnqueueLibraryTest, EnqueuesInATransactionOfLibpqxx) {
  pqxx::connection connection(db_.url());
  {
    pqxx::work rolled_back(connection);
    publisher::Enqueue(rolled_back, kTable, Sample());
  }
  EXPECT_EQ(Count("true"), 0);
  pqxx::work work(connection);
  const int64_t sequence = publisher::Enqueue(work, kTable, Sample());
  EXPECT_EQ(publisher::Enqueue(work, kTable, Sample()), sequence);
  work.commit();
  ExpectSample();
}

TEST_F(EnqueueLibraryTest, AVersionConflictIsAnErrorOfData) {
  const auto connection = db_.Connect();
  auto transaction = connection->Begin();
  ASSERT_TRUE(publisher::Enqueue(*transaction, kTable, Sample()).ok());
  NewEvent again = Sample();
  again.event_id.clear();
  const auto refused = publisher::Enqueue(*transaction, kTable, again);
  EXPECT_EQ(postgres::Classify(refused.status()), postgres::ErrorClass::kData);
  pqxx::connection theirs(db_.url());
  pqxx::work work(theirs);
  again.version = 0;
  EXPECT_THROW(publisher::Enqueue(work, kTable, again), pqxx::sql_error);
}

}  // namespace
}  // namespace lockstep::publisher
