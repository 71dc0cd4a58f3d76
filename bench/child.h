#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::bench {

// A program that runs beside the benchmark and prints "listening on HOST:PORT". Ended with us.
class Child {
 public:
  explicit Child(const std::vector<std::string>& command);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Empty when it did not come up.
  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  std::string address_;
};

// The folder of the running program, where its siblings are.
std::string ProgramFolder();

}  // namespace lockstep::bench
