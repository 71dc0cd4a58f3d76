#include "web/saga_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "web/attention.h"

namespace lockstep::web {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Orchestrator() {
  return {{"role", "orchestrator"},
          {"ctl", "lockstepctl --database 'postgresql://o@h/shop'"},
          {"database", {{"reachable", true}, {"address", "postgresql://o@h/shop"}}},
          {"sagas", {{{"definition", "order"}, {"running", 3}, {"paused", 0}, {"dead", 0}}}},
          {"waiting", json::array()}};
}

json Saga(const std::string& id, bool dead) {
  return {{"id", id},         {"definition", "order"}, {"state", dead ? "Failed" : "Paused"},
          {"dead", dead},     {"reason", ""},          {"error", ""},
          {"error_code", ""}, {"failed_step", ""},     {"in_doubt", json::array()}};
}

std::vector<std::string> TitlesOf(const json& document) {
  std::vector<std::string> titles;
  for (const json& note : Attention(document)) titles.push_back(note["title"]);
  return titles;
}

std::vector<std::string> Commands(const json& note) {
  std::vector<std::string> commands;
  for (const json& step : note["commands"]) commands.push_back(step["command"]);
  return commands;
}

TEST(SagaNotes, SaysNothingOfSagasThatRun) { EXPECT_THAT(TitlesOf(Orchestrator()), IsEmpty()); }

TEST(SagaNotes, ADeadSagaIsToldWithItsErrorAndWhatCanBeDone) {
  json document = Orchestrator();
  document["sagas"][0]["dead"] = 1;
  document["waiting"] = {Saga("s1", true)};
  document["waiting"][0].update(
      {{"failed_step", "charge"}, {"error_code", "HTTP.REFUSED"}, {"error", "answered 403"}});
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0]["title"], "Saga s1 of order is dead");
  EXPECT_THAT(notes[0]["detail"].get<std::string>(),
              HasSubstr("Step charge: HTTP.REFUSED answered 403."));
  const std::string ctl = "lockstepctl --database 'postgresql://o@h/shop' saga dead ";
  EXPECT_THAT(Commands(notes[0]),
              ElementsAre(ctl + "inspect 's1'",
                          ctl + "replay 's1' --from-failed-step --reason 'what was mended'",
                          ctl + "replay 's1' --into-compensation --reason 'why it is undone'",
                          ctl + "quarantine 's1' --reason 'why it is left'"));
}

TEST(SagaNotes, APausedOneSaysWhatItWaitsFor) {
  json document = Orchestrator();
  document["sagas"][0]["paused"] = 2;
  document["waiting"] = {Saga("s1", false), Saga("s2", false)};
  document["waiting"][0].update({{"reason", "step charge is in doubt"}, {"in_doubt", {"charge"}}});
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0]["detail"], "step charge is in doubt.");
  EXPECT_THAT(Commands(notes[0]),
              ElementsAre(HasSubstr("saga show 's1'"), HasSubstr("signal 's1' 'charge' succeeded"),
                          HasSubstr("signal 's1' 'charge' failed"),
                          HasSubstr("retry 's1' 'charge' --reason")));
  EXPECT_EQ(notes[1]["severity"], "info");
  EXPECT_THAT(Commands(notes[1]), ElementsAre(HasSubstr("show"), HasSubstr("resume 's2'")));
}

TEST(SagaNotes, OfManyTheRestIsCounted) {
  json document = Orchestrator();
  document["sagas"][0].update({{"dead", 8}, {"paused", 1}});
  for (int i = 0; i < 7; ++i) document["waiting"].push_back(Saga(std::to_string(i), true));
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0]["title"], "8 sagas of order are dead");
  EXPECT_EQ(notes[0]["notes"].size(), 5U);
  EXPECT_THAT(Commands(notes[0]), ElementsAre(HasSubstr("saga dead list --definition 'order'")));
  EXPECT_EQ(notes[1]["title"], "A saga of order is paused");
}

TEST(SagaNotes, ALostDatabaseIsOneNoteAndNamesNoOutbox) {
  json document = Orchestrator();
  document["database"].update({{"reachable", false}, {"error", "refused"}});
  document["reasons"] = {"database: refused"};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0]["detail"].get<std::string>(), HasSubstr("sagas go on by themselves"));
}

}  // namespace
}  // namespace lockstep::web
