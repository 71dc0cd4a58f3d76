#include "tests/chaos/system/cluster.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <utility>

#include "tests/chaos/system/now.h"
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
wal_keep_size = '256MB'
wal_retrieve_retry_interval = '200ms'
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

Cluster::Cluster(std::string folder, const std::string& bad_machine)
    : folder_(std::move(folder)), bad_machine_(folder_ + "/bad_machine.so"), bin_(FindBin()) {
  fs::create_directories(folder_);
  GiveTo(kUser, folder_);
  // Where the user that Postgres runs as can read it.
  fs::copy_file(bad_machine, bad_machine_);
  SetClock(std::chrono::seconds(0));
  port_ = QuietPort();
}

void Cluster::Make() {
  const int made = RunToEnd(
      {.arguments = {bin_ + "/initdb", "-D", folder_ + "/data", "-U", "lockstep", "-A", "trust",
                     "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--wal-segsize=1"},
       .log = folder_ + "/initdb.log",
       .user = kUser},
      Millis(120'000));
  if (made != 0) throw std::runtime_error("initdb failed: see " + folder_ + "/initdb.log");
  std::ofstream(folder_ + "/data/postgresql.conf", std::ios::app) << kSettings;
}

std::unique_ptr<Child> Cluster::Copy(int port) {
  fs::remove_all(folder_ + "/data");
  return std::make_unique<Child>(Child::Command{
      .arguments = {bin_ + "/pg_basebackup", "-D", folder_ + "/data", "-R", "-X", "stream", "-c",
                    "fast", "--no-sync", "-d",
                    fmt::format("host=127.0.0.1 port={} user=lockstep application_name=standby",
                                port)},
      .log = folder_ + "/copy.log",
      .user = kUser});
}

void Cluster::Promote() const {
  const std::string order = folder_ + "/data/promote";
  std::ofstream(order) << "";
  GiveTo(kUser, order);
  Order(SIGUSR1);
}

bool Cluster::Promoted() const { return !fs::exists(folder_ + "/data/standby.signal"); }

void Cluster::Crash() {
  Resume();
  Order(kImmediate);
}

bool Cluster::Gone() {
  if (postmaster_ != nullptr && postmaster_->Ended()) postmaster_.reset();
  return postmaster_ == nullptr;
}

Cluster::~Cluster() = default;

std::string Cluster::Url(const std::string& database) const {
  return fmt::format("postgresql://lockstep@127.0.0.1:{}/{}", port_, database);
}

std::unique_ptr<Child> Cluster::Run(const std::string& database,
                                    const std::vector<std::string>& commands) const {
  std::vector<std::string> arguments = {bin_ + "/psql",    "-Xq", "-v",
                                        "ON_ERROR_STOP=1", "-d",  Url(database)};
  for (const std::string& command : commands) arguments.insert(arguments.end(), {"-c", command});
  return std::make_unique<Child>(
      Child::Command{.arguments = std::move(arguments),
                     .environment = {{"PGAPPNAME", "chaos"}, {"PGCONNECT_TIMEOUT", "2"}},
                     .log = folder_ + "/psql.log"});
}

void Cluster::Start() {
  ++starts_;
  must_be_down_.reset();
  postmaster_ = std::make_unique<Child>(Child::Command{
      .arguments = {bin_ + "/postgres", "-D", folder_ + "/data", "-p", fmt::format("{}", port_)},
      .environment = {{"LD_PRELOAD", bad_machine_},
                      {"LOCKSTEP_BAD_DISK", folder_},
                      {"LOCKSTEP_BAD_CLOCK", folder_ + "/clock"}},
      .log = folder_ + "/postgres.log",
      .user = kUser,
      .at_our_death = kImmediate});
}

void Cluster::RestartFast() {
  Order(kFast);
  if (!must_be_down_) must_be_down_ = Now() + Millis(8'000);
}

void Cluster::Tick() {
  if (postmaster_ != nullptr && postmaster_->Ended()) Start();
  if (must_be_down_ && Now() > *must_be_down_) {
    Order(kImmediate);
    must_be_down_.reset();
  }
  if (hangs()) SignalSessions(SIGSTOP, hang_);  // those too that have come since
}

void Cluster::Resume() {
  if (!hangs()) return;
  hang_ = Hang::kNone;
  SignalSessions(SIGCONT, Hang::kAll);
}

// No pid is kept: a child of the postmaster is what it is until the postmaster has seen it end.
void Cluster::SignalSessions(int signal, Hang which) const {
  if (postmaster_ == nullptr) return;
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", postmaster_->pid()));
  for (pid_t child = 0; children >> child;) {
    if (which == Hang::kAll || child % 2 == 0) ::kill(child, signal);
  }
}

bool Cluster::StopForGood(Millis limit) {
  const auto child = std::exchange(postmaster_, nullptr);
  if (child == nullptr) return true;
  child->Signal(kFast);
  return child->WaitFor(limit) == 0;
}

void Cluster::SetClock(std::chrono::seconds wrong) const {
  // In place: Postgres has it mapped.
  const int64_t seconds = wrong.count();
  const int fd = ::open((folder_ + "/clock").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  const bool written = ::pwrite(fd, &seconds, sizeof(seconds), 0) == sizeof(seconds);
  ::close(fd);
  if (!written) throw std::runtime_error("can't set the clock of " + folder_);
}

void Cluster::Tell(const std::string& what, bool on) const {
  const std::string path = folder_ + "/" + what;
  if (on) {
    std::ofstream(path) << "\n";
  } else {
    fs::remove(path);
  }
}

int Cluster::out_of_space() const {
  std::ifstream log(folder_ + "/postgres.log");
  int count = 0;
  for (std::string line; std::getline(log, line);) {
    if (line.find("No space left") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace lockstep::chaos
