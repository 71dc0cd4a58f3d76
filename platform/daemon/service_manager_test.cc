#include "platform/daemon/service_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "platform/daemon/daemon.h"
#include "platform/daemon/service_thread.h"
#include "platform/status.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A service manager's end of the socket.
class Manager {
 public:
  explicit Manager(const std::string& address) {
    sockaddr_un bound{.sun_family = AF_UNIX, .sun_path = {}};
    std::memcpy(bound.sun_path, address.data(), address.size());
    if (bound.sun_path[0] == '@') bound.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&bound), length), 0) << std::strerror(errno);
    ::setenv("NOTIFY_SOCKET", address.c_str(), 1);
  }
  ~Manager() {
    ::close(fd_);
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
  }

  // What has come by now.
  std::vector<std::string> Heard() const {
    std::vector<std::string> messages;
    char buffer[512];
    for (ssize_t n = 0; (n = ::recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT)) >= 0;)
      messages.emplace_back(buffer, n);
    return messages;
  }
  // Waits for the next.
  std::string Next() const {
    char buffer[512];
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);  // or ctest ends it
    return n < 0 ? "" : std::string(buffer, n);
  }

 private:
  const int fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
};

std::string Abstract(const char* name) {
  return "@lockstep-" + std::string(name) + std::to_string(::getpid());
}

// Runs once; what it does meanwhile is the test's.
class OneRun : public Daemon {
 public:
  void Bind(ConfigSection&) override {}
  log::Options LogOptions() const override { return {.level = log::Level::kError}; }
  absl::Status Start(const Beginning&) override { return started; }
  absl::Status RunOnce(const std::stop_token&) override {
    run();
    return absl::OkStatus();
  }
  bool Alive() const override {
    ++asked;
    asked.notify_all();
    return alive;
  }
  void Stop() override { Note("stopped"); }
  void Reload(const RunningConfig&) override { Note("reloaded"); }
  void Note(const std::string& what) { notes += what + " "; }

  int Run() {
    std::string words[] = {"p", "--once"};
    char* argv[] = {words[0].data(), words[1].data()};
    return RunDaemon(2, argv, {.program = "p", .summary = "s", .once = "once"}, *this);
  }

  absl::Status started;
  std::function<void()> run = [] {};
  std::atomic<bool> alive = true;
  mutable std::atomic<int> asked = 0;
  std::string notes;
};

TEST(ServiceManager, HearsOfStartReloadAndStop) {
  const Manager manager(Abstract("life"));
  OneRun daemon;
  daemon.run = [&] {
    EXPECT_EQ(manager.Next(), "READY=1");
    ::kill(::getpid(), SIGHUP);
    EXPECT_THAT(manager.Next(), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
    EXPECT_EQ(manager.Next(), "READY=1");
    EXPECT_EQ(daemon.notes, "reloaded ") << "ready again, and not reloaded yet";
  };
  EXPECT_EQ(daemon.Run(), 0);
  EXPECT_THAT(manager.Heard(), ElementsAre("STOPPING=1"));
}

TEST(ServiceManager, HearsNothingOfAStartThatFailed) {
  const Manager manager(Abstract("failed"));
  OneRun daemon;
  daemon.started = Unavailable("no");
  EXPECT_EQ(daemon.Run(), 1);
  EXPECT_THAT(manager.Heard(), IsEmpty());
}

TEST(ServiceManager, IsToldThatTheProcessLivesWhileItDoes) {
  const Manager manager(Abstract("watchdog"));
  ::setenv("WATCHDOG_USEC", "3000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  OneRun daemon;
  daemon.alive = false;
  daemon.run = [&] {
    const auto asked_again = [&] {
      for (int i = 0; i < 3; ++i) daemon.asked.wait(daemon.asked);
    };
    EXPECT_EQ(manager.Next(), "READY=1");
    asked_again();
    EXPECT_THAT(manager.Heard(), IsEmpty()) << "it hangs, and the watchdog must not hear of it";
    daemon.alive = true;
    EXPECT_EQ(manager.Next(), "WATCHDOG=1");
    EXPECT_EQ(manager.Next(), "WATCHDOG=1") << "again and again";
  };
  EXPECT_EQ(daemon.Run(), 0);
}

TEST(ServiceManager, IsFoundByPathToo) {
  const std::string path = ::testing::TempDir() + "lockstep-notify." + std::to_string(::getpid());
  const Manager manager(path);
  ServiceManager().Ready();
  EXPECT_THAT(manager.Heard(), ElementsAre("READY=1"));
  std::filesystem::remove(path);
}

TEST(ServiceManager, WatchesOnlyTheProcessThatItNames) {
  const Manager manager(Abstract("pid"));
  ::setenv("WATCHDOG_USEC", "10000000", 1);
  EXPECT_EQ(ServiceManager().watchdog(), Millis(10'000));
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(ServiceManager().watchdog(), Millis(0));
  ::setenv("WATCHDOG_USEC", "soon", 1);
  ::unsetenv("WATCHDOG_PID");
  EXPECT_EQ(ServiceManager().watchdog(), Millis(0));
}

TEST(ServiceManager, ThatIsGoneHoldsNothingUp) {
  ::setenv("NOTIFY_SOCKET", Abstract("gone").c_str(), 1);
  OneRun daemon;
  EXPECT_EQ(daemon.Run(), 0);
  ::unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace lockstep
