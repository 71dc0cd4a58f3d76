#include "publisher/upkeep/shard_owner.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "platform/log/log.h"
#include "platform/retry_policy.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "publisher/relay/relay.h"

namespace lockstep::publisher {
namespace {

using postgres::Array;
using postgres::Params;

constexpr char kBackend[] = "SELECT pg_backend_pid()";

// One row per outbox of $1, in its order: shards and how many sessions hold the member lock (a
// bigint key is shown by pg_locks as two halves). Also the session's ping.
constexpr char kLook[] =
    "SELECT o.shards, pg_backend_pid(),\n"
    "       (SELECT count(*) FROM pg_locks l, lockstep.lock_key('member', o.outbox, 0) AS k\n"
    "        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted\n"
    "          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = "
    "current_database())\n"
    "          AND l.classid::bigint = (k >> 32 & 4294967295) AND l.objid::bigint = (k & "
    "4294967295))\n"
    "FROM unnest($1::oid[]) WITH ORDINALITY AS t(oid, n)\n"
    "JOIN lockstep.outboxes o ON o.outbox::oid = t.oid ORDER BY t.n";

constexpr char kFind[] =
    "SELECT o.outbox::oid::bigint, o.shards FROM lockstep.outboxes o WHERE o.outbox = "
    "to_regclass($1)";
constexpr char kJoin[] =
    "SELECT pg_advisory_lock_shared(lockstep.lock_key('member', $1::oid::regclass, 0))";
constexpr char kLeave[] =
    "SELECT pg_advisory_unlock_shared(lockstep.lock_key('member', $1::oid::regclass, 0))";
// LIMIT ends the locking as soon as enough are had.
constexpr char kTake[] =
    "SELECT s FROM unnest($2::int[]) s\n"
    "WHERE pg_try_advisory_lock(lockstep.lock_key('shard', $1::oid::regclass, s)) LIMIT $3::int";
constexpr char kUnlock[] =
    "SELECT count(pg_advisory_unlock(lockstep.lock_key('shard', $1::oid::regclass, s)))\n"
    "FROM unnest($2::int[]) s";
constexpr char kSetShards[] =
    "UPDATE lockstep.outboxes SET shards = $2 WHERE outbox = $1::oid::regclass";

constexpr Millis kLeavingPoll{20};

Array Ints(const std::vector<int>& values) {
  Array array;
  for (const int value : values) array.Add(int64_t{value});
  return array;
}

std::vector<int> ReadShards(const postgres::Result& result) {
  std::vector<int> shards;
  for (int i = 0; i < result.rows(); ++i) shards.push_back(static_cast<int>(result.Int(i, 0)));
  return shards;
}

// All shards but `held`, in an order of this instance's own, so that two do not race for the same.
std::vector<int> Others(int count, const std::vector<int>& held) {
  std::vector<int> others;
  for (int shard = 0; shard < count; ++shard) {
    if (std::find(held.begin(), held.end(), shard) == held.end()) others.push_back(shard);
  }
  static thread_local std::mt19937 engine(std::random_device{}());
  std::shuffle(others.begin(), others.end(), engine);
  return others;
}

}  // namespace

ShardOwner::ShardOwner(OwnershipOptions options, std::string database, std::vector<Relay*> relays,
                       const Clock& clock)
    : options_(options),
      database_(std::move(database)),
      clock_(clock),
      health_(absl::UnavailableError("starting")) {
  for (Relay* relay : relays) tables_.push_back({.relay = relay});
}

ShardOwner::~ShardOwner() { Stop(); }

absl::Status ShardOwner::Start() {
  return thread_.Start([this] { Run(); });
}

void ShardOwner::Stop() {
  thread_.Stop([this] {
    std::scoped_lock lock(mu_);
    stop_ = true;
    changed_.notify_all();
  });
}

absl::Status ShardOwner::health() const {
  std::scoped_lock lock(mu_);
  return health_;
}

void ShardOwner::WaitFor(Millis time) {
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, time, [this] { return stop_; });
}

