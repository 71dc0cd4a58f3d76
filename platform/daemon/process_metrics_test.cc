#include "platform/daemon/process_metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace lockstep {
namespace {

double ValueOf(const std::string& name) {
  for (const prometheus::MetricFamily& family : ProcessMetrics()) {
    if (family.name != name) continue;
    return family.type == prometheus::MetricType::Counter ? family.metric[0].counter.value
                                                          : family.metric[0].gauge.value;
  }
  ADD_FAILURE() << name << " is missing";
  return 0;
}

TEST(ProcessMetrics, FollowTheProcess) {
  const double before = ValueOf("process_open_fds");
  const int fd = ::open("/dev/null", O_RDONLY);
  EXPECT_EQ(ValueOf("process_open_fds"), before + 1);
  ::close(fd);
  EXPECT_GT(ValueOf("process_max_fds"), before);
  EXPECT_GT(ValueOf("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(ValueOf("process_virtual_memory_bytes"), ValueOf("process_resident_memory_bytes"));
}

TEST(ProcessMetrics, CpuTimeGrowsWithWork) {
  const double before = ValueOf("process_cpu_seconds_total");
  while (ValueOf("process_cpu_seconds_total") == before) {  // or ctest ends it
  }
}

TEST(ProcessMetrics, TheStartIsInThePastAndAfterTheBoot) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  // The boot is known to the second, and clocks are set.
  EXPECT_LT(ValueOf("process_start_time_seconds"), now.count() + 60);
  EXPECT_GT(ValueOf("process_start_time_seconds"), now.count() - 86'400);
}

}  // namespace
}  // namespace lockstep
