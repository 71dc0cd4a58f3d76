#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "postgres/migrator.h"
#include "projections/testing/test_group.h"
#include "runner/verify/replica_verifier.h"
#include "sql/migrations.h"
#include "tests/support/test_database.h"

namespace lockstep::runner {

inline constexpr char kFeed[] = R"(group: feed
subscription: items.feed
projections:
  - name: items
    table: rm.items
    key: id
    version: version
    events:
      Saved: {replace: {a: {field: a}}}
)";

inline constexpr char kItemsOfShop[] = R"(backfill: items
outbox: shop.outbox
topic: shop.events
{source}
key: [id]
aggregate_type: item
aggregate_id: id
version: version
event_type: Saved
payload:
  fields: {{id: id, a: a}}
)";

// A source and a replica of a thousand equal items, a runner that works, and whoever compares the
// two. Test code.
class ReplicaVerifierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto at_source = source_.Connect();
    ASSERT_TRUE(
        postgres::Migrator(*at_source, "lockstep", sql::OutboxMigrations()).Up().status().ok());
    ASSERT_TRUE(projections::MigrateState(*replica_.Connect()).ok());
    source_.Run(
        "SELECT lockstep.create_outbox('shop.outbox');"
        "CREATE TABLE shop.items (id bigint PRIMARY KEY, version int NOT NULL, a text);"
        "INSERT INTO shop.items SELECT g, 3, 'a' FROM generate_series(1, 1000) g; ANALYZE");
    replica_.Run(
        "CREATE SCHEMA rm; CREATE TABLE rm.items (id bigint PRIMARY KEY, version bigint, a text);"
        "INSERT INTO rm.items SELECT g, 3, 'a' FROM generate_series(1, 1000) g; ANALYZE");
    // A runner that works and has nothing in hand, for an hour.
    replica_.Run(
        "INSERT INTO lockstep_state.consumer_groups (group_name) VALUES ('feed');"
        "INSERT INTO lockstep_state.instances (group_name, instance, epoch, lanes, seen_at, state,"
        " lag_ms) VALUES ('feed', 'one', 1, 1, now() + interval '4 minutes', 'running', 0)");
    schedule_ = {.every = Millis(86'400'000),
                 .backfills = {"items.yaml"},
                 .source = source_.url(),
                 .grace = Millis(0),
                 .rows = 100};
    options_ = {.database = replica_.url(),
                .state_schema = "lockstep_state",
                .instance = "one",
                .ctl = "lockstepctl"};
  }

  std::unique_ptr<ReplicaVerifier> New(const std::string& instance = "one",
                                       const std::string& source = "table: shop.items") {
    const projections::TempFile file(
        "items.yaml", fmt::format(fmt::runtime(declared_), fmt::arg("source", source)));
    auto group = projections::LoadText(feed_);
    EXPECT_TRUE(group.ok()) << group.status();
    group_ = *std::move(group);
    auto targets = LoadVerifyTargets({file.path()}, group_.projector->plan());
    EXPECT_TRUE(targets.ok()) << targets.status();
    options_.instance = instance;
    return std::make_unique<ReplicaVerifier>(
        options_,
        std::vector<VerifiedGroup>{{.name = "feed",
                                    .schedule = schedule_,
                                    .targets = *std::move(targets),
                                    .projector = group_.projector.get()}},
        metrics_);
  }
  bool Turn(ReplicaVerifier& verifier) {
    const auto turn = verifier.Turn("feed");
    EXPECT_TRUE(turn.ok()) << turn.status();
    return turn.value_or(false);
  }
  // Its pause is over.
  void Due() {
    replica_.Run("UPDATE lockstep_state.verifications SET due_at = now() - interval '1 s'");
  }
  // Ranges until a pass has ended; so many.
  int Pass(ReplicaVerifier& verifier) {
    const int64_t before = Passes();
    for (int ranges = 1; ranges <= 50; ++ranges) {
      if (ranges > 1) Due();
      EXPECT_TRUE(Turn(verifier));
      if (Passes() > before) return ranges;
    }
    ADD_FAILURE() << "no end: " << Text("error");
    return 0;
  }
  int64_t Passes() {
    return replica_.QueryInt(
        "SELECT coalesce((extract(epoch FROM max(passed_at)) * 1000000)::bigint, 0) FROM "
        "lockstep_state.verifications");
  }
  std::string Text(const std::string& column) {
    return replica_.Query("SELECT " + column + "::text AS x FROM lockstep_state.verifications")[0]
        .String("x");
  }
  // "class key" of what is kept.
  std::vector<std::string> Kept() {
    std::vector<std::string> kept;
    for (const postgres::Row row : replica_.Query(
             "SELECT class || ' ' || (key ->> 0) AS x FROM lockstep_state.verify_differences "
             "ORDER BY (key ->> 0)::bigint")) {
      kept.push_back(row.String("x"));
    }
    return kept;
  }
  double Failures() {
    return CounterOf(metrics_, "replica_verify_failures_total",
                     "Tries to compare a range that came to nothing", {{"group", "feed"}})
        .Value();
  }

  std::string feed_ = kFeed, declared_ = kItemsOfShop;
  testing::TestDatabase source_, replica_;
  projections::GroupDeclaration group_;
  MetricsRegistry metrics_;
  VerifySchedule schedule_;
  ReplicaVerifier::Options options_;
};

}  // namespace lockstep::runner