void ShardOwner::Run() {
  Backoff backoff(RetryPolicy{.max_attempts = 0, .base = Millis(250), .cap = Millis(10'000)});
  const auto stopped = [this] {
    std::scoped_lock lock(mu_);
    return stop_;
  };
  while (!stopped()) {
    absl::Status done = session_ == nullptr ? Connect() : absl::OkStatus();
    if (done.ok()) done = Round();
    {
      std::scoped_lock lock(mu_);
      health_ = done;
    }
    if (done.ok()) {
      backoff.Reset();
      WaitFor(AnyLeaving() ? kLeavingPoll : options_.ping_interval);
      continue;
    }
    log::Warning("shards are not held", {{"error", done}});
    Lose();
    WaitFor(backoff.Next());
  }
  session_.reset();  // and every lock with it
}

absl::StatusOr<std::unique_ptr<postgres::Connection>> ShardOwner::OpenSession(
    const std::string& database, Millis session_timeout) {
  postgres::ConnectionOptions options;
  options.url = database;
  options.application_name = "lockstep-publisher shards";
  options.idle_session_timeout = session_timeout;
  options.statement_timeout = Millis(10'000);
  ASSIGN_OR_RETURN(auto session, postgres::Connection::Open(options));
  // A transaction pooler that takes its server sessions in turn gives one client two of them in a
  // row; one that takes the last used gives two clients the same.
  ASSIGN_OR_RETURN(const auto other, postgres::Connection::Open(options));
  ASSIGN_OR_RETURN(const auto first, session->Execute(kBackend));
  ASSIGN_OR_RETURN(const auto second, session->Execute(kBackend));
  ASSIGN_OR_RETURN(const auto elsewhere, other->Execute(kBackend));
  ASSIGN_OR_RETURN(const auto third, session->Execute(kBackend));
  const int64_t backend = first.Int(0, 0);
  if (second.Int(0, 0) != backend || third.Int(0, 0) != backend || elsewhere.Int(0, 0) == backend) {
    return FailedPrecondition(
        "the database is reached through a transaction pooler, on which session locks do not hold: "
        "connect the publisher to Postgres itself, or through a pool in session mode");
  }
  return session;
}

absl::Status ShardOwner::Connect() {
  ASSIGN_OR_RETURN(session_, OpenSession(database_, options_.session_timeout));
  ASSIGN_OR_RETURN(const auto backend, session_->Execute(kBackend));
  backend_ = backend.Int(0, 0);
  for (Table& table : tables_) RETURN_IF_ERROR(Register(table));
  return absl::OkStatus();
}

absl::Status ShardOwner::Register(Table& table) {
  const RelayOptions& relay = table.relay->options();
  ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(relay.table));
  ASSIGN_OR_RETURN(const auto found, session_->Execute(kFind, name.Quoted()));
  if (found.empty()) {
    return FailedPrecondition("{} is not an outbox: make it with lockstepctl outbox create {}",
                              relay.table, relay.table);
  }
  table.oid = found.Int(0, 0);
  table.count = static_cast<int>(found.Int(0, 1));
  const int wanted = relay.ShardCount();
  if (wanted != table.count) {
    // Alone on the table: with every lock in hand nobody relays by the old number.
    ASSIGN_OR_RETURN(
        const auto taken,
        session_->Execute(kTake, table.oid, Ints(Others(table.count, {})), table.count));
    if (taken.rows() == table.count) {
      RETURN_IF_ERROR(session_->Execute(kSetShards, table.oid, wanted).status());
      log::Info("shards changed", {{"table", relay.table}, {"from", table.count}, {"to", wanted}});
      table.count = wanted;
    } else {
      log::Warning("another publisher relays by another number of shards; it stays",
                   {{"table", relay.table}, {"shards", table.count}, {"configured", wanted}});
    }
    RETURN_IF_ERROR(Unlock(table, ReadShards(taken)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ShardOwner::View>> ShardOwner::Look() {
  Array oids;
  for (const Table& table : tables_) oids.Add(table.oid);
  ASSIGN_OR_RETURN(const auto rows, session_->Execute(kLook, oids));
  if (rows.rows() != static_cast<int>(tables_.size())) {
    return FailedPrecondition("an outbox was dropped while it was relayed");
  }
  std::vector<View> views;
  for (int i = 0; i < rows.rows(); ++i) {
    if (rows.Int(i, 1) != backend_) {
      return FailedPrecondition(
          "the session moved to another server process: a transaction pooler "
          "stands between; connect the publisher to Postgres itself");
    }
    views.push_back({static_cast<int>(rows.Int(i, 0)), static_cast<int>(rows.Int(i, 2))});
  }
  return views;
}

absl::Status ShardOwner::Round() {
  if (tables_.empty()) return absl::OkStatus();
  for (Table& table : tables_) {
    const bool hung = clock_.Steady() - table.relay->last_turn() > options_.watchdog;
    if (hung && table.member) {
      log::Error("the relay stands still: its shards are given up",
                 {{"table", table.relay->options().table}});
      RETURN_IF_ERROR(Abandon(table));
    } else if (!hung && !table.member) {
      RETURN_IF_ERROR(session_->Execute(kJoin, table.oid).status());
      table.member = true;
    }
    RETURN_IF_ERROR(FinishLeaving(table));
  }
  // Back in a moment, unless it is time for a ping.
  if (AnyLeaving() && clock_.Steady() - last_look_ < options_.ping_interval) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<View> views, Look());
  last_look_ = clock_.Steady();
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (!tables_[i].member || !tables_[i].leaving.empty()) continue;
    RETURN_IF_ERROR(Balance(tables_[i], views[i]));
  }
  return absl::OkStatus();
}

absl::Status ShardOwner::Balance(Table& table, const View& view) {
  if (view.count != table.count) {
    RETURN_IF_ERROR(LetGo(table, 0));
    if (!table.leaving.empty()) return absl::OkStatus();
    table.count = view.count;
  }
  const int members = std::max(view.members, 1);
  const auto share = static_cast<size_t>((table.count + members - 1) / members);
  if (table.held.size() > share) return LetGo(table, share);
  if (table.held.size() < share) return Acquire(table, static_cast<int>(share));
  return absl::OkStatus();
}

absl::Status ShardOwner::Acquire(Table& table, int wanted) {
  const int missing = wanted - static_cast<int>(table.held.size());
  ASSIGN_OR_RETURN(
      const auto taken,
      session_->Execute(kTake, table.oid, Ints(Others(table.count, table.held)), missing));
  if (taken.empty()) {
    if (table.held.empty()) table.relay->StandBy();
    return absl::OkStatus();
  }
  for (const int shard : ReadShards(taken)) table.held.push_back(shard);
  std::sort(table.held.begin(), table.held.end());
  table.change = table.relay->SetShards(table.held, table.count);
  return absl::OkStatus();
}

absl::Status ShardOwner::LetGo(Table& table, size_t keep) {
  if (table.held.size() <= keep) return absl::OkStatus();
  table.leaving.assign(table.held.begin() + static_cast<std::ptrdiff_t>(keep), table.held.end());
  table.held.resize(keep);
  table.change = table.relay->SetShards(table.held, table.count);
  return absl::OkStatus();
}

absl::Status ShardOwner::FinishLeaving(Table& table) {
  if (table.leaving.empty() || !table.relay->LeftBehind(table.change)) return absl::OkStatus();
  return Unlock(table, std::exchange(table.leaving, {}));
}

absl::Status ShardOwner::Abandon(Table& table) {
  RETURN_IF_ERROR(Unlock(table, std::exchange(table.held, {})));
  RETURN_IF_ERROR(Unlock(table, std::exchange(table.leaving, {})));
  RETURN_IF_ERROR(session_->Execute(kLeave, table.oid).status());
  table.member = false;
  table.change = table.relay->SetShards({}, table.count);
  return absl::OkStatus();
}

absl::Status ShardOwner::Unlock(const Table& table, const std::vector<int>& shards) {
  if (shards.empty()) return absl::OkStatus();
  return session_->Execute(kUnlock, table.oid, Ints(shards)).status();
}

void ShardOwner::Lose() {
  session_.reset();
  for (Table& table : tables_) {
    table.member = false;
    table.leaving.clear();
    if (table.held.empty()) continue;
    table.held.clear();
    table.change = table.relay->SetShards({}, std::max(table.count, 1));
  }
}

bool ShardOwner::AnyLeaving() const {
  return std::any_of(tables_.begin(), tables_.end(),
                     [](const Table& table) { return !table.leaving.empty(); });
}

}  // namespace lockstep::publisher
