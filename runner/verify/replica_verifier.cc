#include "runner/verify/replica_verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platform/config/database_address.h"
#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/sql_error.h"
#include "runner/verify/range_step.h"

namespace lockstep::runner {
namespace {

constexpr size_t kErrorBytes = 2'000;
constexpr int64_t kFewestRows = 100;
constexpr int kLookAgainAt = 1'000;  // rows that differ, per turn

std::string ShellQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) c == '\'' ? quoted += "'\\''" : quoted += c;
  return quoted + "'";
}

std::vector<state::ListedDifference> Listed(const std::vector<verify::Difference>& differences) {
  std::vector<state::ListedDifference> listed;
  for (const verify::Difference& one : differences) {
    listed.push_back({one.key, std::string(Name(one.kind))});
  }
  return listed;
}

// A difference that was seen once only is none yet.
absl::Status Confirmed(const verify::VerifyResult& result) {
  if (result.unconfirmed.empty() || result.equal()) return absl::OkStatus();
  return Unavailable("rows differ, and whether they are changes under way can't be told: {}",
                     result.unconfirmed);
}

}  // namespace

std::string VerifyArguments(const VerifyTarget& target, const std::string& source) {
  return fmt::format("--declaration {} --source {}", ShellQuoted(target.file),
                     ShellQuoted(WithoutPassword(source)));
}

ReplicaVerifier::ReplicaVerifier(Options options, std::vector<VerifiedGroup> groups,
                                 MetricsRegistry& metrics)
    : options_(std::move(options)), schema_(options_.state_schema) {
  for (VerifiedGroup& group : groups) {
    const std::string name = group.name;
    every_[name] = group.schedule.every;
    Kept kept{
        .group = std::move(group),
        .store = {schema_, ConsumerGroup(name)},
        .tables = {},
        .failures = CounterOf(metrics, "replica_verify_failures_total",
                              "Tries to compare a range that came to nothing", {{"group", name}})};
    for (const VerifyTarget& target : kept.group.targets) {
      for (const verify::VerifyTable& table : target.tables) {
        kept.tables.emplace_back(target.declaration.name, table.projection);
      }
    }
    groups_.push_back(std::move(kept));
  }
}

absl::Status ReplicaVerifier::Start() {
  // Groups without a source can't get one without a restart.
  if (std::ranges::all_of(groups_, [](const Kept& kept) { return kept.tables.empty(); })) {
    return absl::OkStatus();
  }
  return thread_.Start([this] { Work(); });
}

void ReplicaVerifier::Follow(const std::string& group, Millis every) {
  const std::scoped_lock lock(mu_);
  if (const auto found = every_.find(group); found != every_.end()) found->second = every;
}

Millis ReplicaVerifier::EveryOf(const Kept& kept) {
  const std::scoped_lock lock(mu_);
  return every_.at(kept.group.name);
}

void ReplicaVerifier::Work() {
  while (!thread_.stopping()) {
    bool worked = false;
    Millis look = options_.look;
    for (Kept& kept : groups_) {
      if (thread_.stopping()) break;
      const auto turn = Turn(kept);
      // The groups say it loudly when their database is down.
      if (!turn.ok()) {
        log::Debug("what is to be verified can't be looked at",
                   {{"group", kept.group.name}, {"error", turn.status()}});
      }
      worked |= turn.value_or(false);
      if (const Millis every = EveryOf(kept); every > Millis(0)) {
        look = std::clamp(every / 4, Millis(100), look);
      }
    }
    if (!worked) SleepUnlessStopped(thread_.stop_token(), look);
  }
  session_.reset();
}

absl::StatusOr<bool> ReplicaVerifier::Turn(const std::string& group) {
  for (Kept& kept : groups_) {
    if (kept.group.name == group) return Turn(kept);
  }
  return false;
}

absl::StatusOr<bool> ReplicaVerifier::Turn(Kept& kept) {
  const Millis every = EveryOf(kept);
  if (every <= Millis(0) || kept.tables.empty()) return false;
  if (session_ == nullptr || session_->broken()) {
    session_.reset();
    ASSIGN_OR_RETURN(session_,
                     postgres::Connection::Open(
                         {.url = options_.database, .application_name = "lockstep-runner verify"}));
  }
  if (const SteadyTime now = Clock::System().Steady(); now >= kept.declare_at) {
    RETURN_IF_ERROR(kept.store.Declare(*session_, kept.tables));
    kept.declare_at = now + options_.declare;
  }
  ASSIGN_OR_RETURN(const auto lease, kept.store.Claim(*session_, kept.tables, options_.instance,
                                                      {.every = every,
                                                       .again = std::min(options_.again, every),
                                                       .lease = options_.lease}));
  if (!lease) return false;
  for (const VerifyTarget& target : kept.group.targets) {
    if (target.declaration.name != lease->backfill) continue;
    for (const verify::VerifyTable& table : target.tables) {
      if (table.projection != lease->projection) continue;
      const absl::Status done = Compare(kept, target, table, *lease, every);
      if (!done.ok()) RETURN_IF_ERROR(Note(kept, *lease, done));
      return true;
    }
  }
  return false;
}

