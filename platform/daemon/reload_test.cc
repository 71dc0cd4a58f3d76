#include "platform/daemon/reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Paths(const std::vector<ConfigKey>& keys) {
  std::vector<std::string> paths;
  for (const ConfigKey& key : keys) paths.push_back(key.path);
  return paths;
}

TEST(PlanReload, TellsWhatCanBeFollowedFromWhatNeedsARestart) {
  const std::vector<ConfigKey> running = {{.path = "groups.0.max_batch", .value = "500"},
                                          {.path = "groups.0.lanes", .value = "4"},
                                          {.path = "log.level", .value = "info"},
                                          {.path = "groups.1.lanes", .value = "4"}};
  const std::vector<ConfigKey> fresh = {
      {.path = "groups.0.max_batch", .value = "100", .followed = true},
      {.path = "groups.0.lanes", .value = "8"},
      {.path = "log.level", .value = "info", .followed = true},
      {.path = "instance", .value = "a"}};
  const ReloadPlan plan = PlanReload(running, fresh);
  EXPECT_THAT(Paths(plan.follow), ElementsAre("groups.0.max_batch"));
  EXPECT_THAT(Paths(plan.restart), ElementsAre("groups.0.lanes", "instance", "groups.1.lanes"));
}

TEST(RunningConfig, FollowsWhatItCanAndKeepsTheRestUntilARestart) {
  RunningConfig config{
      .keys = {{.path = "max_batch", .value = "500"}, {.path = "lanes", .value = "4"}}};
  const std::vector<ConfigKey> file = {{.path = "max_batch", .value = "7", .followed = true},
                                       {.path = "lanes", .value = "3"}};
  config.Follow(PlanReload(config.keys, file));
  EXPECT_EQ(config.keys[0].value, "7");
  EXPECT_EQ(config.keys[1].value, "4");
  EXPECT_THAT(config.after_restart, ElementsAre(std::pair("lanes", "3")));
  EXPECT_THAT(Paths(PlanReload(config.keys, file).restart), ElementsAre("lanes"))
      << "named again until it is done";
  config.Follow(PlanReload(config.keys, {{.path = "max_batch", .value = "7", .followed = true},
                                         {.path = "lanes", .value = "4"}}));
  EXPECT_THAT(config.after_restart, IsEmpty()) << "the file has gone back";
}

TEST(PlanReload, FollowsWhatWasBoundSo) {
  int rows = 1;
  double factor = 2;
  const auto bind = [&](ConfigSection& config) {
    config.Key("shards", &rows, "");
    config.Followed().Key("rows", &rows, "");
    config.Followed().Section("retry",
                              [&](ConfigSection& retry) { retry.Key("factor", &factor, ""); });
    config.Key("lanes", &rows, "");
  };
  EXPECT_THAT(Paths(PlanReload({}, Config::Describe(bind)).follow),
              ElementsAre("rows", "retry.factor"));
}

}  // namespace
}  // namespace lockstep
