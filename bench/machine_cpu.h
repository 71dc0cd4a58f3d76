#pragma once

#include <sys/types.h>

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

}  // namespace lockstep::bench
