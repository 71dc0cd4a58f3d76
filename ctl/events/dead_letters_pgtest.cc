// lockstepctl dead-letters, as an operator runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "runner/testing/binary_world.h"

namespace lockstep::ctl {

using namespace runner;  // fixtures of the runner as a process
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "a secret of the payload";

// Aggregates a and b, each with a dead version 2 and versions 3 and 4 waiting behind it.
class DeadLettersCtl : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.group_settings = "    max_attempts: 1\n";
    // The table refuses what is too long until somebody mends it.
    world_.database.Run("ALTER TABLE rm.items ADD CONSTRAINT short CHECK (length(a) < 10)");
    runner_ = world_.Runner();
    const auto publish = [&](int version, const std::string& value) {
      for (const char* id : {"a", "b"}) {
        world_.Publish(id, version, json({{"id", id}, {"a", value}}).dump());
      }
    };
    publish(1, "v1");
    publish(2, kSecret);
    ASSERT_TRUE(world_.Await([&] {
      return world_.Count("SELECT count(*) FROM feed_state.dead_letters") == 2;
    })) << runner_->Errors();
    // Not before: folded into one row with a successor, it would have done no harm.
    publish(3, "v3");
    publish(4, "v4");
    ASSERT_TRUE(world_.Await([&] {
      return world_.Count("SELECT count(*) FROM feed_state.parked") == 4;
    })) << runner_->Errors();
  }
  int64_t Version(const std::string& id) {
    return world_.Count("SELECT version FROM rm.items WHERE id = '" + id + "'");
  }
  int64_t Audits(const std::string& action) {
    return world_.Count("SELECT count(*) FROM feed_state.audit WHERE action = '" + action + "'");
  }
  std::string Offsets() {
    return std::string(
        world_.database
            .Query("SELECT coalesce(string_agg(message_id, ',' ORDER BY instance, lane), '') FROM "
                   "feed_state.offsets")
            .Text(0, 0));
  }

  BinaryWorld world_;
  std::unique_ptr<testing::Process> runner_;
};

TEST_F(DeadLettersCtl, ListsAndShowsAndKeepsThePayloadToItself) {
  const auto text = world_.Ctl("dead-letters list");
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("item/a"));
  EXPECT_THAT(text.out, HasSubstr("EVENT.REFUSED_BY_DATABASE"));
  EXPECT_THAT(text.out, Not(HasSubstr(kSecret)));

  const auto listed = world_.Ctl("--json dead-letters list --key item/b");
  ASSERT_EQ(listed.status, 0) << listed.err;
  const json rows = json::parse(listed.out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["aggregate"], "item/b");
  EXPECT_EQ(rows[0]["version"], 2);
  EXPECT_EQ(rows[0]["waiting"], 2);
  EXPECT_EQ(rows[0]["blocks"], true);

  const std::string id = rows[0]["id"].dump();
  const auto shown = world_.Ctl("dead-letters show " + id);
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("The payload is shown with --payload."));
  EXPECT_THAT(shown.out, Not(HasSubstr(kSecret)));
  EXPECT_THAT(world_.Ctl("dead-letters show --payload " + id).out, HasSubstr(kSecret));
  const json whole = json::parse(world_.Ctl("--json dead-letters show --payload " + id).out);
  EXPECT_EQ(whole["payload"]["a"], kSecret);
  EXPECT_EQ(whole["attributes"]["aggregate_id"], "b");
  EXPECT_FALSE(json::parse(world_.Ctl("--json dead-letters show " + id).out).contains("payload"));

  const auto none = world_.Ctl("dead-letters list --code EVENT.MAPPING_FAILED");
  EXPECT_EQ(none.status, 0);
  EXPECT_THAT(none.out, HasSubstr("no such dead letter"));
  EXPECT_EQ(world_.Ctl("dead-letters show 4711").status, 1);
}

