#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "projections/model/projection.h"
#include "projections/testing/test_group.h"

// Snapshots: how an aggregate stands, met by rows that are older, newer, gone or as old.
namespace lockstep::projections {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTables[] =
    "CREATE SCHEMA x;"
    "CREATE TABLE x.hard (id text PRIMARY KEY, a text, b text, version bigint NOT NULL);"
    "CREATE TABLE x.soft (id text PRIMARY KEY, a text, b text, version bigint NOT NULL,"
    " deleted_at timestamptz);"
    "CREATE TABLE x.kept (id text PRIMARY KEY, a text, version bigint NOT NULL);"
    "CREATE TABLE x.count (id text PRIMARY KEY, n bigint)";

constexpr char kYaml[] = R"(group: g
subscription: s
undeclared_events: ignore
projections:
  - {name: hard, table: x.hard, key: id, version: version,
     events: {Made: {replace: [a, b]}, Changed: {merge: [a, b]}, Gone: delete}}
  - {name: soft, table: x.soft, key: id, version: version, deleted_at: deleted_at,
     events: {Made: {replace: [a, b]}, Changed: {merge: [a, b]}, Gone: delete}}
  - {name: kept, table: x.kept, key: id, version: version, events: {Made: {replace: [a]}}}
  - {name: count, table: x.count, key: id, events: {Changed: {increment: {n: {value: 1}}}}}
)";

Event Thing(const std::string& type, int64_t version, const std::string& a = "",
            const std::string& b = "") {
  std::string payload = R"({"id":"one")";
  if (!a.empty()) payload += fmt::format(R"(,"a":"{}")", a);
  if (!b.empty()) payload += fmt::format(R"(,"b":"{}")", b);
  return MakeEvent(type, "one", version, payload + "}");
}
Event Snapshot(int64_t version, const std::string& a, const std::string& type = "Made") {
  Event event = Thing(type, version, a, a);
  event.kind = envelope::EventKind::kSnapshot;
  return event;
}
Event Repair(int64_t version, const std::string& a) {
  Event event = Snapshot(version, a);
  event.overwrite = true;
  return event;
}
Event Ghost(int64_t version) {
  Event event = Repair(version, "");
  event.absent = true;
  return event;
}

class SnapshotTest : public ::testing::Test {
 protected:
  SnapshotTest() { group_.db().Run(kTables); }
  Outcome Apply(const Event& event) { return group_.Apply({event}).at(0); }
  std::vector<std::string> Hard() { return group_.Rows("SELECT a, b, version FROM x.hard"); }
  std::vector<std::string> Soft() {
    return group_.Rows("SELECT a, version, deleted_at IS NOT NULL FROM x.soft");
  }
  std::vector<std::string> Kept() { return group_.Rows("SELECT a, version FROM x.kept"); }
  std::string WhyNot(const Event& event) {
    const auto mapped = group_.projector().Map(event);
    if (!absl::IsFailedPrecondition(mapped.status())) return "";
    return std::string(MessageOf(mapped.status()));
  }

  TestGroup group_{kYaml};
};

TEST_F(SnapshotTest, ReplacesBelowDoesNothingAtAndIsSupersededAboveTheStoredVersion) {
  EXPECT_EQ(Apply(Thing("Made", 3, "old", "old")), Outcome::kApplied);
  EXPECT_EQ(Apply(Snapshot(5, "five")), Outcome::kApplied);
  EXPECT_THAT(Hard(), ElementsAre("five|five|5"));
  EXPECT_EQ(Apply(Snapshot(5, "again")), Outcome::kSuperseded);
  EXPECT_EQ(Apply(Snapshot(4, "four")), Outcome::kSuperseded);
  EXPECT_THAT(Hard(), ElementsAre("five|five|5"));
  EXPECT_EQ(Apply(Thing("Changed", 6, "six")), Outcome::kApplied);
  EXPECT_THAT(Hard(), ElementsAre("six|five|6"));
}

TEST_F(SnapshotTest, MeetsTheTombstonesOfBothKinds) {
  Apply(Thing("Made", 1, "x"));
  Apply(Thing("Gone", 4));
  EXPECT_EQ(group_.Apply({Snapshot(3, "late")}).at(0), Outcome::kApplied)
      << "in the table that deletes nothing";
  EXPECT_THAT(Hard(), IsEmpty());
  EXPECT_THAT(Soft(), ElementsAre("x|4|t"));
  Apply(Snapshot(5, "anew"));
  EXPECT_THAT(Hard(), ElementsAre("anew|anew|5"));
  EXPECT_THAT(Soft(), ElementsAre("anew|5|f"));
}