absl::Status ReplicaVerifier::Compare(Kept& kept, const VerifyTarget& target,
                                      const verify::VerifyTable& table, state::Verification lease,
                                      Millis every) {
  const SteadyTime began = Clock::System().Steady();
  const VerifySchedule& schedule = kept.group.schedule;
  verify::PassageOptions passage{.timeout = options_.passage_timeout, .grace = schedule.grace};
  SteadyTime renewed = began;
  const auto alive = [&] {
    const SteadyTime now = Clock::System().Steady();
    if (now - renewed < options_.lease / 8) return;
    renewed = now;
    kept.store.Renew(*session_, lease, options_.lease).status().IgnoreError();
  };
  passage.waiting = [&](const std::string&) { alive(); };
  ASSIGN_OR_RETURN(const auto step,
                   RangeStep::Open({.target = target,
                                    .table = table,
                                    .projector = schedule.deep ? kept.group.projector : nullptr,
                                    .source = schedule.source,
                                    .replica = options_.database,
                                    .schema = schema_,
                                    .group = kept.group.name,
                                    .passage = passage,
                                    .statement_timeout = options_.statement_timeout,
                                    .stop = thread_.stop_token(),
                                    .alive = alive}));
  if (const std::string keyed_by = step->KeyedBy(); keyed_by != lease.keyed_by) {
    ASSIGN_OR_RETURN(const bool ours, kept.store.Rekey(*session_, lease, keyed_by));
    if (!ours) return absl::OkStatus();
  }
  if (lease.listed > 0) {
    ASSIGN_OR_RETURN(const auto known, kept.store.Listed(*session_, lease, kLookAgainAt));
    std::vector<verify::RowKey> keys;
    for (const state::ListedDifference& one : known) {
      // Another runner, of another key, may have the lease by now.
      if (one.key.size() == table.keys.size()) keys.push_back(one.key);
    }
    ASSIGN_OR_RETURN(const auto result, step->Keys(keys));
    RETURN_IF_ERROR(Confirmed(result));
    std::set<verify::RowKey> gone(keys.begin(), keys.end());
    for (const verify::Difference& one : result.differences) gone.erase(one.key);
    for (const verify::RowKey& key : result.undecided) gone.erase(key);
    ASSIGN_OR_RETURN(const bool ours,
                     kept.store.Looked(*session_, lease, Listed(result.differences),
                                       {gone.begin(), gone.end()}));
    if (!ours) return absl::OkStatus();
  }
  if (!lease.due) return kept.store.Release(*session_, lease);
  const int64_t divided =
      kept.divided.try_emplace({lease.backfill, lease.projection}, 1).first->second;
  ASSIGN_OR_RETURN(const auto compared, step->Next(lease.cursor, schedule.rows, divided));
  RETURN_IF_ERROR(Confirmed(compared.result));
  const int64_t done = std::max(compared.result.source_rows, compared.result.replica_rows);
  const auto took = std::chrono::duration_cast<Millis>(Clock::System().Steady() - began);
  ASSIGN_OR_RETURN(
      const bool ours,
      kept.store.Advance(*session_, lease,
                         {.next = compared.next,
                          .rows = done,
                          .undecided = compared.result.moving,
                          .uncounted = compared.result.more,
                          .differences = Listed(compared.result.differences),
                          .pause = PauseAfterRange(
                              every, std::chrono::duration_cast<Millis>(lease.now - lease.began_at),
                              took, done, compared.left),
                          .every = every}));
  if (!ours) return absl::OkStatus();
  if (compared.result.differs()) Tell(kept, target, table, compared.result.differences);
  if (!compared.next) {
    log::Info("a read model was compared with its source",
              {{"group", kept.group.name}, {"backfill", lease.backfill}, {"table", table.name}});
  }
  return absl::OkStatus();
}

void ReplicaVerifier::Tell(const Kept& kept, const VerifyTarget& target,
                           const verify::VerifyTable& table,
                           const std::vector<verify::Difference>& found) const {
  std::map<std::string, int64_t> counts;
  for (const verify::Difference& one : found) ++counts[std::string(Name(one.kind))];
  std::string classes;
  for (const auto& [kind, count] : counts) {
    classes += fmt::format("{}{} {}", classes.empty() ? "" : ", ", count, kind);
  }
  log::Warning("rows of the read model differ from their source",
               {{"group", kept.group.name},
                {"backfill", target.declaration.name},
                {"table", table.name},
                {"rows", classes},
                {"next", fmt::format("{} verify {} --group {}", options_.ctl,
                                     VerifyArguments(target, kept.group.schedule.source),
                                     ShellQuoted(kept.group.name))}});
}

absl::Status ReplicaVerifier::Note(Kept& kept, const state::Verification& lease,
                                   const absl::Status& fault) {
  if (thread_.stopping()) return kept.store.Release(*session_, lease);
  kept.failures.Increment();
  std::string words = Truncate(MessageOf(fault), kErrorBytes);
  Millis delay = options_.retry.Delay(lease.failures + 1, 0);
  if (postgres::SqlState(fault) == "57014") {  // it took too long, or somebody has cancelled it
    int64_t& divided =
        kept.divided.try_emplace({lease.backfill, lease.projection}, 1).first->second;
    if (kept.group.schedule.rows / divided > kFewestRows) {
      divided *= 2;
      delay = options_.retry.Delay(1, 0);
      words += "; it is tried again with half as many rows";
    } else {
      words += "; is there an index that yields the order of the keys, on both sides?";
    }
  }
  log::Fault("a read model could not be compared with its source; it is tried again",
             {{"group", kept.group.name},
              {"backfill", lease.backfill},
              {"projection", lease.projection},
              // A sentence about a row names its key.
              {"error", absl::IsUnavailable(fault) ? words : UnlessMasked(words)}});
  return kept.store.Fail(*session_, lease, words, std::min(delay, EveryOf(kept))).status();
}

}  // namespace lockstep::runner
