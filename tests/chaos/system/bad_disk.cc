// Put before Postgres with LD_PRELOAD: a disk that gets full and slow when it is told to, on any
// machine and without a mount. In the folder that LOCKSTEP_BAD_DISK names,
//   full        there: whatever would make a file larger fails with ENOSPC, as on a full disk
//   slow_fsync  there: each fsync takes 100 ms longer
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace {

constexpr useconds_t kSlow = 100'000;

bool Told(const char* what) {
  static const char* const folder = std::getenv("LOCKSTEP_BAD_DISK");
  if (folder == nullptr) return false;
  const int kept = errno;
  const bool there = ::access((std::string(folder) + "/" + what).c_str(), F_OK) == 0;
  errno = kept;
  return there;
}

// Whether bytes up to `end` don't fit; the log (which is no part of the cluster) always does.
bool Full(int fd, off_t end) {
  if (fd <= STDERR_FILENO || !Told("full")) return false;
  struct stat file {};
  if (::fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || end <= file.st_size) return false;
  errno = ENOSPC;
  return true;
}

off_t Sum(const iovec* parts, int count) {
  off_t sum = 0;
  for (int i = 0; i < count; ++i) sum += static_cast<off_t>(parts[i].iov_len);
  return sum;
}

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int Sync(int fd, const char* name) {
  if (Told("slow_fsync")) ::usleep(kSlow);
  return Real<int(int)>(name)(fd);
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  static auto* const real = Real<ssize_t(int, const void*, size_t)>("write");
  if (fd > STDERR_FILENO && Told("full")) {
    const off_t at = ::lseek(fd, 0, SEEK_CUR);
    if (at >= 0 && Full(fd, at + static_cast<off_t>(size))) return -1;
  }
  return real(fd, data, size);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  static auto* const real = Real<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  if (Full(fd, at + static_cast<off_t>(size))) return -1;
  return real(fd, data, size, at);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  return pwrite64(fd, data, size, at);
}

ssize_t pwritev64(int fd, const iovec* parts, int count, off64_t at) {
  static auto* const real = Real<ssize_t(int, const iovec*, int, off64_t)>("pwritev64");
  if (Full(fd, at + Sum(parts, count))) return -1;
  return real(fd, parts, count, at);
}
ssize_t pwritev(int fd, const iovec* parts, int count, off_t at) {
  return pwritev64(fd, parts, count, at);
}

int posix_fallocate64(int fd, off64_t at, off64_t size) {
  static auto* const real = Real<int(int, off64_t, off64_t)>("posix_fallocate64");
  return Full(fd, at + size) ? ENOSPC : real(fd, at, size);
}
int posix_fallocate(int fd, off_t at, off_t size) { return posix_fallocate64(fd, at, size); }

int fsync(int fd) { return Sync(fd, "fsync"); }
int fdatasync(int fd) { return Sync(fd, "fdatasync"); }

}  // extern "C"
