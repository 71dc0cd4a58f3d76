#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::bench {

// The CPU time of everything that takes part: this process, what it has started, and the Postgres
// server with its sessions. A ratio of it says what a ratio of rates says on a machine that nobody
// else uses, also where somebody does.
class MachineCpu {
 public:
  // Ends the program when the database can't be reached.
  explicit MachineCpu(const std::string& database);

  double Seconds() const { return Read() - began_; }

 private:
  double Read() const;

  std::vector<pid_t> roots_;
  double began_ = 0;
};

// The CPU time of one process so far, all threads; 0 = it is gone. Of one that waits it is exact.
double CpuSeconds(int64_t pid);

}  // namespace lockstep::bench
