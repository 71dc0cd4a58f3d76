#include "publisher/testing/outbox_test.h"

#include <fmt/format.h>

#include "platform/status.h"
#include "postgres/migrator.h"
#include "sql/migrations.h"
#include "tests/support/outbox_status.h"

namespace lockstep::publisher {
OutboxTest::OutboxTest(bool partitioned) {
  const auto connection = db_.Connect();
  const auto migrated = postgres::Migrator(*connection, "lockstep", sql::OutboxMigrations()).Up();
  if (!migrated.ok()) throw std::runtime_error(migrated.status().ToString());
  if (partitioned) {
    db_.Run("SELECT lockstep.create_outbox('shop.outbox', partition => 'day')");
    db_.Run(
        "SELECT lockstep.make_partition('shop.outbox', 0), setval('shop.outbox_sequence_seq', 1, "
        "false)");
  } else {
    db_.Run("SELECT lockstep.create_outbox('shop.outbox')");
  }
  db_.Run(testing::StatusCanBeWritten(kTable));
}

int64_t OutboxTest::Enqueue(const EventSpec& event) {
  return db_.QueryInt(
      "SELECT lockstep.enqueue('shop.outbox', $1, 'item', $2, 'shop.ItemChanged', $3, $4, "
      "tenant_id => $5, attributes => $6)",
      postgres::Params(event.topic, event.key, event.version, postgres::Bytea{event.payload},
                       event.tenant.empty() ? std::nullopt : std::optional(event.tenant),
                       event.attributes));
}

void OutboxTest::EnqueueMany(const std::string& key, int count, const std::string& topic) {
  db_.Query(
      "SELECT count(lockstep.enqueue('shop.outbox', $3, 'item', $1, 'shop.ItemChanged', v, "
      "'payload')) FROM generate_series(1, $2::int) v",
      postgres::Params(key, count, topic));
}

OutboxTest::Claimer OutboxTest::NewClaimer(const std::string& name) {
  Claimer claimer;
  claimer.connection = db_.Connect();
  auto store = OutboxStore::Open(*claimer.connection, {"shop", "outbox"});
  if (!store.ok()) throw std::runtime_error(store.status().ToString());
  claimer.store = *std::move(store);
  claimer.request.owner = name;
  return claimer;
}

Claim OutboxTest::Claimer::Take(ClaimCursor* cursor) {
  static std::atomic<int> count = 0;
  request.token = fmt::format("00000000-0000-4000-8000-{:012}", ++count);
  request.rest_token = fmt::format("00000000-0000-4000-9000-{:012}", count.load());
  ClaimCursor start;
  auto claim = store->ClaimRows(request, cursor == nullptr ? start : *cursor);
  if (!claim.ok()) throw std::runtime_error(claim.status().ToString());
  return *std::move(claim);
}

std::string OutboxTest::Names(const Claim& claim) {
  std::vector<std::string> names;
  for (const OutboxRow& row : claim.rows) {
    names.push_back(fmt::format("{}:{}", row.aggregate_id, row.version));
  }
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<PublishedRow> OutboxTest::AsPublished(const Claim& claim) {
  std::vector<PublishedRow> rows;
  for (const OutboxRow& row : claim.rows) rows.push_back({Shared(row), "m"});
  return rows;
}

RowFailure OutboxTest::AsFailure(const OutboxRow& row, Millis delay, bool dead) {
  return {Shared(row), 1, delay, "it failed", "UNKNOWN.INTERNAL", dead};
}

std::string OutboxTest::Text(const std::string& expression, int64_t sequence) {
  return std::string(
      db_.Query(fmt::format("SELECT ({})::text FROM shop.outbox_status WHERE sequence = {}",
                            expression, sequence))
          .Text(0, 0));
}

}  // namespace lockstep::publisher
