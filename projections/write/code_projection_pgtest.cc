#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "projections/model/projection.h"
#include "projections/testing/test_group.h"

// Projections in C++, beside declared ones.
namespace lockstep::projections {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kYaml[] =
    "group: g\nsubscription: s\nundeclared_events: ignore\nprojections:\n"
    "  - {name: things, table: x.thing, key: id, version: version, events: {Made: {replace: "
    "[a]}}}\n";
constexpr char kTables[] =
    "CREATE SCHEMA x;"
    "CREATE TABLE x.thing (id text PRIMARY KEY, a text, version bigint NOT NULL);"
    "CREATE TABLE x.initial (letter text PRIMARY KEY, n bigint NOT NULL);"
    "CREATE TABLE x.log (at serial, line text)";

// Counts initials through the batch, and logs with SQL of its own.
class Initials : public Projection {
 public:
  std::string Name() const override { return "initials"; }
  bool Wants(const Event& event) const override { return event.event_type == "Made"; }
  std::vector<CodeTable> Tables() const override {
    return {{.table = "x.initial", .key = {"letter"}, .columns = {"n"}}};
  }
  absl::Status Map(const Event& event, RowSink& rows) const override {
    if (event.aggregate.id == "throws") throw std::runtime_error("no such letter");
    return rows.Increment(0, {event.aggregate.id.substr(0, 1)}, {{"n", "1"}});
  }
  bool ParksOnGap(const Event& event) const override {
    if (event.aggregate.id == "throws") throw std::runtime_error("no such letter");
    return false;
  }
  std::vector<std::string> OwnTables() const override { return {"x.log"}; }
  bool Writes() const override { return true; }
  absl::Status Write(postgres::Transaction& transaction, std::span<const Event* const> events,
                     const std::string& suffix) const override {
    for (const Event* event : events) {
      if (event->aggregate.id == "bursts") throw 7;
      RETURN_IF_ERROR(
          transaction
              .Execute("INSERT INTO x.log" + suffix + " (line) VALUES ($1)", event->aggregate.id)
              .status());
    }
    return absl::OkStatus();
  }
};

Event Made(const std::string& id, int64_t version = 1) {
  return MakeEvent("Made", id, version, fmt::format(R"({{"id":"{}","a":"x"}})", id));
}

class CodeProjectionTest : public ::testing::Test {
 protected:
  CodeProjectionTest() { group_.db().Run(kTables); }
  static LoadOptions Options() {
    LoadOptions options = TestGroup::DefaultOptions();
    options.code["g"].push_back(std::make_shared<Initials>());
    return options;
  }
  TestGroup group_{kYaml, "", Options()};
};

TEST_F(CodeProjectionTest, WritesRowsAndRunsSqlInTheSameTransaction) {
  EXPECT_THAT(group_.projector().Tables(), ElementsAre("x.thing", "x.initial", "x.log"));
  EXPECT_TRUE(group_.Check().ok()) << group_.Check();
  EXPECT_THAT(group_.Apply({Made("ant"), Made("ape"), Made("bee")}),
              ElementsAre(Outcome::kApplied, Outcome::kApplied, Outcome::kApplied));
  EXPECT_THAT(group_.Rows("SELECT letter, n FROM x.initial ORDER BY 1"), ElementsAre("a|2", "b|1"));
  EXPECT_THAT(group_.Rows("SELECT line FROM x.log ORDER BY at"), ElementsAre("ant", "ape", "bee"));
  EXPECT_THAT(group_.Rows("SELECT count(*) FROM x.thing"), ElementsAre("3"));
}

TEST_F(CodeProjectionTest, FencesWhatItThrows) {
  const auto mapped = group_.projector().Map(Made("throws"));
  EXPECT_THAT(std::string(MessageOf(mapped.status())),
              HasSubstr("projection initials threw: no such letter"));
  EXPECT_FALSE(group_.projector().ParksOnGap(Made("ant")));
  EXPECT_TRUE(group_.projector().ParksOnGap(Made("throws")));  // and so keeps its place
  const auto written = group_.TryApply({Made("ant"), Made("bursts")});
  EXPECT_EQ(postgres::Classify(written.status()), postgres::ErrorClass::kData);
  EXPECT_THAT(group_.Rows("SELECT count(*) FROM x.thing"), ElementsAre("0"));
}

TEST_F(CodeProjectionTest, IsNotShownASeenEventAgain) {
  group_.Apply({Made("ant")});
  ApplyOptions replay;
  replay.overwrite = true;
  replay.seen = {true};
  group_.Apply({Made("ant")}, replay);
  EXPECT_THAT(group_.Rows("SELECT letter, n FROM x.initial"), ElementsAre("a|1"));
  EXPECT_THAT(group_.Rows("SELECT line FROM x.log"), ElementsAre("ant"));
}

}  // namespace
}  // namespace lockstep::projections
