#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "projections/testing/test_group.h"

// Rows that remember their aggregate: what another aggregate's event does to them is nothing.
namespace lockstep::projections {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Yaml(const std::string& more) {
  return "group: g\nsubscription: s\nprojections:\n"
         "  - name: things\n    table: x.thing\n    key: id\n    version: version\n"
         "    aggregate: owner\n" +
         more +
         "    events:\n      Made: {replace: [a]}\n      Changed: {merge: [a]}\n      Gone: "
         "delete\n";
}

Event Thing(const std::string& type, const std::string& aggregate, int64_t version,
            const std::string& a) {
  return MakeEvent(type, aggregate, version, fmt::format(R"({{"id":"1","a":"{}"}})", a));
}

Event Ghost(const std::string& aggregate, int64_t version) {
  Event event = Thing("Made", aggregate, version, "");
  event.kind = envelope::EventKind::kSnapshot;
  event.overwrite = event.absent = true;
  return event;
}

constexpr char kThings[] =
    "CREATE SCHEMA x; CREATE TABLE x.thing (id text PRIMARY KEY, a text, owner text,"
    " version bigint NOT NULL, deleted_at timestamptz)";

// Soft and hard deletes keep the owner in different places.
class OwnerTest : public ::testing::TestWithParam<bool> {
 protected:
  OwnerTest() : group_(Yaml(GetParam() ? "    deleted_at: deleted_at\n" : "")) {
    group_.db().Run(kThings);
  }
  std::vector<std::string> Rows() {
    return group_.Rows("SELECT id, a, version, owner FROM x.thing WHERE deleted_at IS NULL");
  }

  TestGroup group_;
};

TEST_P(OwnerTest, RefusesTheEventOfAnotherAggregate) {
  EXPECT_THAT(group_.Apply({Thing("Made", "one", 3, "x")}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(group_.Apply({Thing("Made", "two", 4, "y"), Thing("Made", "two", 1, "y"),
                            Thing("Gone", "two", 9, "")}),
              ElementsAre(Outcome::kForeign, Outcome::kForeign, Outcome::kForeign));
  EXPECT_THAT(Rows(), ElementsAre("1|x|3|video/one"));
  EXPECT_THAT(group_.Apply({Thing("Changed", "one", 4, "z")}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Rows(), ElementsAre("1|z|4|video/one"));
}

TEST_P(OwnerTest, TellsThemApartWithinABatch) {
  EXPECT_THAT(
      group_.Apply({Thing("Made", "one", 5, "x"), Thing("Made", "two", 1, "y"),
                    Thing("Changed", "one", 6, "z"), Thing("Changed", "two", 7, "y")}),
      ElementsAre(Outcome::kApplied, Outcome::kForeign, Outcome::kApplied, Outcome::kForeign));
  EXPECT_THAT(Rows(), ElementsAre("1|z|6|video/one"));
  // The stranger comes first, and the row is not its own.
  EXPECT_THAT(group_.Apply({Thing("Made", "two", 1, "y"), Thing("Changed", "one", 7, "w")}),
              ElementsAre(Outcome::kForeign, Outcome::kApplied));
  EXPECT_THAT(Rows(), ElementsAre("1|w|7|video/one"));
}

TEST_P(OwnerTest, TellsTenantsApart) {
  Event mine = Thing("Made", "one", 1, "x");
  Event theirs = Thing("Made", "one", 2, "y");
  mine.aggregate.tenant_id = "a";
  theirs.aggregate.tenant_id = "b";
  EXPECT_THAT(group_.Apply({mine}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(group_.Apply({theirs}), ElementsAre(Outcome::kForeign));
}

TEST_P(OwnerTest, RemembersTheOwnerOfADeletedRow) {
  group_.Apply({Thing("Made", "one", 1, "x"), Thing("Gone", "one", 2, "")});
  EXPECT_THAT(group_.Apply({Thing("Made", "two", 3, "y")}), ElementsAre(Outcome::kForeign));
  EXPECT_THAT(group_.Apply({Thing("Made", "one", 3, "z")}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Rows(), ElementsAre("1|z|3|video/one"));
}

TEST_P(OwnerTest, AdoptsARowThatHasNone) {
  group_.Apply({Thing("Made", "one", 1, "x")});
  group_.db().Run(
      "UPDATE x.thing SET owner = NULL; UPDATE lockstep_state.row_versions SET"
      " aggregate = NULL");
  EXPECT_THAT(group_.Apply({Thing("Changed", "one", 2, "y")}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Rows(), ElementsAre("1|y|2|video/one"));
}

TEST_P(OwnerTest, AGhostOfAnotherAggregateTakesNothingAway) {
  group_.Apply({Thing("Made", "one", 3, "x")});
  EXPECT_THAT(group_.Apply({Ghost("two", 9)}), ElementsAre(Outcome::kForeign));
  EXPECT_THAT(Rows(), ElementsAre("1|x|3|video/one"));
  EXPECT_THAT(group_.Apply({Thing("Changed", "one", 3, "fork")}), ElementsAre(Outcome::kConflict))
      << "its version is known as before";
  EXPECT_THAT(group_.Apply({Ghost("two", 9), Ghost("one", 3)}),
              ElementsAre(::testing::_, Outcome::kApplied));
  EXPECT_THAT(Rows(), IsEmpty());
}

TEST(OwnerOfKeptRows, AGhostOfAnotherAggregateTakesNothingAway) {
  std::string yaml = Yaml("");
  yaml.erase(yaml.find("      Gone:"));
  TestGroup group(yaml);
  group.db().Run(kThings);
  group.Apply({Thing("Made", "one", 3, "x")});
  EXPECT_THAT(group.Apply({Ghost("two", 9)}), ElementsAre(Outcome::kForeign));
  EXPECT_THAT(group.Rows("SELECT a, owner FROM x.thing"), ElementsAre("x|video/one"));
  EXPECT_THAT(group.Apply({Ghost("one", 3)}), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(group.Rows("SELECT a FROM x.thing"), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Deletes, OwnerTest, ::testing::Bool(),
                         [](const auto& deletes) { return deletes.param ? "Soft" : "Hard"; });

}  // namespace
}  // namespace lockstep::projections
