#include "tests/chaos/system/child.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace lockstep::chaos {
namespace {

// In the child, between fork and exec.
[[noreturn]] void Become(const Child::Command& command, pid_t parent, const passwd* user) {
  // Whoever dies takes nobody along: signals meant for the terminal's group are the parent's.
  ::setpgid(0, 0);
  const int log = ::open(command.log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0666);
  const int output =
      command.output.empty() ? log : ::open(command.output.c_str(), O_CREAT | O_WRONLY, 0666);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  if (user != nullptr && (::initgroups(user->pw_name, user->pw_gid) != 0 ||
                          ::setgid(user->pw_gid) != 0 || ::setuid(user->pw_uid) != 0)) {
    ::_exit(126);
  }
  ::prctl(PR_SET_PDEATHSIG, command.at_our_death);  // after setuid, which clears it
  if (::getppid() != parent) ::_exit(127);
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : command.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

Child::Child(const Command& command) {
  const passwd* user = nullptr;
  if (!command.user.empty() && ::geteuid() == 0) {
    user = ::getpwnam(command.user.c_str());
    if (user == nullptr) throw std::runtime_error("there is no user " + command.user);
  }
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) Become(command, parent, user);
}

Child::~Child() {
  if (Ended()) return;
  Signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::Signal(int signal) const {
  if (!status_) ::kill(pid_, signal);
}

std::optional<int> Child::Ended() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  return status_;
}

std::optional<int> Child::WaitFor(Millis limit) {
  const SteadyTime until = Clock::System().Steady() + limit;
  while (!Ended() && Clock::System().Steady() < until) std::this_thread::sleep_for(Millis(20));
  if (Ended()) return status_;
  Signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  status_ = -SIGKILL;
  return std::nullopt;
}

int RunToEnd(const Child::Command& command, Millis limit) {
  return Child(command).WaitFor(limit).value_or(-SIGKILL);
}

}  // namespace lockstep::chaos
