#include "tests/observability/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace lockstep::observability {

Process::Process(std::vector<std::string> command, std::string output,
                 const std::map<std::string, std::string>& environment)
    : output_(std::move(output)) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  execv(arguments[0], arguments.data());
  _exit(127);
}

Process::~Process() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

void Process::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

int Process::Wait() {
  if (pid_ > 0) {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return status_;
}

bool Process::running() {
  int status = 0;
  if (pid_ < 0 || waitpid(pid_, &status, WNOHANG) == 0) return pid_ > 0;
  pid_ = -1;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

std::string Process::output() const { return ReadFile(output_); }

Ran RunProgram(std::vector<std::string> command, const std::string& output,
               const std::map<std::string, std::string>& environment) {
  Process process(std::move(command), output, environment);
  const int status = process.Wait();
  return {status, process.output()};
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void WriteFile(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace lockstep::observability