// What a person asks for: nothing that its events said is left, and nobody else's is touched.
TEST_F(DeadLettersCtl, EraseTakesTheirPayloadsAndKeepsOrder) {
  EXPECT_NE(world_.Ctl("erase item a --reason x").status, 0) << "it asks first";
  const auto erased = world_.Ctl("--yes erase item a --reason 'request 17'");
  ASSERT_EQ(erased.status, 0) << erased.err;
  EXPECT_THAT(erased.out, HasSubstr("1 dead letters, 2 parked events"));
  EXPECT_EQ(Audits("erase"), 1);
  const auto left = [&](const char* table, const char* key) {
    return world_.Count(std::string("SELECT count(*) FROM feed_state.") + table +
                        " WHERE aggregate_key = '" + key + "' AND payload <> ''");
  };
  EXPECT_EQ(left("dead_letters", "item/a") + left("parked", "item/a"), 0);
  EXPECT_EQ(left("dead_letters", "item/b") + left("parked", "item/b"), 3);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.parked WHERE aggregate_key = 'item/a' "
                         "AND version IN (3, 4) AND attributes ->> 'aggregate_id' = 'a'"),
            2);
  EXPECT_THAT(world_.Ctl("--yes erase item a --reason again").out, HasSubstr("0 dead letters"));
  // What waited can't be applied as if it were empty: it dies.
  const auto discarded = world_.Ctl("--yes dead-letters discard --key item/a --reason gone");
  ASSERT_EQ(discarded.status, 0) << discarded.err;
  EXPECT_EQ(Version("a"), 1);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.dead_letters WHERE aggregate_key = "
                         "'item/a' AND state = 'dead' AND reason = 'it was erased'"),
            2);
}

// In an attribute, in a note, in a reason; of a message whose aggregate could not be read, too.
TEST_F(DeadLettersCtl, EraseLeavesNothingBesideThePayloadEither) {
  world_.database.Run(R"(
    UPDATE feed_state.dead_letters SET note = 'Ottilie', reason = 'Ottilie',
      attributes = attributes || '{"name": "Ottilie"}';
    UPDATE feed_state.dead_letters SET aggregate_key = NULL, blocks = false, ordering_key = 'a'
     WHERE aggregate_key = 'item/b';
    UPDATE feed_state.parked SET attributes = attributes || '{"name": "Ottilie"}')");
  const auto erased = world_.Ctl("--yes erase item a --reason 'request 17'");
  ASSERT_EQ(erased.status, 0) << erased.err;
  EXPECT_THAT(erased.out, HasSubstr("2 dead letters, 2 parked events"));
  const auto left = [&](const std::string& table) {
    return world_.Count("SELECT count(*) FROM feed_state." + table +
                        " t WHERE to_jsonb(t)::text LIKE '%Ottilie%'");
  };
  EXPECT_EQ(left("dead_letters"), 0);
  EXPECT_EQ(left("parked"), 2) << "those of b";
}

TEST_F(DeadLettersCtl, FindsThemByEventAndTypeAndSaysWhenThereAreMore) {
  const json all = json::parse(world_.Ctl("--json dead-letters list").out);
  ASSERT_EQ(all.size(), 2u);
  const std::string event = all[1]["event_id"];
  const json one = json::parse(world_.Ctl("--json dead-letters list --event " + event).out);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0], all[1]);
  const std::string type = all[0]["event_type"];
  EXPECT_EQ(json::parse(world_.Ctl("--json dead-letters list --type " + type).out).size(), 2u);
  EXPECT_EQ(json::parse(world_.Ctl("--json dead-letters list --type Other").out).size(), 0u);

  const auto nonsense = world_.Ctl("dead-letters list --event nonsense");
  EXPECT_EQ(nonsense.status, 1);
  EXPECT_THAT(nonsense.err, HasSubstr("'nonsense' is not an event id"));

  const auto first = world_.Ctl("--json dead-letters list --limit 1");
  EXPECT_EQ(json::parse(first.out).size(), 1u);
  EXPECT_THAT(first.err, HasSubstr("the first 1 of more: --limit"));
  EXPECT_THAT(world_.Ctl("dead-letters list --limit 2").err, Not(HasSubstr("of more")));

  for (const char* command : {"list", "show", "replay", "discard", "quarantine", "release"}) {
    const auto help = world_.Ctl(std::string("dead-letters ") + command + " --help");
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("--group")) << command;
  }
}

// What is released by an operator may die in its turn, and the answer says so.
TEST_F(DeadLettersCtl, TellsWhatBecameOfThoseThatWaited) {
  world_.database.Run("ALTER TABLE rm.items ADD CONSTRAINT no_v4 CHECK (a <> 'v4')");
  const json discarded = json::parse(
      world_.Ctl("--yes --json dead-letters discard --key item/a --reason 'give it up'").out);
  EXPECT_EQ(discarded["discarded"].size(), 1u);
  EXPECT_EQ(discarded["waited"]["applied"], 1);
  EXPECT_EQ(discarded["waited"]["dead"], 1);
  EXPECT_EQ(Version("a"), 3);
}

