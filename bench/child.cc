#include "bench/child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace lockstep::bench {

Child::Child(const std::vector<std::string>& command) {
  int out[2];
  if (pipe(out) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(out[1]);
  std::FILE* lines = fdopen(out[0], "r");
  char line[512];
  while (address_.empty() && std::fgets(line, sizeof(line), lines) != nullptr) {
    const std::string text = line;
    const std::string words = "listening on ";
    const size_t found = text.find(words);
    if (found == std::string::npos) continue;
    address_ = text.substr(found + words.size());
    address_.erase(address_.find_last_not_of(" \n") + 1);
  }
  // The pipe stays open: a child that prints more must not die of it.
}

Child::~Child() {
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

std::string ProgramFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

}  // namespace lockstep::bench
