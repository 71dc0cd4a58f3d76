#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "tests/chaos/system/child.h"

namespace lockstep::chaos {

// The Postgres under attack: a private cluster whose postmaster is a child of this program.
// Whenever it ends, however it ends, Tick starts it again on the same port.
class Cluster {
 public:
  // Empty; Make or Copy fills it. `bad_machine` is the library of bad_disk.cc and bad_clock.cc.
  Cluster(std::string folder, const std::string& bad_machine);
  ~Cluster();

  int port() const { return port_; }
  std::string Url(const std::string& database) const;
  // One session of psql with these commands, under way.
  std::unique_ptr<Child> Run(const std::string& database,
                             const std::vector<std::string>& commands) const;

  // A new one, or one that follows another, which listens on `port`: that is a program under way.
  void Make();
  std::unique_ptr<Child> Copy(int port);
  // A follower becomes a primary; whether it has.
  void Promote() const;
  bool Promoted() const;

  void Start();
  void Tick();
  // Ends at once and stays away; whether it has gone.
  void Crash();
  bool Gone();
  // Immediately after a while: a server that recovers may never obey the other.
  void RestartFast();
  void RestartImmediate() const { Order(kImmediate); }
  void DiskFull(bool on) const { Tell("full", on); }
  void SlowFsync(bool on) const { Tell("slow_fsync", on); }
  // So much ahead of the true time.
  void SetClock(std::chrono::seconds wrong) const;
  // Its processes stand still, all of them or about half; the postmaster goes on, lets sessions in
  // and obeys. REQUIRES: nobody on this thread asks it anything before Resume.
  enum class Hang { kNone, kSome, kAll };
  void Stop(Hang which) { hang_ = which; }
  void Resume();
  bool hangs() const { return hang_ != Hang::kNone; }
  // Whether it has come to an end that was asked for, within the limit.
  bool StopForGood(Millis limit);

  int starts() const { return starts_; }
  // How often its log says so.
  int out_of_space() const;

 private:
  static constexpr int kFast = 2;       // SIGINT
  static constexpr int kImmediate = 3;  // SIGQUIT

  void Order(int signal) const {
    if (postmaster_ != nullptr) postmaster_->Signal(signal);
  }
  void SignalSessions(int signal, Hang which) const;
  void Tell(const std::string& what, bool on) const;

  const std::string folder_;
  const std::string bad_machine_;
  std::string bin_;
  int port_ = 0;
  int starts_ = 0;
  Hang hang_ = Hang::kNone;
  std::optional<SteadyTime> must_be_down_;
  std::unique_ptr<Child> postmaster_;
};

}  // namespace lockstep::chaos
