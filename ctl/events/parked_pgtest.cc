// lockstepctl parked, as an operator runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runner/testing/binary_world.h"

namespace lockstep::ctl {

using namespace runner;  // fixtures of the runner as a process
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMerging[] = R"(group: feed
subscription: items.feed
projections:
  - name: items
    table: rm.items
    key: id
    version: version
    events:
      ItemChanged: {merge: {a: a}}
)";

// Item a has version 1; 3, 6 and 7 wait for what never comes.
class ParkedCtl : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.projection = kMerging;
    runner_ = world_.Runner();
    for (const int version : {1, 3, 6, 7}) world_.Publish("a", version);
    ASSERT_TRUE(world_.Await([&] {
      return world_.Count("SELECT count(*) FROM feed_state.parked") == 3;
    })) << runner_->Errors();
  }
  int64_t Version() { return world_.Count("SELECT version FROM rm.items WHERE id = 'a'"); }
  int64_t Waiting() { return world_.Count("SELECT count(*) FROM feed_state.parked"); }
  json Answer(const std::string& command) {
    const auto ran = world_.Ctl("--json " + command);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return json::parse(ran.out, nullptr, false);
  }

  BinaryWorld world_;
  std::unique_ptr<testing::Process> runner_;
};

TEST_F(ParkedCtl, ListsWhatWaitsAndForWhat) {
  const json list = Answer("parked list");
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["aggregate"], "item/a");
  EXPECT_EQ(list[0]["waiting"], 3);
  EXPECT_EQ(list[0]["waits_for"], 2);
  EXPECT_EQ(list[0]["first_waiting"], 3);
  EXPECT_EQ(list[0]["why"], "version 2 has not come");
  EXPECT_THAT(world_.Ctl("parked list").out, AllOf(HasSubstr("item/a"), HasSubstr("has not come")));
  const json key = Answer("parked show item/a");
  ASSERT_EQ(key["events"].size(), 3u);
  EXPECT_EQ(key["events"][0]["version"], 3);
  EXPECT_EQ(key["events"][0]["reason"], "gap");
  EXPECT_TRUE(key["events"][0]["parked_at"].is_string());
  const auto nothing = world_.Ctl("parked show item/b");
  EXPECT_EQ(nothing.status, 1);
  EXPECT_THAT(nothing.err, HasSubstr("nothing of aggregate 'item/b' waits"));
}

TEST_F(ParkedCtl, SkipsToTheFirstThatWaitsAndNoFurther) {
  const json done = Answer("parked skip item/a --reason 'lost at the source' --yes");
  EXPECT_EQ(done["skipped_to"], 3);
  EXPECT_EQ(done["waited"]["applied"], 1);
  EXPECT_EQ(Version(), 3);
  EXPECT_EQ(Waiting(), 2) << "4 and 5 are still missing";
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.audit WHERE action = 'parked.skip' AND "
                         "reason = 'lost at the source' AND operator LIKE '%(lockstepctl)' AND "
                         "old ->> 'settled_version' = '1' AND new ->> 'settled_version' = '2'"),
            1);
  // The tail goes on as ever.
  EXPECT_EQ(Answer("parked skip item/a --to 6 --yes --reason test")["waited"]["applied"], 2);
  EXPECT_EQ(Version(), 7);
  world_.Publish("a", 8);
  EXPECT_TRUE(world_.Await([&] { return Version() == 8; }));
}

TEST_F(ParkedCtl, WhatWasGivenUpAndComesAfterAllChangesNothing) {
  Answer("parked skip item/a --yes --reason test");
  ASSERT_EQ(Version(), 3);
  world_.Publish("a", 2, R"({"id":"a","a":"late"})", Uuid(77));
  ASSERT_TRUE(world_.Await([&] {
    return world_.Count("SELECT count(*) FROM feed_state.inbox WHERE event_id = '" + Uuid(77) +
                        "' AND fate = 's'") == 1;
  })) << runner_->Errors();
  EXPECT_EQ(world_.Count("SELECT count(*) FROM rm.items WHERE version = 3 AND a <> 'late'"), 1);
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.dead_letters"), 0);
}

// Version 3 is at hand: it is applied in its turn, not given up.
TEST_F(ParkedCtl, GivesUpOnlyWhatHasNotCome) {
  EXPECT_EQ(Answer("parked skip item/a --to 6 --yes --reason test")["waited"]["applied"], 3);
  EXPECT_EQ(Version(), 7);
  EXPECT_EQ(Waiting(), 0);
}

TEST_F(ParkedCtl, RefusesWhatMakesNoSense) {
  const auto refused = [&](const std::string& command) {
    const auto ran = world_.Ctl(command);
    EXPECT_EQ(ran.status, 1) << command;
    EXPECT_EQ(Waiting(), 3) << command;
    return ran.err;
  };
  EXPECT_THAT(refused("parked skip item/a"), HasSubstr("there is no terminal to ask on"));
  EXPECT_THAT(refused("parked skip item/a --to 2 --yes --reason test"),
              HasSubstr("nothing is missing before"));
  EXPECT_THAT(refused("parked skip item/a --to 8 --yes --reason test"),
              HasSubstr("nothing of item/a waits at version 8"));
  EXPECT_THAT(refused("parked skip item/b --yes --reason test"),
              HasSubstr("nothing of aggregate 'item/b'"));
  EXPECT_EQ(world_.Count("SELECT count(*) FROM feed_state.audit WHERE action = 'parked.skip'"), 0);
  // A dead letter in the way is decided about first.
  world_.Publish("a", 2, "not JSON");
  ASSERT_TRUE(world_.Await(
      [&] { return world_.Count("SELECT count(*) FROM feed_state.dead_letters") == 1; }));
  EXPECT_THAT(refused("parked skip item/a --to 3 --yes --reason test"),
              HasSubstr("is a dead letter"));
}

TEST_F(ParkedCtl, ShowsNoControlCharacters) {
  for (const char* table : {"key_state", "parked"}) {
    world_.database.Run(std::string("UPDATE feed_state.") + table +
                        " SET aggregate_key = E'item/\\x1b]0;a'");
  }
  const auto listed = world_.Ctl("parked list");
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(HasSubstr("]0;a"), Not(HasSubstr("\033"))));
}

}  // namespace
}  // namespace lockstep::ctl
