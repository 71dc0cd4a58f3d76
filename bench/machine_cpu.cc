#include "bench/machine_cpu.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::bench {
namespace {

struct Process {
  pid_t pid = 0, parent = 0;
  double own = 0, ended_children = 0;  // ticks
};

// /proc/PID/stat; pid 0 = it is gone.
Process ReadProcess(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  Process process;
  const size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return process;
  std::istringstream fields(text.substr(name_ends + 1));
  std::string skipped;
  fields >> skipped >> process.parent;  // the state stands before it
  for (int i = 5; i < 14; ++i) fields >> skipped;
  double user = 0, system = 0, children_user = 0, children_system = 0;
  fields >> user >> system >> children_user >> children_system;
  process.pid = std::atoi(text.c_str());
  process.own = user + system;
  process.ended_children = children_user + children_system;
  return process;
}

}  // namespace

MachineCpu::MachineCpu(const std::string& database) : roots_{getpid()} {
  const auto connection = postgres::Connection::Open({.url = database});
  if (!connection.ok()) {
    fmt::print(stderr, "bench: {}\n", MessageOf(connection.status()));
    std::exit(1);
  }
  const pid_t session = (*connection)->backend_pid();
  roots_.push_back(ReadProcess(fmt::format("/proc/{}", session)).parent);
  began_ = Read();
}

double MachineCpu::Read() const {
  double ticks = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (std::atoi(entry.path().filename().c_str()) == 0) continue;
    const Process process = ReadProcess(entry.path());
    const bool root = std::ranges::count(roots_, process.pid) > 0;
    if (root || std::ranges::count(roots_, process.parent) > 0) ticks += process.own;
    if (root) ticks += process.ended_children;
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double CpuSeconds(int64_t pid) {
  double nanoseconds = 0;
  std::error_code gone;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
    std::ifstream file(task.path() / "schedstat");
    double one = 0;
    if (file >> one) nanoseconds += one;
  }
  return nanoseconds / 1e9;
}

}  // namespace lockstep::bench
