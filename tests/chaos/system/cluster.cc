#include "tests/chaos/system/cluster.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <utility>

#include "tests/support/free_port.h"

namespace lockstep::chaos {
namespace {

namespace fs = std::filesystem;

constexpr char kUser[] = "postgres";  // who it runs as when we are root

// fsync stays on, as in production. Small segments and a small WAL, so that checkpoints and new
// segments come often.
constexpr char kSettings[] = R"(
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
shared_buffers = '64MB'
max_wal_size = '64MB'
checkpoint_timeout = '30s'
wal_recycle = off
log_min_messages = 'warning'
)";

std::string FindBin() {
  std::string best;
  if (fs::exists("/usr/lib/postgresql")) {
    for (const auto& version : fs::directory_iterator("/usr/lib/postgresql")) {
      const std::string bin = version.path().string() + "/bin";
      if (fs::exists(bin + "/initdb") && bin > best) best = bin;
    }
  }
  if (best.empty()) throw std::runtime_error("Postgres is not installed: run scripts/setup");
  return best;
}

void GiveTo(const std::string& user, const std::string& path) {
  const passwd* entry = ::geteuid() == 0 ? ::getpwnam(user.c_str()) : nullptr;
  if (entry != nullptr && ::chown(path.c_str(), entry->pw_uid, entry->pw_gid) != 0) {
    throw std::runtime_error("can't give " + path + " to " + user);
  }
}

// Outside the range that the kernel hands out itself: the port must be free again at every start.
int QuietPort() {
  std::random_device random;
  while (true) {
    const int port = 10'000 + static_cast<int>(random() % 22'000);
    if (!testing::CanConnect(port)) return port;
  }
}

}  // namespace

Cluster::Cluster(std::string folder, const std::string& bad_disk)
    : folder_(std::move(folder)), bad_disk_(folder_ + "/bad_disk.so"), bin_(FindBin()) {
  fs::create_directories(folder_);
  GiveTo(kUser, folder_);
  // Where the user that Postgres runs as can read it.
  fs::copy_file(bad_disk, bad_disk_);
  const int made = RunToEnd(
      {.arguments = {bin_ + "/initdb", "-D", folder_ + "/data", "-U", "lockstep", "-A", "trust",
                     "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--wal-segsize=1"},
       .log = folder_ + "/initdb.log",
       .user = kUser},
      Millis(120'000));
  if (made != 0) throw std::runtime_error("initdb failed: see " + folder_ + "/initdb.log");
  std::ofstream(folder_ + "/data/postgresql.conf", std::ios::app) << kSettings;
  port_ = QuietPort();
}

Cluster::~Cluster() = default;

std::string Cluster::Url(const std::string& database) const {
  return fmt::format("postgresql://lockstep@127.0.0.1:{}/{}", port_, database);
}

void Cluster::Start() {
  ++starts_;
  postmaster_ = std::make_unique<Child>(Child::Command{
      .arguments = {bin_ + "/postgres", "-D", folder_ + "/data", "-p", fmt::format("{}", port_)},
      .environment = {{"LD_PRELOAD", bad_disk_}, {"LOCKSTEP_BAD_DISK", folder_}},
      .log = folder_ + "/postgres.log",
      .user = kUser,
      .at_our_death = kImmediate});
}

void Cluster::Tick() {
  if (postmaster_ != nullptr && postmaster_->Ended()) Start();
}

bool Cluster::StopForGood(Millis limit) {
  const auto child = std::exchange(postmaster_, nullptr);
  child->Signal(kFast);
  return child->WaitFor(limit) == 0;
}

void Cluster::Tell(const std::string& what, bool on) const {
  const std::string path = folder_ + "/" + what;
  if (on) {
    std::ofstream(path) << "\n";
  } else {
    fs::remove(path);
  }
}

int Cluster::LogCount(const std::string& text) const {
  std::ifstream log(folder_ + "/postgres.log");
  int count = 0;
  for (std::string line; std::getline(log, line);) {
    if (line.find(text) != std::string::npos) ++count;
  }
  return count;
}

}  // namespace lockstep::chaos