TEST_F(DeadLettersCtl, AsksBeforeItChangesAnythingAndWantsToKnowWhich) {
  const auto unasked = world_.Ctl("dead-letters replay --key item/a");
  EXPECT_EQ(unasked.status, 1);
  EXPECT_THAT(unasked.err, HasSubstr("Repeat with --yes"));
  EXPECT_THAT(unasked.err, HasSubstr("item/a")) << "it says what it would change";
  const auto all = world_.Ctl("--yes dead-letters discard");
  EXPECT_EQ(all.status, 1);
  EXPECT_THAT(all.err, HasSubstr("say which dead letters are meant"));
  const json plan = json::parse(world_.Ctl("--dry-run --json dead-letters discard --all").out);
  EXPECT_EQ(plan["plan"]["count"], 2);
  EXPECT_EQ(plan["plan"]["ids"].size(), 2u);
  const std::string ids = plan["plan"]["ids"][0].dump() + " " + plan["plan"]["ids"][1].dump();
  EXPECT_THAT(world_.Ctl("--yes dead-letters discard " + ids).err, HasSubstr("--reason"));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.dead_letters WHERE state = 'dead'"), 2);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.audit"), 0);
}

TEST_F(DeadLettersCtl, ReplaysInOrderWithoutTouchingTheOffset) {
  const std::string before = Offsets();
  const auto still = world_.Ctl("--yes --json dead-letters replay --key item/a --reason early");
  EXPECT_EQ(still.status, 1) << "nothing was mended yet";
  EXPECT_EQ(json::parse(still.out)["failed"].size(), 1u);
  EXPECT_EQ(Version("a"), 1);

  world_.database.Run("ALTER TABLE rm.items DROP CONSTRAINT short");
  const auto replayed = world_.Ctl(
      "--yes --json dead-letters replay --code EVENT.REFUSED_BY_DATABASE --reason mended");
  ASSERT_EQ(replayed.status, 0) << replayed.err;
  EXPECT_EQ(json::parse(replayed.out)["replayed"].size(), 2u);
  EXPECT_EQ(Version("a"), 4);
  EXPECT_EQ(Version("b"), 4);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items WHERE a = 'v4'"), 2);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.parked"), 0);
  EXPECT_EQ(Offsets(), before);
  EXPECT_EQ(Audits("dead_letters.replayed"), 2);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.audit WHERE reason = 'mended' AND "
                         "operator LIKE '%lockstepctl%'"),
            2);
  // New events of the keys go on as if nothing had been.
  world_.Publish("a", 5);
  EXPECT_TRUE(world_.Await([&] { return Version("a") == 5; }));
}

TEST_F(DeadLettersCtl, DiscardsOneAndQuarantinesAnother) {
  const auto quarantined =
      world_.Ctl("--yes --json dead-letters quarantine --key item/b --reason 'look first'");
  ASSERT_EQ(quarantined.status, 0) << quarantined.err;
  EXPECT_EQ(json::parse(quarantined.out)["changed"], 1);
  const auto discarded =
      world_.Ctl("--yes dead-letters discard --code EVENT.REFUSED_BY_DATABASE --reason gone");
  ASSERT_EQ(discarded.status, 0) << discarded.err;
  EXPECT_THAT(discarded.out, HasSubstr("discarded: 1"));
  EXPECT_EQ(Version("a"), 4) << "what waited behind it went on";
  EXPECT_EQ(Version("b"), 1) << "a quarantined one keeps its key waiting";
  EXPECT_EQ(Audits("dead_letters.discarded"), 1);
  EXPECT_EQ(Audits("dead_letters.quarantine"), 1);
  EXPECT_THAT(world_.Ctl("dead-letters list --state quarantined").out, HasSubstr("item/b"));

  ASSERT_EQ(world_.Ctl("--yes dead-letters release --key item/b").status, 0);
  ASSERT_EQ(world_.Ctl("--yes dead-letters discard --key item/b --reason gone").status, 0);
  EXPECT_EQ(Version("b"), 4);
}

}  // namespace
}  // namespace lockstep::ctl