// It may stand on versions that never came here, so of the two it is the one to be believed.
TEST_F(SnapshotTest, StandsForTheEventOfItsVersionInOneBatch) {
  Apply(Thing("Made", 3, "three", "three"));
  EXPECT_THAT(
      group_.Apply({Snapshot(5, "five"), Thing("Changed", 5, "five"), Thing("Changed", 6, "six")}),
      ElementsAre(Outcome::kApplied, Outcome::kApplied, Outcome::kApplied));
  EXPECT_THAT(Hard(), ElementsAre("six|five|6"));
  EXPECT_THAT(group_.Rows("SELECT n FROM x.count"), ElementsAre("2")) << "counted all the same";
  EXPECT_THAT(group_.Apply({Snapshot(7, "seven"), Thing("Made", 7, "seven", "seven")}),
              ElementsAre(Outcome::kApplied, Outcome::kSuperseded));
}

TEST_F(SnapshotTest, AnEventThatASnapshotStandsForIsNoFork) {
  Apply(Snapshot(5, "five"));
  EXPECT_EQ(Apply(Thing("Made", 5, "other")), Outcome::kConflict) << "nobody said so";
  ApplyOptions covered;
  covered.covered = {true};
  EXPECT_THAT(group_.Apply({Thing("Made", 5, "other")}, covered),
              ElementsAre(Outcome::kSuperseded));
  EXPECT_THAT(Hard(), ElementsAre("five|five|5"));
}

TEST_F(SnapshotTest, ARepairTakesThePlaceOfItsVersionAndOfNoHigherOne) {
  Apply(Thing("Made", 5, "spoilt", "spoilt"));
  EXPECT_EQ(Apply(Repair(5, "right")), Outcome::kApplied);
  EXPECT_THAT(Hard(), ElementsAre("right|right|5"));
  EXPECT_THAT(Soft(), ElementsAre("right|5|f"));
  EXPECT_EQ(Apply(Repair(4, "older")), Outcome::kSuperseded);
  // Beside events that don't overwrite, and with a part that is stale.
  EXPECT_THAT(
      group_.Apply({Thing("Changed", 4, "late"), Repair(5, "again"), Thing("Changed", 6, "six")}),
      ElementsAre(Outcome::kApplied, Outcome::kApplied, Outcome::kApplied));
  EXPECT_THAT(Hard(), ElementsAre("six|again|6"));
}

TEST_F(SnapshotTest, BringsBackARowThatWasTakenAwayByHand) {
  Apply(Thing("Made", 5, "five", "five"));
  group_.db().Run("DELETE FROM x.hard");
  EXPECT_EQ(Apply(Snapshot(5, "five")), Outcome::kSuperseded)
      << "its version says that it is there";
  EXPECT_THAT(Hard(), IsEmpty());
  EXPECT_EQ(Apply(Repair(5, "five")), Outcome::kApplied);
  EXPECT_THAT(Hard(), ElementsAre("five|five|5"));
}

TEST_F(SnapshotTest, TakesAGhostAwayAsTheTableDeletes) {
  Apply(Thing("Made", 5, "ghost", "ghost"));
  EXPECT_EQ(Apply(Ghost(4)), Outcome::kSuperseded);
  EXPECT_THAT(Hard(), ElementsAre("ghost|ghost|5"));
  EXPECT_THAT(Soft(), ElementsAre("ghost|5|f"));
  EXPECT_THAT(Kept(), ElementsAre("ghost|5"));
  EXPECT_EQ(Apply(Ghost(5)), Outcome::kApplied);
  EXPECT_THAT(Hard(), IsEmpty());
  EXPECT_THAT(Soft(), ElementsAre("ghost|0|t"));
  EXPECT_THAT(Kept(), IsEmpty());
  EXPECT_EQ(Apply(Ghost(5)), Outcome::kSuperseded) << "there is none";
}

