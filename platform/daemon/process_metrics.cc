#include "platform/daemon/process_metrics.h"

#include <absl/strings/str_split.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace lockstep {
namespace {

prometheus::MetricFamily Family(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::ClientMetric metric;
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return {.name = name, .help = help, .type = type, .metric = {std::move(metric)}};
}

// The seconds since 1970 at which this machine was started; 0 = not to be read.
double BootTime() {
  std::ifstream stat("/proc/stat");
  for (std::string word; stat >> word;) {
    double seconds = 0;
    if (word == "btime" && stat >> seconds) return seconds;
  }
  return 0;
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics() {
  using enum prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&](const char* name, const char* help, prometheus::MetricType type,
                       double value) { families.push_back(Family(name, help, type, value)); };
  // The fields of proc(5) from the third on; the second is the program's name, in parentheses.
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_ends = line.rfind(") ");
  const std::vector<std::string> fields =
      name_ends == std::string::npos
          ? std::vector<std::string>()
          : std::vector<std::string>(absl::StrSplit(line.substr(name_ends + 2), ' '));
  const auto field = [&](size_t number) { return std::stod(fields[number - 3]); };
  if (fields.size() > 22) {
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    static const double boot = BootTime();
    add("process_cpu_seconds_total", "User and system CPU time", Counter,
        (field(14) + field(15)) / ticks);
    if (boot > 0) {
      add("process_start_time_seconds", "When the process was started, since 1970", Gauge,
          boot + field(22) / ticks);
    }
    add("process_virtual_memory_bytes", "Virtual memory", Gauge, field(23));
    add("process_resident_memory_bytes", "Resident memory", Gauge,
        field(24) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  }
  std::error_code error;
  double open = 0;
  for (std::filesystem::directory_iterator i("/proc/self/fd", error), end; !error && i != end;
       i.increment(error)) {
    ++open;
  }
  // One of them is the folder's own.
  if (!error) add("process_open_fds", "Open file descriptors", Gauge, open - 1);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    add("process_max_fds", "How many may be open", Gauge, static_cast<double>(limit.rlim_cur));
  }
  return families;
}

}  // namespace lockstep
