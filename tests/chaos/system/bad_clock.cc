// Put before Postgres with LD_PRELOAD: a clock that is wrong by as many seconds as the file that
// LOCKSTEP_BAD_CLOCK names says at this moment (an int64_t). The steady clock stays as it is, as on
// a machine whose clock is set.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

// Mapped, so that to look at the clock costs no more than usual.
const volatile int64_t* Map() {
  static constexpr int64_t kRight = 0;
  const char* const file = std::getenv("LOCKSTEP_BAD_CLOCK");
  const int fd = file == nullptr ? -1 : ::open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &kRight;
  void* const mapped = ::mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  return mapped == MAP_FAILED ? &kRight : static_cast<const volatile int64_t*>(mapped);
}

int64_t Wrong() {
  static const volatile int64_t* const seconds = Map();
  return *seconds;
}

timespec RealTime() {
  using Function = int(clockid_t, timespec*);
  static auto* const real = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "clock_gettime"));
  timespec now{};
  real(CLOCK_REALTIME, &now);
  now.tv_sec += Wrong();
  return now;
}

}  // namespace

extern "C" {

// Their declarations say that neither argument is null where it may not be.
int gettimeofday(timeval* __restrict now, void* __restrict /*zone*/) noexcept {
  const timespec real = RealTime();
  *now = {real.tv_sec, real.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* now) noexcept {
  const time_t seconds = RealTime().tv_sec;
  if (now != nullptr) *now = seconds;
  return seconds;
}

int clock_gettime(clockid_t which, timespec* now) noexcept {
  using Function = int(clockid_t, timespec*);
  static auto* const real = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "clock_gettime"));
  const int answer = real(which, now);
  if (answer == 0 && which == CLOCK_REALTIME) now->tv_sec += Wrong();
  return answer;
}

}  // extern "C"
