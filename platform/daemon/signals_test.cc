#include "platform/daemon/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "platform/log/log.h"

namespace lockstep {
namespace {

void AwaitLevel(log::Level level) {
  while (log::CurrentLevel() != level) std::this_thread::yield();  // or ctest ends it
}

TEST(Signals, Usr1SwitchesDebugLoggingOnAndOffAgain) {
  log::Configure({});
  Signals signals;
  kill(getpid(), SIGUSR1);
  AwaitLevel(log::Level::kDebug);
  kill(getpid(), SIGUSR1);
  AwaitLevel(log::Level::kInfo);
}

TEST(Signals, TermAsksToStop) {
  Signals signals;
  EXPECT_FALSE(signals.stop_token().stop_requested());
  kill(getpid(), SIGTERM);
  signals.WaitForStop();
  EXPECT_TRUE(signals.stop_token().stop_requested());
}

TEST(Signals, TheEndTellsWhatWasRepeated) {
  log::Configure({.repeats = {.burst = 1, .interval = Millis(3'600'000)}});
  ::testing::internal::CaptureStderr();
  {
    Signals signals;
    for (int i = 0; i < 4; ++i) log::Warning("again");
  }
  const std::string text = ::testing::internal::GetCapturedStderr();
  log::Configure({});
  EXPECT_NE(text.find("again … repeated 3 times"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
