#include "runner/testing/cluster_world.h"

#include <array>
#include <cstdio>
#include <filesystem>

#include "platform/status.h"
#include "postgres/migrator.h"
#include "sql/migrations.h"

namespace lockstep::runner {
namespace {

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return escaped;
}

}  // namespace

Cluster::Cluster() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "lockstep-restore.XXXXXX").string();
  dir_ = mkdtemp(pattern.data());
  std::filesystem::permissions(dir_, std::filesystem::perms(0755));
  const std::string answer = Bash("postgres_start " + dir_ +
                                  " fsync=off wal_level=replica max_wal_senders=4 "
                                  "log_min_messages=fatal && echo $PG_URL $PG_PORT");
  admin_url_ = answer.substr(0, answer.find(' '));
  port_ = answer.substr(answer.find(' ') + 1);
  url_ = admin_url_.substr(0, admin_url_.rfind('/')) + "/feed";
  Admin("CREATE DATABASE feed");
}

Cluster::~Cluster() {
  Bash("postgres_kill " + dir_ + " || true");
  if (!standby_port_.empty()) Bash("postgres_kill " + dir_ + "/standby || true");
  std::filesystem::remove_all(dir_);
}

void Cluster::Backup() {
  Bash("pg_run $PG_BIN/pg_basebackup -D " + dir_ + "/backup -d " + url_ + " -X stream -c fast");
}

void Cluster::Restore(bool recovery) {
  std::string script =
      "postgres_kill " + dir_ + "; cd " + dir_ + "; mv data gone; mv backup data; ";
  if (recovery) {
    script +=
        "pg_run touch data/recovery.signal; printf \"restore_command = 'false'\\n"
        "recovery_target = 'immediate'\\nrecovery_target_action = 'promote'\\n\" | pg_run tee -a "
        "data/postgresql.conf >/dev/null; ";
  }
  Bash(script + "pg_run $PG_BIN/pg_ctl -D " + dir_ + "/data -l " + dir_ + "/postgres.log -o '-p " +
       port_ + "' -w -t 60 start");
}

void Cluster::Dump() { Bash("$PG_BIN/pg_dump --no-owner -f " + dir_ + "/dump.sql " + url_); }

void Cluster::RestoreDump() {
  Admin("DROP DATABASE feed WITH (FORCE)");
  Admin("CREATE DATABASE feed");
  Bash("$PG_BIN/psql -q -X -v ON_ERROR_STOP=1 -1 -o /dev/null -f " + dir_ + "/dump.sql " + url_);
}

void Cluster::AddStandby(bool synchronous) {
  standby_port_ =
      Bash("standby_start " + dir_ + "/standby " + port_ + " second && echo $STANDBY_PORT");
  if (synchronous) {
    Admin("ALTER SYSTEM SET synchronous_standby_names = second");
    Admin("SELECT pg_reload_conf()");
    Bash("pg_until sync " + port_ + " \"SELECT sync_state FROM pg_stat_replication\"");
  }
  url_ = "postgresql://lockstep@127.0.0.1:" + port_ + ",127.0.0.1:" + standby_port_ +
         "/feed?target_session_attrs=read-write";
}

void Cluster::CutStandby() { Bash("standby_cut " + dir_ + "/standby " + standby_port_); }

void Cluster::FailOver() {
  Bash("postgres_kill " + dir_ + " && standby_promote " + dir_ + "/standby");
}

