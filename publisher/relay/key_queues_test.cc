#include <fmt/format.h>
#include <gtest/gtest.h>

#include "publisher/relay/leased_rows.h"

namespace lockstep::publisher {
namespace {

OutboxRow Row(const std::string& key, int64_t version, const std::string& topic = "t") {
  OutboxRow row;
  row.aggregate_id = key;
  row.version = version;
  row.topic = topic;
  row.sequence = version;
  return row;
}

std::string Names(const std::optional<KeyQueues::Request>& request) {
  if (!request.has_value()) return "none";
  std::vector<std::string> names;
  for (const auto& entry : *request) {
    names.push_back(fmt::format("{}{}", entry.row->aggregate_id, entry.row->version));
  }
  return fmt::format("{}", fmt::join(names, " "));
}

class KeyQueuesTest : public ::testing::Test {
 protected:
  std::string Next(int rows = 1000) { return Names(last_ = queues_.Next({.rows = rows})); }

  KeyQueues queues_;
  std::optional<KeyQueues::Request> last_;
};

TEST_F(KeyQueuesTest, PutsKeysOfATopicIntoOneRequestInOrder) {
  queues_.Add({Row("a", 2), Row("b", 1), Row("a", 1)}, {});
  EXPECT_EQ(Next(), "a1 a2 b1");
  EXPECT_EQ(Next(), "none");
}

TEST_F(KeyQueuesTest, AggregatesOfOneKeyKeepTheirPlaces) {
  OutboxRow other = Row("a", 2);
  other.tenant_id = "t";
  queues_.Add({Row("a", 1), other, Row("a", 3)}, {});
  EXPECT_EQ(Next(), "a1 a2 a3");
}

TEST_F(KeyQueuesTest, AKeyHasOneRequestUnderWay) {
  queues_.Add({Row("a", 1)}, {});
  EXPECT_EQ(Next(), "a1");
  queues_.Add({Row("a", 2), Row("b", 1)}, {});
  EXPECT_EQ(Next(), "b1");
  EXPECT_EQ(Next(), "none");
  queues_.Succeeded("a");
  EXPECT_EQ(Next(), "a2");
}

TEST_F(KeyQueuesTest, TopicsDoNotMixAndAKeyWaitsForItsEarlierTopic) {
  queues_.Add({Row("a", 1, "x"), Row("a", 2, "y"), Row("b", 1, "y")}, {});
  EXPECT_EQ(Next(), "a1");
  EXPECT_EQ(Next(), "b1");
  EXPECT_EQ(Next(), "none");
  queues_.Succeeded("a");
  EXPECT_EQ(Next(), "a2");
}

TEST_F(KeyQueuesTest, SplitsWhatIsTooMuchForOneRequest) {
  queues_.Add({Row("a", 1), Row("a", 2), Row("a", 3), Row("b", 1)}, {});
  EXPECT_EQ(Next(2), "a1 a2");
  EXPECT_EQ(Next(2), "b1");  // the rest of a waits for its beginning
  queues_.Succeeded("a");
  EXPECT_EQ(Next(2), "a3");
}

TEST_F(KeyQueuesTest, AFailureTakesOutWhatWaitsBehind) {
  queues_.Add({Row("a", 1)}, {});
  Next();
  queues_.Add({Row("a", 2), Row("a", 3)}, {});
  EXPECT_EQ(queues_.Failed("a").size(), 2u);
  EXPECT_EQ(queues_.waiting(), 0u);
  EXPECT_EQ(Next(), "none");
  queues_.Add({Row("a", 1)}, {});
  EXPECT_EQ(Next(), "a1");
}

TEST_F(KeyQueuesTest, SendsAgainInSmallerRequests) {
  queues_.Add({Row("a", 1), Row("b", 1), Row("c", 1), Row("d", 1)}, {});
  EXPECT_EQ(Next(), "a1 b1 c1 d1");
  for (auto& entry : *last_) {
    entry.request_limit = 2;
    const std::string key = entry.row->aggregate_id;
    queues_.SendAgain(key, {entry});
  }
  EXPECT_EQ(Next(), "a1 b1");
  EXPECT_EQ(Next(), "c1 d1");
}

TEST_F(KeyQueuesTest, TakesOutAKeysRowsFromTheFirstPickedOneOn) {
  queues_.Add({Row("a", 1, "x"), Row("a", 2, "y"), Row("a", 3, "x"), Row("b", 1, "x")}, {});
  const auto taken =
      queues_.TakeWaiting([](const KeyQueues::Entry& entry) { return entry.row->topic == "y"; });
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_EQ(Next(), "a1 b1");
}

}  // namespace
}  // namespace lockstep::publisher
