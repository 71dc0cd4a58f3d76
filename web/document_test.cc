#include "web/document.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::web {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr WallTime kStart{seconds(1'000'000)};

TEST(Document, TheConfigurationIsTheOneThatRunsAndNamesWhatWaitsForARestart) {
  const RunningConfig config{.keys = {{.path = "max_batch", .default_value = "500", .value = "7"},
                                      {.path = "lanes", .default_value = "4", .value = "4"}},
                             .after_restart = {{"lanes", "3"}, {"groups.b.lanes", "2"}}};
  const json shown = ConfigJson(config);
  ASSERT_EQ(shown.size(), 3U);
  EXPECT_EQ(shown[0]["value"], "7");
  EXPECT_EQ(shown[0]["after_restart"], nullptr);
  EXPECT_EQ(shown[1]["value"], "4");
  EXPECT_EQ(shown[1]["after_restart"], "3");
  EXPECT_EQ(shown[2]["key"], "groups.b.lanes");
}

TEST(DatabaseReading, ADatabaseThatDoesNotAnswerIsOutOfReachWithoutAnError) {
  DatabaseReading reading("postgresql://u@h/d", kStart);
  EXPECT_EQ(reading.ToJson(kStart + seconds(5))["reachable"], true) << "it has only begun";
  reading.Done("", kStart + seconds(6));
  EXPECT_EQ(reading.ToJson(kStart + seconds(20))["reachable"], true);
  EXPECT_EQ(reading.ToJson(kStart + seconds(22))["reachable"], false);
  EXPECT_EQ(reading.ToJson(kStart + seconds(22))["error"], "It does not answer.");
  reading.Done("refused", kStart + seconds(23));
  EXPECT_EQ(reading.ToJson(kStart + seconds(23))["error"], "refused");
  EXPECT_EQ(reading.good_since(), WallTime());
}

TEST(DatabaseReading, ARoundThatWasNotNeededKeepsItFresh) {
  DatabaseReading reading("a", kStart);
  reading.Done("", kStart);
  reading.Skipped(kStart + seconds(50));
  EXPECT_EQ(reading.ToJson(kStart + seconds(51))["reachable"], true);
  EXPECT_EQ(reading.good_since(), kStart);
}

}  // namespace
}  // namespace lockstep::web