std::string Cluster::Bash(const std::string& script) {
  const std::string command = ". " LOCKSTEP_POSTGRES_LIB "; pg_bin; { " + script + "; } 2>&1";
  FILE* const pipe = popen(("bash -c '" + Escape(command) + "'").c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer{};
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
  EXPECT_EQ(pclose(pipe), 0) << script << "\n" << text;
  if (!text.empty()) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

void Cluster::Admin(const std::string& sql) const {
  Bash("$PG_BIN/psql -q -X -v ON_ERROR_STOP=1 -o /dev/null -c \"" + sql + "\" " + admin_url_);
}

ClusterWorld::ClusterWorld() {
  const auto connection = postgres::Connection::Open({.url = cluster_.url()});
  EXPECT_TRUE(postgres::Migrator(**connection, "feed_state", sql::StateMigrations()).Up().ok());
  EXPECT_TRUE((*connection)->Run(TestProjector::kTables).ok());
  EXPECT_TRUE(bus_.admin().CreateTopic({.name = kTopic}).ok());
  EXPECT_TRUE(
      bus_.admin()
          .CreateSubscription(
              {.name = kSubscription, .topic = kTopic, .ordering = true, .retain_acked = true})
          .ok());
  options_.name = "feed";
  options_.subscription = kSubscription;
  options_.lanes = 2;
  options_.ack_fence = Millis(100);
  options_.ack_deadline = Millis(10'000);  // a release that the fence cuts off waits no longer
  options_.checkpoint_every = Millis(100);
}

// While servers change places there is none: -1.
int64_t ClusterWorld::Count(const std::string& sql) const {
  const auto connection = postgres::Connection::Open({.url = cluster_.url()});
  EXPECT_TRUE(connection.ok()) << connection.status();
  if (!connection.ok()) return -1;
  const auto rows = (*connection)->Execute(sql);
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.ok() ? rows->Int(0, 0) : -1;
}

bool ClusterWorld::Await(const std::string& sql, int64_t wanted) const {
  const auto deadline = Clock::System().Steady() + std::chrono::seconds(30);
  while (Count(sql) != wanted) {
    if (Clock::System().Steady() > deadline) return false;
    std::this_thread::sleep_for(Millis(20));
  }
  return true;
}

bool ClusterWorld::AwaitModel() const {
  const int64_t version = version_;
  return Await(fmt::format("SELECT count(*) FROM rm.items WHERE version = {}", version), kKeys) &&
         Await(fmt::format("SELECT count(*) FROM rm.counters WHERE n = {}", version), kKeys);
}

bool ClusterWorld::AwaitCheckpoints(int64_t past) const {
  return Await(fmt::format("SELECT (coalesce(max(number), 0) > {})::int FROM "
                           "feed_state.checkpoints WHERE epoch > 0",
                           past),
               1);
}

bool ClusterWorld::AwaitAcks() const {
  return bus_.Await([&] { return bus_.Backlog(kSubscription) == 0; });
}

int64_t ClusterWorld::Healed() const {
  return Count("SELECT count(*) FROM feed_state.audit WHERE action = 'checkpoint.healed'");
}

std::unique_ptr<Group> ClusterWorld::NewGroup(const std::string& instance) {
  environments_.emplace_back(new GroupEnvironment{.database = cluster_.url(),
                                                  .state_schema = "feed_state",
                                                  .instance = instance,
                                                  .transport = bus_,
                                                  .metrics = metrics_,
                                                  .poll = Millis(50),
                                                  .retry_halt = Millis(50)});
  auto group =
      std::make_unique<Group>(options_, std::make_unique<TestProjector>(), *environments_.back());
  EXPECT_TRUE(group->Start().ok());
  return group;
}

void ClusterWorld::Publish() {
  for (int k = 0; k < kKeys; ++k) {
    publisher_->Publish(kTopic,
                        {TestEvent{.id = fmt::format("k{}", k), .version = version_ + 1}.Message()},
                        [](const auto&) {});
  }
  ++version_;
}

void ClusterWorld::StartLoad() {
  stop_ = false;
  load_ = std::thread([this] {
    while (!stop_) {
      Publish();
      std::this_thread::sleep_for(Millis(10));
    }
  });
}

void ClusterWorld::StopLoad() {
  stop_ = true;
  if (load_.joinable()) load_.join();
}

}  // namespace lockstep::runner
