#include "publisher/upkeep/shard_owner.h"

#include <algorithm>
#include <random>
#include <utility>

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::publisher {
namespace {

constexpr Millis kLeavingPoll{20};

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

absl::Status ShardOwner::health() const {
  std::scoped_lock lock(mu_);
  return health_;
}

void ShardOwner::Run() {
  Backoff backoff(RetryPolicy{.max_attempts = 0, .base = Millis(250), .cap = Millis(10'000)});
  for (Millis wait(0); !SleepUnlessStopped(thread_.stop_token(), wait);) {
    absl::Status done = locks_ == nullptr ? Connect() : absl::OkStatus();
    if (done.ok()) done = Round();
    {
      std::scoped_lock lock(mu_);
      health_ = done;
    }
    if (done.ok()) {
      backoff.Reset();
      wait = AnyLeaving() ? kLeavingPoll : options_.ping_interval;
    } else {
      log::Fault("shards are not held", {{"error", done}});
      Lose();
      wait = backoff.Next();
    }
  }
  locks_.reset();
}

absl::Status ShardOwner::Connect() {
  ASSIGN_OR_RETURN(locks_, ShardLocks::Open(database_, options_.session_timeout));
  for (Table& table : tables_) RETURN_IF_ERROR(Register(table));
  return absl::OkStatus();
}

absl::Status ShardOwner::Register(Table& table) {
  const RelayOptions& relay = table.relay->options();
  ASSIGN_OR_RETURN(const auto name, postgres::QualifiedName::Parse(relay.table));
  ASSIGN_OR_RETURN(const Outbox outbox, locks_->Find(name));
  table.oid = outbox.oid;
  table.count = outbox.shards;
  const int wanted = relay.ShardCount();
  if (wanted == table.count) return absl::OkStatus();
  // Alone on the table: with every lock in hand nobody relays by the old number.
  ASSIGN_OR_RETURN(const std::vector<int> taken,
                   locks_->Take(table.oid, Others(table.count, {}), table.count));
  if (static_cast<int>(taken.size()) == table.count) {
    RETURN_IF_ERROR(locks_->SetShardCount(table.oid, wanted));
    log::Info("shards changed", {{"table", relay.table}, {"from", table.count}, {"to", wanted}});
    table.count = wanted;
  } else {
    log::Warning("another publisher relays by another number of shards; it stays",
                 {{"table", relay.table}, {"shards", table.count}, {"configured", wanted}});
  }
  return locks_->Release(table.oid, taken);
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
      RETURN_IF_ERROR(locks_->Join(table.oid));
      table.member = true;
    }
    if (!table.leaving.empty() && table.relay->LeftBehind(table.change)) {
      RETURN_IF_ERROR(locks_->Release(table.oid, std::exchange(table.leaving, {})));
    }
  }
  // Back in a moment, unless it is time for a ping.
  if (AnyLeaving() && clock_.Steady() - last_look_ < options_.ping_interval) {
    return absl::OkStatus();
  }
  std::vector<int64_t> outboxes;
  for (const Table& table : tables_) outboxes.push_back(table.oid);
  ASSIGN_OR_RETURN(const std::vector<ShardLocks::View> views, locks_->Look(outboxes));
  last_look_ = clock_.Steady();
  for (size_t i = 0; i < tables_.size(); ++i) {
    Notice(tables_[i], views[i].stranger);
    if (!tables_[i].member || !tables_[i].leaving.empty()) continue;
    RETURN_IF_ERROR(Balance(tables_[i], views[i]));
  }
  return absl::OkStatus();
}

// Seen twice: a publisher that starts holds shards for a moment before it is a member.
void ShardOwner::Notice(Table& table, const std::string& stranger) {
  const bool again = stranger == std::exchange(table.stranger, stranger);
  const std::string& name = table.relay->options().table;
  if (again && !stranger.empty()) {
    log::Warning("a session that is no publisher holds a shard: its rows wait",
                 {{"table", name}, {"session", stranger}});
  }
  const std::scoped_lock lock(mu_);
  strangers_[name] = again ? stranger : "";
}

std::string ShardOwner::Stranger(const std::string& table) const {
  const std::scoped_lock lock(mu_);
  const auto found = strangers_.find(table);
  return found == strangers_.end() ? "" : found->second;
}

absl::Status ShardOwner::Balance(Table& table, const ShardLocks::View& view) {
  if (view.shards != table.count) {
    LetGo(table, 0);
    if (!table.leaving.empty()) return absl::OkStatus();
    table.count = view.shards;
  }
  const int members = std::max(view.members, 1);
  const auto share = static_cast<size_t>((table.count + members - 1) / members);
  LetGo(table, share);
  return table.held.size() < share ? Acquire(table, share) : absl::OkStatus();
}

absl::Status ShardOwner::Acquire(Table& table, size_t wanted) {
  const int missing = static_cast<int>(wanted - table.held.size());
  ASSIGN_OR_RETURN(const std::vector<int> taken,
                   locks_->Take(table.oid, Others(table.count, table.held), missing));
  if (taken.empty()) {
    if (table.held.empty()) table.relay->StandBy();
    return absl::OkStatus();
  }
  table.held.insert(table.held.end(), taken.begin(), taken.end());
  std::sort(table.held.begin(), table.held.end());
  table.change = table.relay->SetShards(table.held, table.count);
  return absl::OkStatus();
}

// The relay is told; the locks follow when nothing of theirs is in its hands any more.
void ShardOwner::LetGo(Table& table, size_t keep) {
  if (table.held.size() <= keep) return;
  table.leaving.assign(table.held.begin() + static_cast<std::ptrdiff_t>(keep), table.held.end());
  table.held.resize(keep);
  table.change = table.relay->SetShards(table.held, table.count);
}

absl::Status ShardOwner::Abandon(Table& table) {
  RETURN_IF_ERROR(locks_->Release(table.oid, std::exchange(table.held, {})));
  RETURN_IF_ERROR(locks_->Release(table.oid, std::exchange(table.leaving, {})));
  RETURN_IF_ERROR(locks_->Leave(table.oid));
  table.member = false;
  table.change = table.relay->SetShards({}, table.count);
  return absl::OkStatus();
}

// The session is gone, and every lock with it.
void ShardOwner::Lose() {
  locks_.reset();
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
