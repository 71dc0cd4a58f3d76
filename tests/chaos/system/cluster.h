#pragma once

#include <memory>
#include <string>

#include "tests/chaos/system/child.h"

namespace lockstep::chaos {

// The Postgres under attack: a private cluster whose postmaster is a child of this program.
// Whenever it ends, however it ends, Tick starts it again on the same port.
class Cluster {
 public:
  // `bad_disk` is the library of bad_disk.cc.
  Cluster(std::string folder, const std::string& bad_disk);
  ~Cluster();

  int port() const { return port_; }
  std::string Url(const std::string& database) const;

  void Start();
  void Tick();
  void RestartFast() const { postmaster_->Signal(kFast); }
  void RestartImmediate() const { postmaster_->Signal(kImmediate); }
  void DiskFull(bool on) const { Tell("full", on); }
  void SlowFsync(bool on) const { Tell("slow_fsync", on); }
  // Whether it has come to an end that was asked for, within the limit.
  bool StopForGood(Millis limit);

  int starts() const { return starts_; }
  // How often its log has this text.
  int LogCount(const std::string& text) const;

 private:
  static constexpr int kFast = 2;       // SIGINT
  static constexpr int kImmediate = 3;  // SIGQUIT

  void Tell(const std::string& what, bool on) const;

  const std::string folder_;
  const std::string bad_disk_;
  std::string bin_;
  int port_ = 0;
  int starts_ = 0;
  std::unique_ptr<Child> postmaster_;
};

}  // namespace lockstep::chaos