// A row that somebody added by hand has any version: what the source makes later must not be taken
// for older.
TEST_F(SnapshotTest, AGhostLeavesNoVersionBehind) {
  for (const char* const table : {"x.hard", "x.soft", "x.kept"}) {
    group_.db().Run(
        fmt::format("INSERT INTO {} (id, a, version) VALUES ('one', 'ghost', 99)", table));
  }
  EXPECT_EQ(Apply(Ghost(99)), Outcome::kApplied);
  EXPECT_THAT(group_.Rows("SELECT version FROM lockstep_state.row_versions"), IsEmpty());
  EXPECT_EQ(Apply(Thing("Made", 1, "anew", "anew")), Outcome::kApplied);
  EXPECT_THAT(Hard(), ElementsAre("anew|anew|1"));
  EXPECT_THAT(Soft(), ElementsAre("anew|1|f"));
  EXPECT_THAT(Kept(), ElementsAre("anew|1"));
  // Nor is the source's word lost that comes with it, on either side of it.
  EXPECT_THAT(group_.Apply({Thing("Made", 2, "two", "two"), Ghost(98), Thing("Changed", 99, "x")}),
              ElementsAre(Outcome::kApplied, Outcome::kApplied, Outcome::kApplied));
  EXPECT_THAT(Hard(), ElementsAre("x|two|99"));
  EXPECT_THAT(Soft(), ElementsAre("x|99|f"));
  EXPECT_THAT(Kept(), ElementsAre("two|2"));
}

// A table that allows no version 0 keeps its ghosts, and the message dies with the constraint's
// name.
TEST_F(SnapshotTest, ATableMustAllowTheVersionThatABuriedGhostHas) {
  group_.db().Run("ALTER TABLE x.soft ADD CONSTRAINT positive CHECK (version > 0)");
  Apply(Thing("Made", 5, "ghost", "ghost"));
  const auto refused = group_.TryApply({Ghost(5)});
  EXPECT_EQ(postgres::Classify(refused.status()), postgres::ErrorClass::kData);
  EXPECT_THAT(std::string(MessageOf(refused.status())), HasSubstr("positive"));
  EXPECT_THAT(Soft(), ElementsAre("ghost|5|f"));
  group_.db().Run(
      "ALTER TABLE x.soft DROP CONSTRAINT positive, ADD CONSTRAINT positive CHECK (version >= 0)");
  EXPECT_EQ(Apply(Ghost(5)), Outcome::kApplied);
  EXPECT_THAT(Soft(), ElementsAre("ghost|0|t"));
}

TEST_F(SnapshotTest, AGhostLeavesTheTombstoneThatAnEventMade) {
  Apply(Thing("Made", 1, "x", "x"));
  Apply(Thing("Gone", 4));
  group_.db().Run("INSERT INTO x.hard (id, a, version) VALUES ('one', 'ghost', 99)");
  EXPECT_EQ(Apply(Ghost(99)), Outcome::kApplied);
  EXPECT_THAT(Hard(), IsEmpty());
  EXPECT_THAT(Soft(), ElementsAre("x|4|t")) << "it was gone already";
  Apply(Thing("Made", 3, "late", "late"));
  EXPECT_THAT(Hard(), IsEmpty());
  EXPECT_THAT(Soft(), ElementsAre("x|4|t"));
}

TEST_F(SnapshotTest, IsRefusedWhereItsTypeSaysWhatHappened) {
  EXPECT_THAT(WhyNot(Snapshot(1, "x", "Changed")), HasSubstr("is merged"));
  EXPECT_THAT(WhyNot(Snapshot(1, "x", "Gone")), HasSubstr("deletes"));
  EXPECT_EQ(WhyNot(Snapshot(1, "x")), "");
  EXPECT_EQ(WhyNot(Snapshot(1, "x", "Unknown")), "") << "ignored, as its events are";
  TestGroup counting(
      "group: g\nsubscription: s\nprojections:\n"
      "  - {name: c, table: x.count, key: id, events: {Made: {increment: {n: {value: 1}}}}}\n");
  const auto counted = counting.projector().Map(Snapshot(1, "x"));
  EXPECT_THAT(std::string(MessageOf(counted.status())),
              ::testing::AllOf(HasSubstr("can't be told from a state"), HasSubstr("rebuild")));
}

