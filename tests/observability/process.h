#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace lockstep::observability {

// A program that a test started. Its output goes to a file; it is killed with this object, and by
// the kernel if the test dies first.
class Process {
 public:
  Process(std::vector<std::string> command, std::string output,
          const std::map<std::string, std::string>& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int signal) const;
  int Wait();  // its exit status; 128 + signal when it was killed
  bool running();
  std::string output() const;

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  const std::string output_;
};

// Runs a program to its end.
struct Ran {
  int status = 0;
  std::string output;
};
Ran RunProgram(std::vector<std::string> command, const std::string& output,
               const std::map<std::string, std::string>& environment = {});

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& text);

}  // namespace lockstep::observability
