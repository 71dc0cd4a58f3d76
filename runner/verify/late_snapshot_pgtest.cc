// A snapshot that was read before a delete and comes after its tombstone was forgotten.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/testing/snapshot_world.h"
#include "state/events/retention.h"
#include "tests/support/test_database.h"
#include "verify/verify.h"

namespace lockstep::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SentMessage Of(int number, const std::string& type, int64_t version, bool snapshot) {
  return {.event_id = fmt::format("00000000-0000-4000-8000-{:012}", number),
          .tenant = "t",
          .id = "one",
          .version = version,
          .type = type,
          .payload = R"({"id":"one","a":"a","b":"b"})",
          .snapshot = snapshot};
}

// "class key" of what a comparison of r.hard with an empty source finds.
std::vector<std::string> Differences(SnapshotWorld& world) {
  testing::TestDatabase source;
  source.Run(
      "CREATE SCHEMA r; CREATE TABLE r.hard (tenant text, id text, version bigint NOT NULL,"
      " PRIMARY KEY (tenant, id))");
  const verify::SideRows rows{
      "a side", "\"r\".\"hard\"", {"r.\"tenant\"", "r.\"id\""}, "r.\"version\"", ""};
  const std::vector<verify::KeyType> types(2, {"text", true});
  const auto at_source = source.Connect();
  verify::VerifySide there(*at_source, rows, types), here(*world.connection, rows, types);
  verify::Verify verify({.source = there,
                         .replica = here,
                         .passed = [](const std::stop_token&) { return absl::OkStatus(); }},
                        {});
  const auto result = verify.Run({});
  EXPECT_TRUE(result.ok()) << result.status();
  std::vector<std::string> found;
  for (const verify::Difference& one : result->differences) {
    found.push_back(fmt::format("{} {}", Name(one.kind), one.key[1]));
  }
  return found;
}

TEST(LateSnapshot, IsHeldOffByATombstoneAndAfterThatMakesAGhostThatVerifyFinds) {
  for (const bool merges : {false, true}) {
    SnapshotWorld world(merges);
    world.Run({Of(1, "Made", 1, false), Of(2, "Gone", 2, false)});
    world.Run({Of(3, "Made", 1, true)});
    EXPECT_THAT(world.Rows("SELECT a, version FROM r.hard"), IsEmpty());
    EXPECT_THAT(Differences(world), IsEmpty());
    const state::Retention retention(state::Schema("lockstep_state"), ConsumerGroup("g"));
    const Millis week(7LL * 24 * 3600 * 1000);
    const auto forget = [&] {
      return retention.ForgetTombstones(*world.connection, Clock::System().Now(), week, 10)
          .value_or(-1);
    };
    // As long as Pub/Sub may hold it (a week here), and a day that a page may have waited before.
    world.db.Run(
        "UPDATE lockstep_state.row_versions SET deleted_at = now() - interval '7 days 23 hours'");
    EXPECT_EQ(forget(), 0);
    world.db.Run("UPDATE lockstep_state.row_versions SET deleted_at = now() - interval '9 days'");
    EXPECT_EQ(forget(), 1);
    world.Run({Of(4, "Made", 1, true)});
    EXPECT_THAT(world.Rows("SELECT a, version FROM r.hard"), ElementsAre("a|1"));
    EXPECT_THAT(world.Rows("SELECT version FROM r.soft WHERE deleted_at IS NULL"), IsEmpty())
        << "a row that stays has its version for ever";
    EXPECT_THAT(Differences(world), ElementsAre("ghost one"));
  }
}

}  // namespace
}  // namespace lockstep::runner