// A repair's message has the key of one table; another has a key of more fields, or of others.
TEST(GhostOfOneTable, IsNoneOfATableWhoseKeyItDoesNotName) {
  const auto descriptors = DescriptorsOf(
      "syntax = \"proto3\"; package t; message Made { string id = 1; int64 shelf = 2; }");
  for (const char* const types : {"", "descriptors: %DESCRIPTORS%\n"}) {
    TestGroup group(std::string("group: g\nsubscription: s\n") + types +
                        "projections:\n"
                        "  - {name: one, table: x.one, key: id, version: version, events: {Made: "
                        "{replace: {s: shelf}}}}\n"
                        "  - {name: shelf, table: x.shelf, key: [shelf, id], version: version, "
                        "events: {Made: {replace: {s: shelf}}}}\n",
                    descriptors->path());
    group.db().Run(
        "CREATE SCHEMA x;"
        "CREATE TABLE x.one (id text PRIMARY KEY, s bigint, version bigint NOT NULL);"
        "CREATE TABLE x.shelf (shelf bigint, id text, s bigint, version bigint NOT NULL, PRIMARY "
        "KEY (shelf, "
        "id))");
    const auto message = [](const std::string& payload, bool gone) {
      Event event = MakeEvent("Made", "a", 3, payload);
      event.kind = envelope::EventKind::kSnapshot;
      event.overwrite = event.absent = gone;
      return event;
    };
    group.Apply({message(R"({"id":"a","shelf":0})", false)});
    ASSERT_THAT(group.Rows("SELECT shelf, id FROM x.shelf"), ElementsAre("0|a"));
    EXPECT_THAT(group.Apply({message(R"({"id":"a"})", true)}), ElementsAre(Outcome::kApplied));
    EXPECT_THAT(group.Rows("SELECT id FROM x.one"), IsEmpty());
    EXPECT_THAT(group.Rows("SELECT shelf, id FROM x.shelf"), ElementsAre("0|a")) << types;
    group.Apply({message(R"({"shelf":0,"id":"a"})", true)});
    EXPECT_THAT(group.Rows("SELECT shelf, id FROM x.shelf"), IsEmpty());
  }
}

// A table of what is published holds no row of what is not: that is a state as well.
TEST_F(SnapshotTest, MayRemoveTheRowOfATypeThatReplacesUnderACondition) {
  TestGroup some(
      "group: g\nsubscription: s\nprojections:\n"
      "  - {name: hard, table: x.hard, key: id, version: version, events: {Made: [\n"
      "     {when: {field: a, equals: shown}, replace: [a, b]}, {delete: true}]}}\n");
  some.db().Run(kTables);
  EXPECT_THAT(some.Apply({Snapshot(1, "shown")}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(some.Rows("SELECT a FROM x.hard"), ElementsAre("shown"));
  EXPECT_THAT(some.Apply({Snapshot(2, "hidden")}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(some.Rows("SELECT a FROM x.hard"), IsEmpty());
}

// Replaces rows through the batch, counts, or runs SQL, as it is told.
class Coded : public Projection {
 public:
  Coded(bool counts, bool writes, bool takes) : counts_(counts), writes_(writes), takes_(takes) {}
  std::string Name() const override { return "coded"; }
  bool Wants(const Event&) const override { return true; }
  bool TakesSnapshots() const override { return takes_; }
  bool Writes() const override { return writes_; }
  std::vector<CodeTable> Tables() const override {
    if (counts_) return {{.table = "x.count", .key = {"id"}, .columns = {"n"}}};
    return {{.table = "x.kept", .key = {"id"}, .columns = {"a"}, .version = "version"}};
  }
  absl::Status Map(const Event& event, RowSink& rows) const override {
    if (counts_) return rows.Increment(0, {event.aggregate.id}, {{"n", "1"}});
    return rows.Replace(0, {event.aggregate.id}, {{"a", "coded"}});
  }

 private:
  const bool counts_, writes_, takes_;
};

TEST(CodedSnapshot, IsRefusedByCodeThatDoesMoreThanReplace) {
  struct Case {
    bool counts, writes, takes, refused;
  };
  for (const Case& c : {Case{false, false, false, false}, Case{true, false, false, true},
                        Case{false, true, false, true}, Case{true, true, true, false}}) {
    LoadOptions options = TestGroup::DefaultOptions();
    options.code["g"].push_back(std::make_shared<Coded>(c.counts, c.writes, c.takes));
    TestGroup group("group: g\nsubscription: s\nundeclared_events: ignore\nprojections: []\n", "",
                    options);
    group.db().Run(kTables);
    const auto mapped = group.projector().Map(Snapshot(1, "x"));
    EXPECT_EQ(absl::IsFailedPrecondition(mapped.status()), c.refused) << mapped.status();
    EXPECT_TRUE(group.projector().Map(Thing("Made", 1)).ok());
    if (c.refused || c.counts) continue;
    group.Apply({Snapshot(3, "x")});
    EXPECT_THAT(group.Rows("SELECT a, version FROM x.kept"), ElementsAre("coded|3"));
    group.Apply({Ghost(3)});
    EXPECT_THAT(group.Rows("SELECT a FROM x.kept"), IsEmpty());
  }
}

}  // namespace
}  // namespace lockstep::projections
