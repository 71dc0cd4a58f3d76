#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "projections/testing/test_group.h"

// Writing: what one statement per table does to rows that are there, gone, newer or locked.
namespace lockstep::projections {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr char kHead[] = "group: g\nsubscription: s\nprojections:\n";
constexpr char kThing[] =
    "  - name: things\n    table: x.thing\n    key: id\n    version: version\n"
    "    updated_at: updated_at\n    events:\n"
    "      Made: {replace: [a, b, n]}\n"
    "      Changed: {merge: [a, b, n]}\n"
    "      Gone: delete\n";
constexpr char kSoft[] =
    "  - name: things\n    table: x.thing\n    key: id\n    version: version\n"
    "    updated_at: updated_at\n    deleted_at: deleted_at\n    events:\n"
    "      Made: {replace: [a, b, n]}\n"
    "      Changed: {merge: [a, b, n]}\n"
    "      Gone: delete\n";
constexpr char kCounts[] =
    "  - name: counts\n    table: x.count\n    key: kind\n    events:\n"
    "      Liked: {increment: {likes: {value: 1}, seconds: watched}}\n"
    "      Unliked: {increment: {likes: {value: -1}, seconds: {field: watched, negate: true}}}\n";
constexpr char kTables[] =
    "CREATE SCHEMA x;"
    "CREATE TABLE x.thing (id text PRIMARY KEY, a text, b text, n bigint, version bigint NOT NULL,"
    " updated_at timestamptz NOT NULL, deleted_at timestamptz);"
    "CREATE TABLE x.count (kind text PRIMARY KEY, likes bigint, seconds bigint)";

Event Thing(const std::string& type, int64_t version, const std::string& rest = "",
            const std::string& id = "one") {
  return MakeEvent(type, id, version, fmt::format(R"({{"id":"{}"{}}})", id, rest));
}
Event Count(const std::string& type, const std::string& kind, const std::string& watched = "0") {
  return MakeEvent(type, kind, 1, fmt::format(R"({{"kind":"{}","watched":{}}})", kind, watched));
}

class WriterTest : public ::testing::Test {
 protected:
  TestGroup& Group(const std::string& projections,
                   LoadOptions options = TestGroup::DefaultOptions()) {
    group_ = std::make_unique<TestGroup>(kHead + projections, "", std::move(options));
    group_->db().Run(kTables);
    return *group_;
  }
  std::vector<std::string> Things() {
    return group_->Rows(
        "SELECT id, a, b, n, version, deleted_at IS NOT NULL FROM x.thing ORDER BY 1");
  }

