#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "operations/snapshot_arrival.h"
#include "operations/table_compare.h"
#include "publisher/backfill/declaration.h"
#include "pubsub/transport.h"
#include "runner/options/group_options.h"
#include "state/events/inbox.h"
#include "state/groups/epochs.h"
#include "state/groups/instances.h"
#include "state/groups/rebuilds.h"
#include "state/groups/slots.h"

namespace lockstep::projections {
struct GroupDeclaration;
struct GroupPlan;
}  // namespace lockstep::projections

namespace lockstep::operations {

// Called between the steps of a rebuild; anything but OK ends it there, as a crash would.
using RebuildStep = std::function<absl::Status(std::string_view step)>;

struct SwapResult {
  bool swapped = false;
  int64_t ahead = 0;                    // events that the shadow has and the live slot has not
  std::vector<TableComparison> tables;  // none = one slot lacks events of the other: later, then
  bool differs() const;
};

// What a rebuild would do, for the person who decides.
struct RebuildPlan {
  state::RebuildRow row;
  int64_t events = 0;                // about so many, snapshots included; 0 = not known
  std::optional<WallTime> earliest;  // how far back the topic reaches
};

class ShadowFiller;

// A group's rebuild, blue/green (README.md here; docs/adr/0006). The shadow slot is filled by a
// group of this very process, from a subscription of its own, while the group's runners serve from
// the live one. Everything that is decided is in one row of the state schema, and each step can be
// repeated: a rebuild that was interrupted anywhere is taken up by Resume or undone by Abort. One
// process drives a rebuild at a time. On the caller's thread.
class Rebuild {
 public:
  struct Parts {
    std::string database;
    std::string state_schema;
    std::string instance;  // of the group that fills
    pubsub::Transport& transport;
    runner::GroupOptions options;  // the live group's, with its subscription's full name
    std::string file;              // declares its projections
    // Of a rebuild from backfills: what they send, and a session of the source's database, which
    // outlives this object. Who goes on with one that has begun needs the session alone.
    std::vector<publisher::Declaration> backfills = {};
    postgres::Connection* source = nullptr;
    std::vector<std::string> ignored_columns = {};  // table.column: not compared
    Millis poll{250};
    Millis quiet{3'000};      // without a delivery so long, nothing more comes
    Millis patience{30'000};  // what is missing for so long does not come
    Millis restarts{90'000};  // runners with another mapping may take so long to restart
    RebuildStep at = {};      // for tests
  };
  struct Listener {
    std::function<void(int64_t done, int64_t total)> progress;  // total: about; 0 = not known
    std::function<void(const std::string&)> note;               // what happens, in a sentence
  };

  // REQUIRES: `connection` is the caller's own, for this object alone. Without statement_timeout:
  // to compare large tables takes long.
  Rebuild(Parts parts, postgres::Connection& connection, Listener listener)
      : parts_(std::move(parts)), connection_(connection), listener_(std::move(listener)) {}

  // Looks, and changes nothing. Refusals say what is possible instead. `wanted` says from where
  // (unless there are backfills), how long the old slot is kept, who asks and why; the plan has the
  // rest.
  absl::StatusOr<RebuildPlan> Plan(state::RebuildRow wanted);
  absl::Status Begin(const RebuildPlan& plan);

  // Goes on from wherever it stands until the slots are swapped, or a discard is done. CANCELLED
  // when `stop` is requested: nothing is lost.
  absl::Status Resume(bool despite_differences, const std::stop_token& stop);

  absl::Status Rollback(const std::string& operator_name, const std::string& reason);
  // Ends it for good: the slot that does not serve goes. Before `keep_old` is over only with `now`.
  absl::Status Finish(bool now);
  // Undoes what has not been swapped yet, its backfills too unless they are to go on.
  absl::Status Abort(bool keep_backfills = false);
  // The row, unless they would be refused as it stands now: to be known before somebody is asked.
  absl::StatusOr<state::RebuildRow> MayRollback();
  absl::StatusOr<state::RebuildRow> MayFinish(bool now);
  absl::StatusOr<state::RebuildRow> MayAbort(bool keep_backfills = false);

  absl::StatusOr<std::optional<state::RebuildRow>> Load() { return rebuilds_.Load(connection_); }
  // What the last try to swap has found.
  const std::optional<SwapResult>& last_swap() const { return last_swap_; }

 private:
  absl::Status LockDriver();
  // The group as `rebuild resume` and `abort` want it named.
  std::string GroupWords(const state::RebuildRow& row) const {
    return group_.value() + (row.from_backfill() ? " --source …" : "");
  }
  absl::StatusOr<state::RebuildRow> Need();
  // The group's file as it is now.
  absl::StatusOr<projections::GroupDeclaration> Declared() const;
  absl::Status Reached(std::string_view step) const {
    return parts_.at ? parts_.at(step) : absl::OkStatus();
  }
  // In one transaction, again while others hold the locks of the group or of these tables.
  absl::Status Change(std::vector<std::string> tables,
                      const std::function<absl::Status(postgres::Transaction&)>& change);

  // rebuild_plan.cc
  absl::Status PlanSeek(const pubsub::Subscription& live, RebuildPlan& plan);
  absl::Status CountEvents(RebuildPlan& plan);

  // rebuild_backfill.cc
  absl::Status PlanBackfills(RebuildPlan& plan, const projections::GroupPlan& group);
  absl::Status NeedSource(const state::RebuildRow& row) const;
  absl::Status StartBackfills(const state::RebuildRow& row);
  // Once all are done.
  absl::StatusOr<std::optional<std::vector<publisher::BackfillRecord>>> BackfillsDone(
      const state::RebuildRow& row);
  absl::StatusOr<bool> CaughtUpFromBackfills(const state::RebuildRow& row,
                                             bool despite_differences);
  absl::Status CancelBackfills(const state::RebuildRow& row);

  absl::Status Prepare(const state::RebuildRow& row);
  absl::Status Subscribe(const std::string& name, const std::string& like);
  absl::Status Fill(const state::RebuildRow& row, bool despite_differences,
                    const std::stop_token& stop);
  // Whether the shadow has everything, so that a swap can be tried.
  absl::StatusOr<bool> CaughtUp(const state::RebuildRow& row, bool nothing_comes);

  // rebuild_swap.cc: the two moments at which the slots change places.
  absl::StatusOr<bool> TrySwap(const state::RebuildRow& row, bool despite_differences,
                               ShadowFiller& filler);
  // By table: those that are not compared because somebody said so, or because the live table was
  // not written with them from the beginning.
  absl::StatusOr<std::map<std::string, std::set<std::string>>> NotCompared(
      postgres::Connection& connection, const state::RebuildRow& row) const;
  // False = a runner that may be writing has another mapping: after the swap rows would lack what
  // the new one adds.
  absl::StatusOr<bool> RunnersAgree(const state::RebuildRow& row);
  absl::StatusOr<SwapResult> Swap(postgres::Transaction& transaction, WallTime since,
                                  bool despite_differences, ShadowFiller& filler);
  absl::Status SwapBack(postgres::Transaction& transaction, const std::string& operator_name,
                        const std::string& reason);
  absl::StatusOr<state::RebuildRow> LockIn(postgres::Transaction& transaction,
                                           state::RebuildState state);
  // Events that the active slot of one group has since then and that of the other lacks.
  absl::StatusOr<int64_t> CountMissing(postgres::Transaction& transaction, const ConsumerGroup& in,
                                       const ConsumerGroup& not_in, WallTime since) const;
  absl::Status HandOver(postgres::Transaction& transaction, const state::RebuildRow& row);

  // rebuild_end.cc
  absl::Status Decide(state::RebuildRow& row, int discard_slot);
  absl::Status Discard(const state::RebuildRow& row);
  absl::Status DropSlot(postgres::Transaction& transaction, const state::RebuildRow& row);
  absl::Status ForgetSubscription(const std::string& subscription);

  const Parts parts_;
  postgres::Connection& connection_;
  const Listener listener_;
  const state::Schema schema_{parts_.state_schema};
  const ConsumerGroup group_{parts_.options.name};
  const state::Rebuilds rebuilds_{schema_, group_};
  const ConsumerGroup shadow_group_ = rebuilds_.shadow_group();
  const state::Epochs live_{schema_, group_};
  const state::Epochs shadow_{schema_, shadow_group_};
  const state::Inbox inbox_{schema_};
  const state::Slots slots_{schema_, group_};
  const state::Instances instances_{schema_, group_};
  // How long something has been so.
  class Duration {
   public:
    Millis For(bool over, SteadyTime now) {
      if (over || !since_) since_ = now;
      return std::chrono::duration_cast<Millis>(now - *since_);
    }

   private:
    std::optional<SteadyTime> since_;
  };
  bool driver_ = false;
  WallTime checked_until_;       // the shadow has what the live slot got before
  int64_t not_redelivered_ = 0;  // and accepted
  int tries_ = 0;
  int64_t missing_ = -1;
  WallTime missing_since_;
  int64_t backfill_rows_ = 0;  // about so many in all
  SnapshotArrival arrival_{schema_, shadow_group_, parts_.options.inbox_retention};
  SnapshotArrival::Look snapshots_;                            // have come
  Duration disagree_;                                          // runners have another mapping
  std::string disagreeing_;                                    // of whom it was said
  std::map<std::string, std::set<std::string>> not_compared_;  // columns, by table
  Duration idle_, lacks_;  // no publisher is at it; some were sent, and no more come
  std::optional<SwapResult> last_swap_;
};

}  // namespace lockstep::operations
