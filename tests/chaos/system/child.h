#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "platform/clock.h"

namespace lockstep::chaos {

// A program that this one has started: killed with this object, and by the kernel when this program
// dies. Start all of them on the main thread, for it is the thread's death that the kernel looks
// at.
class Child {
 public:
  struct Command {
    std::vector<std::string> arguments;  // the program first
    std::map<std::string, std::string> environment;
    std::string log;       // stdout and stderr are appended to it
    std::string output;    // stdout alone, in place of the log
    std::string user;      // when this program is root: who to be instead
    int at_our_death = 9;  // the signal that the kernel sends then
  };

  explicit Child(const Command& command);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Its exit status, or -signal, once it has ended.
  std::optional<int> Ended();
  // Waits for the end; past the limit it is killed, and the answer is empty.
  std::optional<int> WaitFor(Millis limit);

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

// Runs a program to its end.
int RunToEnd(const Child::Command& command, Millis limit);

}  // namespace lockstep::chaos