  std::unique_ptr<TestGroup> group_;
};

TEST_F(WriterTest, ALateUpdateCantBringADeletedRowBack) {
  TestGroup& group = Group(kThing);
  group.Apply({Thing("Made", 1, R"(,"a":"x")")});
  EXPECT_THAT(group.Apply({Thing("Gone", 4)}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Things(), IsEmpty());
  EXPECT_THAT(group.Apply({Thing("Made", 3, R"(,"a":"late")")}), ElementsAre(Outcome::kSuperseded));
  EXPECT_THAT(group.Apply({Thing("Made", 4, R"(,"a":"fork")")}), ElementsAre(Outcome::kConflict));
  EXPECT_THAT(Things(), IsEmpty());
  // After a delete a merge starts from nothing.
  EXPECT_THAT(group.Apply({Thing("Changed", 5, R"(,"b":"y")")}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Things(), ElementsAre("one|~|y|~|5|f"));
  EXPECT_THAT(group.Rows("SELECT row_key, version, deleted_at FROM lockstep_state.row_versions"),
              ElementsAre("one|5|~"));
}

TEST_F(WriterTest, ADeleteOfAnUnknownRowLeavesATombstone) {
  TestGroup& group = Group(kThing);
  EXPECT_THAT(group.Apply({Thing("Gone", 2)}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(group.Apply({Thing("Made", 1)}), ElementsAre(Outcome::kSuperseded));
  EXPECT_THAT(Things(), IsEmpty());
  // Tombstones belong to a generation: an emptied model starts without any.
  ApplyOptions next;
  next.generation = 1;
  EXPECT_THAT(group.Apply({Thing("Made", 1)}, next), ElementsAre(Outcome::kApplied));
}

TEST_F(WriterTest, ASoftDeleteKeepsTheRowAndAMergeAfterItStartsFromNothing) {
  TestGroup& group = Group(kSoft);
  group.Apply({Thing("Made", 1, R"(,"a":"x","n":1)")});
  group.Apply({Thing("Gone", 2)});
  EXPECT_THAT(Things(), ElementsAre("one|x|~|1|2|t"));
  group.Apply({Thing("Changed", 3, R"(,"b":"y")")});
  EXPECT_THAT(Things(), ElementsAre("one|~|y|~|3|f"));
  // Of a row that was never seen, too: a late older update must not look alive.
  group.Apply({Thing("Gone", 5, "", "two")});
  EXPECT_THAT(group.Apply({Thing("Made", 4, R"(,"a":"late")", "two")}),
              ElementsAre(Outcome::kSuperseded));
  EXPECT_THAT(Things(), ElementsAre("one|~|y|~|3|f", "two|~|~|~|5|t"));
}

TEST_F(WriterTest, TellsWhatBecameOfEachEventOfAPartlyStaleBatch) {
  TestGroup& group = Group(kSoft);
  group.Apply({Thing("Made", 5, R"(,"a":"five")")});
  // v4 is late, v5 a fork; their fields must not leak into what v6 writes.
  EXPECT_THAT(
      group.Apply({Thing("Changed", 4, R"(,"b":"stale")"), Thing("Changed", 5, R"(,"n":5)"),
                   Thing("Changed", 6, R"(,"a":"six")"),
                   Thing("Made", 1, R"(,"a":"other")", "two")}),
      ElementsAre(Outcome::kSuperseded, Outcome::kConflict, Outcome::kApplied, Outcome::kApplied));
  EXPECT_THAT(Things(), ElementsAre("one|six|~|~|6|f", "two|other|~|~|1|f"));
}

TEST_F(WriterTest, CountsEveryEventOnce) {
  TestGroup& group = Group(kCounts);
  group.Apply({Count("Liked", "a", "10"), Count("Liked", "b", "5"), Count("Liked", "a", "7"),
               Count("Unliked", "a", "3")});
  group.Apply({Count("Liked", "a", "9223372036854775000")});
  EXPECT_THAT(group.Rows("SELECT kind, likes, seconds FROM x.count ORDER BY 1"),
              ElementsAre("a|2|9223372036854775014", "b|1|5"));
  const auto overflow = group.TryApply({Count("Liked", "a", "9223372036854775000")});
  EXPECT_EQ(postgres::SqlState(overflow.status()), "22003");
}

TEST_F(WriterTest, FeedsSeveralTablesInOneTransaction) {
  TestGroup& group = Group(std::string(kSoft) +
                           "  - name: counts\n    table: x.count\n    key: {kind: {value: all}}\n"
                           "    events: {Made: {increment: {likes: {value: 1}}}}\n");
  EXPECT_THAT(group.Apply({Thing("Made", 1), Thing("Made", 1, "", "two"), Thing("Gone", 2)}),
              ElementsAre(Outcome::kApplied, Outcome::kApplied, Outcome::kApplied));
  EXPECT_THAT(group.Rows("SELECT * FROM x.count"), ElementsAre("all|2|~"));
  EXPECT_THAT(Things(), ElementsAre("one|~|~|~|2|t", "two|~|~|~|1|f"));
}

TEST_F(WriterTest, OverwritesTheStoredVersionOnSnapshotsAlone) {
  const std::string replace_only =
      "  - {name: things, table: x.thing, key: id, version: version, updated_at: updated_at, "
      "events: {Made: {replace: [a]}}}\n";
  TestGroup& group = Group(replace_only + kCounts);
  group.Apply({Thing("Made", 2, R"(,"a":"wrong")"), Count("Liked", "a")});
  ApplyOptions replay;
  replay.overwrite = true;
  replay.seen = {true, true, false};
  EXPECT_THAT(
      group.Apply({Thing("Made", 2, R"(,"a":"right")"), Count("Liked", "a"), Count("Liked", "a")},
                  replay),
      ElementsAre(Outcome::kApplied, Outcome::kSuperseded, Outcome::kApplied));
  EXPECT_THAT(group.Rows("SELECT a, version FROM x.thing"), ElementsAre("right|2"));
  EXPECT_THAT(group.Rows("SELECT likes FROM x.count"), ElementsAre("2"));
  replay.seen = {true};
  EXPECT_THAT(group.Apply({Thing("Made", 1, R"(,"a":"old")")}, replay),
              ElementsAre(Outcome::kSuperseded));
}

TEST_F(WriterTest, NeverMergesASeenEventAgain) {
  TestGroup& group = Group(kSoft);
  group.Apply({Thing("Made", 1, R"(,"a":"x")"), Thing("Changed", 2, R"(,"a":"y")")});
  ApplyOptions replay;
  replay.overwrite = true;
  replay.seen = {true};
  EXPECT_THAT(group.Apply({Thing("Changed", 2, R"(,"a":"z")")}, replay),
              ElementsAre(Outcome::kSuperseded));
  EXPECT_THAT(Things(), ElementsAre("one|y|~|~|2|f"));
}

TEST_F(WriterTest, MergesIntoNotNullColumnsOfRowsThatExist) {
  TestGroup& group = Group(kThing);
  group.db().Run("ALTER TABLE x.thing ALTER COLUMN a SET NOT NULL");
  group.Apply({Thing("Made", 1, R"(,"a":"x")")});
  EXPECT_THAT(group.Apply({Thing("Changed", 2, R"(,"b":"y")")}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Things(), ElementsAre("one|x|y|~|2|f"));
  // Of a row that does not exist it is data that the table will never take.
  const auto refused = group.TryApply({Thing("Changed", 1, R"(,"b":"y")", "two")});
  EXPECT_EQ(postgres::SqlState(refused.status()), "23502");
  EXPECT_EQ(postgres::Classify(refused.status()), postgres::ErrorClass::kData);
}

TEST_F(WriterTest, CallsBadValuesDataAndMissingTablesConfiguration) {
  TestGroup& group = Group(kThing);
  EXPECT_EQ(postgres::SqlState(group.TryApply({Thing("Made", 1, R"(,"n":"seven")")}).status()),
            "22P02");
  EXPECT_EQ(postgres::SqlState(
                group.TryApply({Thing("Made", 1, R"(,"n":99999999999999999999)")}).status()),
            "22003");
  group.db().Run("ALTER TABLE x.thing ADD CHECK (n > 0)");
  EXPECT_EQ(postgres::SqlState(group.TryApply({Thing("Made", 1, R"(,"n":0)")}).status()), "23514");
  group.db().Run("ALTER TABLE x.thing RENAME TO elsewhere");
  const auto missing = group.TryApply({Thing("Made", 1)});
  EXPECT_EQ(postgres::Classify(missing.status()), postgres::ErrorClass::kConfiguration);
  // Cured without a restart.
  group.db().Run("ALTER TABLE x.elsewhere RENAME TO thing");
  EXPECT_THAT(group.Apply({Thing("Made", 1, R"(,"n":1)")}), ElementsAre(Outcome::kApplied));
}

TEST_F(WriterTest, CutsNothingToAColumnsLength) {
  TestGroup& group = Group(kThing);
  group.db().Run("ALTER TABLE x.thing ALTER COLUMN a TYPE varchar(3), ALTER COLUMN b TYPE char(3)");
  EXPECT_EQ(postgres::SqlState(group.TryApply({Thing("Made", 1, R"(,"a":"four")")}).status()),
            "22001");
  EXPECT_EQ(postgres::SqlState(group.TryApply({Thing("Made", 1, R"(,"b":"four")")}).status()),
            "22001");
}

TEST_F(WriterTest, FillsDefaultsOfColumnsThatAreAbsent) {
  TestGroup& group = Group(kSoft);
  group.db().Run("ALTER TABLE x.thing ALTER COLUMN a SET DEFAULT 'none'");
  group.Apply({Thing("Changed", 1, R"(,"b":"x")"), Thing("Made", 1, R"(,"a":null)", "two")});
  EXPECT_THAT(Things(), ElementsAre("one|none|x|~|1|f", "two|~|~|~|1|f"));
}

TEST_F(WriterTest, WritesAShadowSlotBesideTheLiveTable) {
  LoadOptions options = TestGroup::DefaultOptions();
  options.table_suffix = "__next";
  TestGroup& group = Group(kSoft, options);
  group.db().Run("CREATE TABLE x.thing__next (LIKE x.thing INCLUDING ALL)");
  group.Apply({Thing("Made", 1, R"(,"a":"x")")});
  EXPECT_THAT(Things(), IsEmpty());
  EXPECT_THAT(group.Rows("SELECT id, a FROM x.thing__next"), ElementsAre("one|x"));
}

TEST_F(WriterTest, QuotesNamesThatNeedIt) {
  TestGroup& group = Group(
      "  - name: it's\n    table: '\"My Schema\".\"my\"\"table\"'\n    key: {\"the key\": id}\n"
      "    version: \"Version\"\n    events: {Made: {replace: {\"a b\": a}}, Gone: delete, "
      "Changed: {merge: {\"a b\": a}}}\n");
  group.db().Run(
      "CREATE SCHEMA \"My Schema\"; CREATE TABLE \"My Schema\".\"my\"\"table\" (\"the key\" text "
      "PRIMARY KEY, \"a b\" text, \"Version\" bigint NOT NULL)");
  EXPECT_TRUE(group.Check().ok()) << group.Check();
  group.Apply({Thing("Made", 1, R"(,"a":"x")"), Thing("Changed", 2, R"(,"a":"y")")});
  EXPECT_THAT(group.Rows("TABLE \"My Schema\".\"my\"\"table\""), ElementsAre("one|y|2"));
  group.Apply({Thing("Gone", 3)});
  EXPECT_THAT(group.Rows("TABLE \"My Schema\".\"my\"\"table\""), IsEmpty());
}

// Applies on a connection of its own and commits when told.
class Lane {
 public:
  Lane(TestGroup& group, Event event)
      : connection_(group.db().Connect()), transaction_(*connection_->Begin()) {
    change_ = *group.projector().Map(event);
  }
  absl::StatusOr<std::vector<Outcome>> Apply(TestGroup& group) {
    return group.projector().Apply(transaction_, {change_.get()}, {});
  }
  void Commit() { EXPECT_TRUE(transaction_.Commit().ok()); }
  int pid() const { return connection_->backend_pid(); }

 private:
  std::unique_ptr<postgres::Connection> connection_;
  postgres::Transaction transaction_;
  std::unique_ptr<Change> change_;
};

// Two instances meet on a row: the second waits for the first and decides by what it left behind.
std::vector<Outcome> Meet(TestGroup& group, const Event& first, const Event& second) {
  Lane a(group, first);
  Lane b(group, second);
  EXPECT_TRUE(a.Apply(group).ok());
  absl::StatusOr<std::vector<Outcome>> outcome = std::vector<Outcome>();
  std::thread waiter([&] {
    outcome = b.Apply(group);
    b.Commit();
  });
  while (group.db().QueryInt("SELECT cardinality(pg_blocking_pids($1))",
                             postgres::Params(b.pid())) == 0) {
    std::this_thread::yield();
  }
  a.Commit();
  waiter.join();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *outcome : std::vector<Outcome>();
}

TEST_F(WriterTest, AMergeThatWaitedKeepsWhatTheOtherWrote) {
  TestGroup& group = Group(kSoft);
  group.Apply({Thing("Made", 1, R"(,"a":"x","b":"x")")});
  EXPECT_THAT(
      Meet(group, Thing("Changed", 2, R"(,"a":"two")"), Thing("Changed", 3, R"(,"b":"three")")),
      ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Things(), ElementsAre("one|two|three|~|3|f"));
}

TEST_F(WriterTest, AMergeThatWaitedForAnInsertKeepsWhatItWrote) {
  TestGroup& group = Group(kSoft);
  EXPECT_THAT(Meet(group, Thing("Made", 1, R"(,"a":"one")"), Thing("Changed", 2, R"(,"b":"two")")),
              ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Things(), ElementsAre("one|one|two|~|2|f"));
}

TEST_F(WriterTest, AnOlderEventThatWaitedIsSuperseded) {
  TestGroup& group = Group(kSoft);
  EXPECT_THAT(Meet(group, Thing("Made", 2, R"(,"a":"two")"), Thing("Made", 1, R"(,"a":"one")")),
              ElementsAre(Outcome::kSuperseded));
  EXPECT_THAT(Things(), ElementsAre("one|two|~|~|2|f"));
}

TEST_F(WriterTest, AnOlderUpdateThatWaitedForAHardDeleteStaysOut) {
  TestGroup& group = Group(kThing);
  EXPECT_THAT(Meet(group, Thing("Gone", 2), Thing("Made", 1, R"(,"a":"one")")),
              ElementsAre(Outcome::kSuperseded));
  EXPECT_THAT(Things(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::projections
