#include "runner/testing/snapshot_world.h"

#include <fmt/format.h>

#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::runner {
namespace {

constexpr char kTables[] =
    "CREATE SCHEMA r;"
    "CREATE TABLE r.hard (tenant text, id text, a text, b text, version bigint NOT NULL,"
    " PRIMARY KEY (tenant, id));"
    "CREATE TABLE r.soft (tenant text, id text, a text, b text, version bigint NOT NULL,"
    " deleted_at timestamptz, PRIMARY KEY (tenant, id));"
    "CREATE TABLE r.changed (tenant text, id text, a text, version bigint NOT NULL,"
    " PRIMARY KEY (tenant, id));"
    "CREATE TABLE r.changes (id text PRIMARY KEY, n bigint)";

constexpr char kTable[] = R"(  - name: {0}
    table: r.{0}
    key: {{tenant: {{attribute: tenant_id}}, id: id}}
    version: version
{1}    events:
      Made: {{replace: [a, b]}}
      Changed: {{{2}: [a, b]}}
      Gone: delete
      Seen: ignore
)";

constexpr char kChangesOnly[] = R"(  - name: changed
    table: r.changed
    key: {tenant: {attribute: tenant_id}, id: id}
    version: version
    events:
      Changed: {replace: [a]}
)";

constexpr char kCounts[] = R"(  - name: changes
    table: r.changes
    key: {id: {attribute: aggregate_id}}
    events:
      Changed: {increment: {n: {value: 1}}}
)";

std::string Yaml(bool merges, bool counts) {
  const char* const change = merges ? "merge" : "replace";
  return "group: g\nsubscription: s\nprojections:\n" + fmt::format(kTable, "hard", "", change) +
         fmt::format(kTable, "soft", "    deleted_at: deleted_at\n", change) +
         (merges ? (counts ? kCounts : "") : kChangesOnly);
}

}  // namespace

SnapshotWorld::SnapshotWorld(bool merges, BatchRules rules, bool by_versions)
    : connection(db.Connect()) {
  db.Run(kTables);
  EXPECT_TRUE(projections::MigrateState(*connection).ok());
  auto loaded = projections::LoadText(Yaml(merges, !by_versions), "",
                                      projections::TestGroup::DefaultOptions());
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  group_ = *std::move(loaded);
  EXPECT_TRUE(group_.projector->Check(*connection).ok());
  batch_ = std::make_unique<Batch>(schema_, name_, *group_.projector, offsets_, rules);
  auto under = state::Epochs(schema_, name_).LoadOrCreate(*connection, "s", {}, "test");
  EXPECT_TRUE(under.ok()) << under.status();
  under_ = *std::move(under);
  if (!by_versions) return;
  db.Run("UPDATE lockstep_state.slots SET inbox = 'aggregate'");
  under_.by_versions = true;
}

Inbound SnapshotWorld::Received(const SentMessage& message) {
  pubsub::Delivery delivery;
  delivery.message_id = MessageId(fmt::format("{}", ++messages_));
  delivery.publish_time = Clock::System().Now();
  delivery.message.data = message.payload;
  delivery.message.ordering_key = message.id;
  Attributes& attributes = delivery.message.attributes;
  attributes = {{"event_id", message.event_id},
                {"event_type", message.type},
                {"aggregate_type", "item"},
                {"aggregate_id", message.id},
                {"tenant_id", message.tenant},
                {"version", fmt::format("{}", message.version)},
                {"schema_version", "1"},
                {"occurred_at", "2026-01-31T12:00:00Z"},
                {"content_type", "application/json"}};
  if (message.snapshot) attributes[kKindAttribute] = kKindSnapshot;
  if (message.overwrite) attributes[kOverwriteAttribute] = "true";
  if (message.absent) attributes[kAbsentAttribute] = "true";
  Inbound item(std::move(delivery), Clock::System().Now());
  if (!item.poison) MapEvent(*group_.projector, item);
  return item;
}

std::vector<Fate> SnapshotWorld::Run(const std::vector<SentMessage>& messages,
                                     const ReleaseLimits& limits) {
  std::deque<Inbound> received;
  std::vector<Inbound*> items;
  for (const SentMessage& message : messages) {
    items.push_back(&received.emplace_back(Received(message)));
  }
  auto result = batch_->Run(*connection, under_, {"one", 0}, items, limits);
  // A conflict makes poison of its message; what is found overtaken is not found again.
  for (int tries = 0; result.ok() && result->rolled_back && tries < 3; ++tries) {
    result = batch_->Run(*connection, under_, {"one", 0}, items, limits);
  }
  EXPECT_TRUE(result.ok() && !result->rolled_back) << result.status();
  if (!result.ok()) return {};
  overtaken += result->overtaken;
  ReleaseAll(result->unfinished);
  return result->fates;
}

void SnapshotWorld::ReleaseAll(std::vector<std::string> keys) {
  ReleaseLimits limits;
  while (!keys.empty()) {
    const auto released = batch_->Release(*connection, under_, keys, limits);
    ASSERT_TRUE(released.ok()) << released.status();
    // Of two that waited for one version the second dies.
    for (const MarkedDead& dead : released->parked_conflicts) limits.marked_dead.push_back(dead);
    ASSERT_TRUE(!released->rolled_back || !released->parked_conflicts.empty());
    if (!released->rolled_back) keys = released->unfinished;
  }
}

absl::Status SnapshotWorld::Resolve(int64_t dead_letter, bool replay) {
  const auto result = batch_->Resolve(
      *connection, under_,
      {.id = dead_letter, .replay = replay, .operator_name = "test", .reason = "test"});
  if (result.ok()) ReleaseAll(result->unfinished);
  return result.status();
}

absl::Status SnapshotWorld::SkipTo(const std::string& aggregate_key, int64_t version) {
  const auto result = batch_->SkipTo(
      *connection, under_,
      {.aggregate_key = aggregate_key, .to = version, .operator_name = "test", .reason = "test"});
  if (result.ok()) ReleaseAll(result->unfinished);
  return result.status();
}

void SnapshotWorld::SkipGaps() {
  auto transaction = connection->Begin();
  ASSERT_TRUE(transaction.ok());
  EXPECT_TRUE(batch_->key_states().SkipGaps(*transaction, under_.generation).ok());
  EXPECT_TRUE(transaction->Commit().ok());
  const auto due = batch_->key_states().Releasable(*connection, under_.generation, 1'000);
  ASSERT_TRUE(due.ok()) << due.status();
  ReleaseAll(*due);
}

}  // namespace lockstep::runner
