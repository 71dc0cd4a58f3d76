#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "platform/daemon/daemon.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;

TEST(RunningConfig, TellsWhatCanBeFollowedFromWhatNeedsARestart) {
  RunningConfig config{.keys = {{.path = "groups.0.max_batch", .value = "500"},
                                {.path = "groups.0.lanes", .value = "4"},
                                {.path = "log.level", .value = "info"},
                                {.path = "groups.1.lanes", .value = "4"}}};
  const std::vector<ConfigKey> fresh = {
      {.path = "groups.0.max_batch", .value = "100", .followed = true},
      {.path = "groups.0.lanes", .value = "8"},
      {.path = "log.level", .value = "info", .followed = true},
      {.path = "instance", .value = "a"}};
  log::Configure({});
  ::testing::internal::CaptureStderr();
  config.Follow(fresh);
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told,
              HasSubstr("followed from the next round on\" key=groups.0.max_batch value=100"));
  EXPECT_THAT(told, HasSubstr("this needs a restart\" key=groups.0.lanes value=8"));
  EXPECT_THAT(told, Not(HasSubstr("key=log.level")));
  EXPECT_EQ(config.keys[0].value, "100");
  EXPECT_THAT(config.after_restart,
              ElementsAre(std::pair("groups.0.lanes", "8"), std::pair("groups.1.lanes", ""),
                          std::pair("instance", "a")));
}

TEST(RunningConfig, FollowsWhatItCanAndKeepsTheRestUntilARestart) {
  RunningConfig config{
      .keys = {{.path = "max_batch", .value = "500"}, {.path = "lanes", .value = "4"}}};
  const std::vector<ConfigKey> file = {{.path = "max_batch", .value = "7", .followed = true},
                                       {.path = "lanes", .value = "3"}};
  config.Follow(file);
  EXPECT_EQ(config.keys[0].value, "7");
  EXPECT_EQ(config.keys[1].value, "4");
  EXPECT_THAT(config.after_restart, ElementsAre(std::pair("lanes", "3")));
  config.Follow(file);
  EXPECT_THAT(config.after_restart, ElementsAre(std::pair("lanes", "3")))
      << "named again until it is done";
  config.Follow(
      {{.path = "max_batch", .value = "7", .followed = true}, {.path = "lanes", .value = "4"}});
  EXPECT_THAT(config.after_restart, IsEmpty()) << "the file has gone back";
}

// Two files of one name in two folders.
TEST(RunningConfig, TellsItemsOfOneLabelApart) {
  const std::string file = ::testing::TempDir() + "/reload_" + std::to_string(::getpid()) + ".yaml";
  const auto read = [&](const std::string& lanes) {
    std::ofstream(file) << "groups: [{file: a/feed.yaml, lanes: 1}, {file: b/feed.yaml, lanes: "
                        << lanes << "}]";
    std::vector<ConfigKey> keys;
    const absl::Status done = Config::Read(
        {.file = file},
        [](ConfigSection& config) {
          config.List("groups", "file", [](ConfigSection& item) {
            std::string name;
            int number = 0;
            item.Key("file", &name, "");
            item.Followed().Key("lanes", &number, "");
          });
        },
        &keys);
    EXPECT_TRUE(done.ok()) << done;
    std::remove(file.c_str());
    return keys;
  };
  RunningConfig config{.keys = read("2")};
  log::Configure({});
  ::testing::internal::CaptureStderr();
  config.Follow(read("2"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("nothing changed"));
  ::testing::internal::CaptureStderr();
  config.Follow(read("3"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("key=groups.1.lanes value=3"));
  EXPECT_THAT(config.after_restart, IsEmpty());
}

TEST(RunningConfig, FollowsWhatWasBoundSo) {
  int rows = 1;
  double factor = 2;
  const auto bind = [&](ConfigSection& config) {
    config.Key("shards", &rows, "");
    config.Followed().Key("rows", &rows, "");
    config.Followed().Section("retry",
                              [&](ConfigSection& retry) { retry.Key("factor", &factor, ""); });
    config.Key("lanes", &rows, "");
  };
  RunningConfig config;
  config.Follow(Config::Describe(bind));
  EXPECT_THAT(config.after_restart, ElementsAre(Key("lanes"), Key("shards")))
      << "and neither rows nor retry.factor";
}

}  // namespace
}  // namespace lockstep
