// Rebuild::TrySwap and SwapBack: the slots change places. Each is one transaction and a reset: the
// epoch's lock is held exclusively, tables are renamed, the slot is flipped, a new epoch begins.
// Runners of the group go over to the new slot by themselves.
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "offsets/lock_retry.h"
#include "offsets/reset.h"
#include "operations/rebuild.h"
#include "operations/shadow_filler.h"
#include "operations/shadow_tables.h"
#include "platform/status.h"
#include "projections/declare/group_file.h"
#include "state/events/dead_letters.h"
#include "state/positions/offsets.h"

namespace lockstep::operations {
namespace {

using state::RebuildRow;
using state::RebuildState;

constexpr Millis kLook{20};
// How long one slot may need to catch up with the other, and how often that is tried before the two
// are compared as they are (no runner may be up).
constexpr Millis kLevel{5'000};
constexpr int kLevelTries = 5;

// Until one slot has caught up with the other, or kLevel has passed: how many events it lacks then.
absl::StatusOr<int64_t> AwaitLevel(const std::function<absl::StatusOr<int64_t>()>& count_missing) {
  const SteadyTime give_up = Clock::System().Steady() + kLevel;
  while (true) {
    ASSIGN_OR_RETURN(const int64_t missing, count_missing());
    if (missing == 0 || Clock::System().Steady() >= give_up) return missing;
    std::this_thread::sleep_for(kLook);
  }
}

absl::Status OtherMapping(const std::string& names, const std::string& group) {
  return FailedPrecondition(
      "these runners have another mapping than the file that the new tables were filled with: {}. "
      "What they write after the swap would lack what that file adds, so nothing was swapped. Give "
      "them the file, restart them (SIGHUP is not enough), and go on with `lockstepctl rebuild "
      "resume {}`. One that was killed counts for a minute",
      names, group);
}

}  // namespace

bool SwapResult::differs() const {
  return std::any_of(tables.begin(), tables.end(), [](const auto& t) { return !t.equal(); });
}

absl::StatusOr<int64_t> Rebuild::CountMissing(postgres::Transaction& transaction,
                                              const ConsumerGroup& in, const ConsumerGroup& not_in,
                                              WallTime since) const {
  ASSIGN_OR_RETURN(const auto missing, inbox_.CountMissing(transaction, in, not_in, since, since));
  return missing.all;
}

absl::StatusOr<bool> Rebuild::RunnersAgree(const RebuildRow& row) {
  ASSIGN_OR_RETURN(const auto others, instances_.WithOtherMapping(connection_, row.mapping));
  const Millis so_long = disagree_.For(others.empty(), Clock::System().Steady());
  if (others.empty()) return true;
  const std::string names = fmt::format("{}", fmt::join(others, ", "));
  if (so_long > parts_.restarts) return OtherMapping(names, GroupWords(row));
  if (std::exchange(disagreeing_, names) != names) {
    listener_.note("the swap waits for the restart of runners with another mapping: " + names);
  }
  return false;
}

absl::StatusOr<std::map<std::string, std::set<std::string>>> Rebuild::NotCompared(
    postgres::Connection& connection, const RebuildRow& row) const {
  std::map<std::string, std::set<std::string>> columns;
  const auto leave_out = [&](const std::string& name) {
    const size_t dot = name.rfind('.');
    columns[name.substr(0, dot)].insert(name.substr(dot + 1));
  };
  for (const std::string& name : parts_.ignored_columns) leave_out(name);
  ASSIGN_OR_RETURN(const auto live, slots_.Columns(connection, row.old_slot));
  if (live.empty()) return columns;
  ASSIGN_OR_RETURN(const auto declared, Declared());
  for (const std::string& name : declared.projector->Columns()) {
    if (std::ranges::find(live, name) == live.end()) leave_out(name);
  }
  return columns;
}

// The two must have seen the same events to be compared: from here on the shadow takes only what
// the live slot has taken, and the live slot catches up with what the shadow was ahead.
absl::StatusOr<bool> Rebuild::TrySwap(const RebuildRow& row, bool despite_differences,
                                      ShadowFiller& filler) {
  ASSIGN_OR_RETURN(const bool agree, RunnersAgree(row));
  if (!agree) return false;
  const WallTime since = std::max(checked_until_, row.seek.time.value_or(row.began_at));
  ASSIGN_OR_RETURN(const auto live, live_.Load(connection_));
  filler.FollowOnly(live.generation);
  const auto count_ahead = [&]() -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_.Begin());
    return CountMissing(transaction, shadow_group_, group_, since);
  };
  RETURN_IF_ERROR(AwaitLevel(count_ahead).status());
  ++tries_;
  ASSIGN_OR_RETURN(not_compared_, NotCompared(connection_, row));
  bool waits = false;
  SwapResult found;
  const auto tell = [&](const std::vector<std::string>& holders) {
    waits = true;
    const std::string whom = fmt::format("{}", fmt::join(holders, "; "));
    listener_.note("the swap waits for " + (whom.empty() ? "somebody who has just gone" : whom));
  };
  const absl::Status tried = offsets::WithLockRetry(
      connection_, schema_, group_, {.tables = row.tables, .give_up = Millis(0), .on_wait = tell},
      [&](auto& transaction) -> absl::Status {
        ASSIGN_OR_RETURN(found, Swap(transaction, since, despite_differences, filler));
        return absl::OkStatus();
      });
  filler.Stop();  // and with a new start it takes everything again
  if (waits) return false;
  RETURN_IF_ERROR(tried);
  last_swap_ = std::move(found);  // committed, so it is true
  if (last_swap_->swapped) return true;
  if (last_swap_->tables.empty()) return false;
  return FailedPrecondition(
      "the new tables differ from the live ones, so nothing was swapped; `lockstepctl rebuild "
      "resume {0} --accept-differences` puts them in place as they are, `lockstepctl rebuild abort "
      "{0}` drops them",
      GroupWords(row));
}

