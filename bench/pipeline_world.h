#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bench/child.h"
#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::bench {

// Ends the program with a sentence.
[[noreturn]] void Die(std::string_view what, std::string_view why);
void Check(std::string_view what, const absl::Status& status);

std::unique_ptr<postgres::Connection> Connect(const std::string& url,
                                              const std::string& name = "bench");

// A daemon that logs into a file; asked to stop at the end.
class Daemon {
 public:
  Daemon(const std::string& program, const std::string& config, const std::string& log);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

// A new database's outbox src.video_outbox with the topic bench.video.changed.v1, the read model
// bench.video (video_id, title, version), and between them emulator, publisher and runner as
// processes.
class Pipeline {
 public:
  explicit Pipeline(const std::string& database);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  void Stop();
  std::string folder() const { return folder_.string(); }
  pid_t emulator() const { return emulator_.pid(); }
  pid_t publisher() const { return publisher_->pid(); }
  pid_t runner() const { return runner_->pid(); }

 private:
  const Child emulator_;
  const std::filesystem::path folder_;
  std::optional<Daemon> publisher_;
  std::optional<Daemon> runner_;
};

}  // namespace lockstep::bench
