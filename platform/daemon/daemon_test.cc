#include "platform/daemon/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <vector>

#include "platform/status.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

class FakeDaemon : public Daemon {
 public:
  void Bind(ConfigSection& config) override {
    config.Key("port", &port, "");
    config.Followed().Key("rows", &rows, "");
  }
  absl::Status Validate() const override { return valid; }
  log::Options LogOptions() const override { return {.level = log::Level::kError}; }
  absl::Status Start(const Beginning& beginning) override {
    Note(beginning.once ? "start once" : "start");
    if (on_start) on_start();
    return started;
  }
  absl::Status RunOnce(const std::stop_token&) override {
    Note("run");
    return on_once ? on_once() : absl::OkStatus();
  }
  void Reload(const RunningConfig&) override { Note("reload"); }
  void Stop() override {
    Note("stop");
    if (on_stop) on_stop();
  }
  Millis StopWithin(const absl::Status&) const override { return stop_within; }

  void Note(const std::string& what) {
    const std::scoped_lock lock(mu_);
    calls.push_back(what);
    changed_.notify_all();
  }
  void Await(const std::string& what) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return calls.back() == what; });  // or ctest ends it
  }

  int Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "p");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return RunDaemon(static_cast<int>(argv.size()), argv.data(),
                     {.program = "p", .summary = "s", .once = "once", .reloads = reloads}, *this);
  }

  int port = 0;
  int rows = 0;
  bool reloads = true;
  absl::Status valid;
  absl::Status started;
  std::function<void()> on_start;
  std::function<absl::Status()> on_once;
  std::function<void()> on_stop;
  Millis stop_within{60'000};
  std::vector<std::string> calls;

 private:
  std::mutex mu_;
  std::condition_variable changed_;
};

TEST(Daemon, RunsUntilItIsTold) {
  FakeDaemon daemon;
  daemon.on_start = [] { kill(getpid(), SIGTERM); };
  EXPECT_EQ(daemon.Run({"--port", "7"}), 0);
  EXPECT_EQ(daemon.port, 7);
  EXPECT_THAT(daemon.calls, ElementsAre("start", "stop"));
}

TEST(Daemon, ReadsItsConfigurationAgainWhileItRuns) {
  FakeDaemon daemon;
  daemon.on_once = [&] {
    kill(getpid(), SIGHUP);
    daemon.Await("reload");
    return absl::OkStatus();
  };
  EXPECT_EQ(daemon.Run({"--once"}), 0);
  EXPECT_THAT(daemon.calls, ElementsAre("start once", "run", "reload", "stop"));
}

TEST(Daemon, SaysByItsExitCodeHowFarItCame) {
  FakeDaemon unknown;
  EXPECT_EQ(unknown.Run({"--prot", "7"}), 2);
  EXPECT_THAT(unknown.calls, ElementsAre());
  FakeDaemon invalid;
  invalid.valid = InvalidArgument("no");
  EXPECT_EQ(invalid.Run({}), 2);
  EXPECT_THAT(invalid.calls, ElementsAre());
  FakeDaemon unable;
  unable.started = Unavailable("no");
  EXPECT_EQ(unable.Run({}), 1);
  EXPECT_THAT(unable.calls, ElementsAre("start"));
  FakeDaemon stuck;
  stuck.on_once = [] { return Unavailable("no"); };
  EXPECT_EQ(stuck.Run({"--once"}), 1);
  EXPECT_THAT(stuck.calls, ElementsAre("start once", "run", "stop"));
}

TEST(DaemonDeathTest, AStopThatHangsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  FakeDaemon daemon;
  daemon.stop_within = Millis(1);
  daemon.on_stop = [] { pause(); };
  EXPECT_EXIT(daemon.Run({"--once"}), ::testing::ExitedWithCode(3), "it will come again");
}

TEST(DaemonDeathTest, ASignalEndsAStartOrARunThatHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    kill(getpid(), SIGTERM);
    while (true) pause();
  };
  FakeDaemon start;
  start.stop_within = Millis(1);
  start.on_start = hang;
  EXPECT_EXIT(start.Run({}), ::testing::ExitedWithCode(3), "it will come again");
  FakeDaemon run;
  run.stop_within = Millis(1);
  run.on_once = [&] { return hang(), absl::OkStatus(); };
  EXPECT_EXIT(run.Run({"--once"}), ::testing::ExitedWithCode(3), "it will come again");
}

}  // namespace
}  // namespace lockstep