absl::StatusOr<RebuildRow> Rebuild::LockIn(postgres::Transaction& transaction, RebuildState state) {
  ASSIGN_OR_RETURN(auto row, rebuilds_.Lock(transaction));
  if (row && row->state == state) return *std::move(row);
  return FailedPrecondition("the rebuild has gone on without this command");
}

absl::StatusOr<SwapResult> Rebuild::Swap(postgres::Transaction& transaction, WallTime since,
                                         bool despite_differences, ShadowFiller& filler) {
  SwapResult result;
  RETURN_IF_ERROR(live_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(const RebuildRow row, LockIn(transaction, RebuildState::kFilling));
  ASSIGN_OR_RETURN(const state::GroupEpoch now, live_.Load(transaction));
  if (!now.seek_done) {
    return FailedPrecondition(
        "a reset of the group is under way; resume the rebuild once its Seek is done");
  }
  // The live slot stands still meanwhile: nothing is added to what the shadow must reach.
  ASSIGN_OR_RETURN(const int64_t missing, AwaitLevel([&] {
                     return CountMissing(transaction, group_, shadow_group_, since);
                   }));
  if (missing > 0) return result;
  RETURN_IF_ERROR(Reached("swap.locked"));
  // Whoever comes from here on finds another epoch, and says its mapping before it writes.
  ASSIGN_OR_RETURN(const auto others, instances_.WithOtherMapping(transaction, row.mapping));
  if (!others.empty()) return result;
  filler.Stop();
  RETURN_IF_ERROR(shadow_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(result.ahead, CountMissing(transaction, shadow_group_, group_, since));
  if (result.ahead > 0 && tries_ < kLevelTries) return result;
  const ShadowTables tables(row.tables);
  ASSIGN_OR_RETURN(const auto changes, tables.Changes(transaction, row.shadow_suffix()));
  if (!changes.empty()) {
    return FailedPrecondition(
        "the tables have changed since the rebuild began; abort it and begin again:\n  {}",
        fmt::join(changes, "\n  "));
  }
  for (const std::string& table : row.tables) {
    const std::string shadow = table + row.shadow_suffix();
    std::set<std::string> ignored = filler.write_times(shadow);
    ignored.erase("");  // it has none
    ignored.insert(not_compared_[table].begin(), not_compared_[table].end());
    ASSIGN_OR_RETURN(auto comparison, CompareTables(transaction, table, shadow, ignored));
    result.tables.push_back(std::move(comparison));
  }
  RETURN_IF_ERROR(Reached("swap.verified"));
  if (result.differs() && !despite_differences) return result;
  RETURN_IF_ERROR(tables.Swap(transaction, RebuildRow::Suffix(row.old_slot), row.shadow_suffix()));
  RETURN_IF_ERROR(Reached("swap.renamed"));
  RETURN_IF_ERROR(HandOver(transaction, row));
  RETURN_IF_ERROR(Reached("swap.flipped"));
  result.swapped = true;
  return result;
}

absl::Status Rebuild::HandOver(postgres::Transaction& transaction, const RebuildRow& row) {
  RETURN_IF_ERROR(rebuilds_.SetSwapped(transaction));
  RETURN_IF_ERROR(slots_.Take(transaction, shadow_group_, row.new_slot));
  RETURN_IF_ERROR(slots_.Activate(transaction, row.new_slot, row.old_slot, row.tables,
                                  RebuildRow::Suffix(row.old_slot)));
  if (parts_.options.inbox == runner::InboxMode::kAggregate) {
    RETURN_IF_ERROR(slots_.GoByVersions(transaction, row.new_slot));
  }
  RETURN_IF_ERROR(state::DeadLetters(schema_, group_).Take(transaction, shadow_group_));
  RETURN_IF_ERROR(offsets::Resets(schema_, group_)
                      .Write(transaction, {.skip_before = row.seek.time,
                                           .operator_name = row.operator_name,
                                           .reason = row.reason,
                                           .action = "rebuild.swapped"})
                      .status());
  RETURN_IF_ERROR(state::Offsets(schema_).Take(transaction, group_, shadow_group_));
  RETURN_IF_ERROR(state::Instances(schema_, shadow_group_).ForgetAll(transaction));
  return shadow_.Forget(transaction);
}

// Back to the old slot, whose subscription has kept what came since.
absl::Status Rebuild::SwapBack(postgres::Transaction& transaction, const std::string& operator_name,
                               const std::string& reason) {
  RETURN_IF_ERROR(live_.LockExclusively(transaction));
  ASSIGN_OR_RETURN(const RebuildRow row, LockIn(transaction, RebuildState::kSwapped));
  RETURN_IF_ERROR(ShadowTables(row.tables)
                      .Swap(transaction, row.shadow_suffix(), RebuildRow::Suffix(row.old_slot)));
  RETURN_IF_ERROR(
      slots_.Activate(transaction, row.old_slot, row.new_slot, row.tables, row.shadow_suffix()));
  RETURN_IF_ERROR(offsets::Resets(schema_, group_)
                      .Write(transaction, {.skip_before = row.old_skip_before,
                                           .operator_name = operator_name,
                                           .reason = reason,
                                           .action = "rebuild.rolled_back"})
                      .status());
  RETURN_IF_ERROR(rebuilds_.SetDiscarding(transaction, row.new_slot));
  return Reached("rollback.flipped");
}

}  // namespace lockstep::operations
