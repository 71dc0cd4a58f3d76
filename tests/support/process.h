#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace lockstep::testing {

// A program of ours, run as its users run it. Ends with this object (SIGKILL), and with the test.
class Process {
 public:
  // `program` is a name in the build's bin folder. Its stderr goes to a file of its own.
  Process(const std::string& program, const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Its exit status, or -signal. Blocks.
  int Wait();
  // What it has written to stderr.
  std::string Errors() const;
  // User and system time so far, in milliseconds.
  int64_t CpuMillis() const;

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
  std::string errors_;
};

}  // namespace lockstep::testing
