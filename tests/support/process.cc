#include "tests/support/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace lockstep::testing {
namespace {

// Test programs stand in <build>/tests, the others in <build>/bin.
std::string PathOf(const std::string& program) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin" /
          program)
      .string();
}

}  // namespace

Process::Process(const std::string& program, const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment) {
  static std::atomic<int> count = 0;
  errors_ = fmt::format("{}/{}_{}_{}.err", std::filesystem::temp_directory_path().string(), program,
                        ::getpid(), ++count);
  const std::string path = PathOf(program);
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int errors = ::open(errors_.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::dup2(errors, STDERR_FILENO);
    ::dup2(errors, STDOUT_FILENO);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(path.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(errors);
}

Process::~Process() {
  if (!ended_) {
    Signal(SIGKILL);
    Wait();
  }
  std::remove(errors_.c_str());
}

void Process::Signal(int signal) const {
  if (!ended_) ::kill(pid_, signal);
}

int Process::Wait() {
  if (!ended_) {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  return status_;
}

std::string Process::Errors() const {
  std::ostringstream text;
  text << std::ifstream(errors_).rdbuf();
  return text.str();
}

int64_t Process::CpuMillis() const {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid_));
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // state … cmajflt
  int64_t user = 0;
  int64_t system = 0;
  fields >> user >> system;
  return (user + system) * 1000 / ::sysconf(_SC_CLK_TCK);
}

}  // namespace lockstep::testing
