#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "state/positions/seek_target.h"
#include "state/schema.h"

namespace lockstep::state {

enum class RebuildState {
  kPreparing,   // the row is there; subscription and tables may be
  kFilling,     // the shadow slot is there and is being filled
  kSwapped,     // the shadow slot is the active one; the old one is kept
  kDiscarding,  // decided: `discard_slot` goes, with all that it has
};
std::string_view Name(RebuildState state);

// All that is known of a group's rebuild.
struct RebuildRow {
  RebuildState state = RebuildState::kPreparing;
  int old_slot = 0;
  int new_slot = 0;
  int discard_slot = 0;
  std::string old_subscription;
  std::string new_subscription;
  std::vector<std::string> tables;  // as declared
  std::string mapping;              // Projector::Mapping of the file that fills the shadow
  SeekTarget seek;
  // Backfills that bring what came before `seek`: by name, their ids at the source. None = the
  // topic's history does.
  std::map<std::string, std::string> backfills;
  std::string new_snapshots;  // the shadow's second subscription, of their own topic; empty = none
  bool accept_missing = false;
  Millis keep_old{0};
  std::string operator_name;
  std::string reason;
  WallTime began_at;
  std::optional<WallTime> swapped_at;
  std::optional<WallTime> old_skip_before;  // of the old slot, for a rollback

  // How the slot that is not active names its tables: behind the declared name.
  static std::string Suffix(int slot);
  bool from_backfill() const { return !backfills.empty(); }
  std::string shadow_suffix() const { return Suffix(new_slot); }
};

// The row of a group's rebuild.
class Rebuilds : public GroupStore {
 public:
  using GroupStore::GroupStore;

  // One at a time drives a rebuild. The lock is the session's.
  absl::StatusOr<bool> TryLock(postgres::Connection& connection) const;

  // Nothing when there is none. In a transaction the row is locked until its end.
  absl::StatusOr<std::optional<RebuildRow>> Load(postgres::Connection& connection) const;
  absl::StatusOr<std::optional<RebuildRow>> Lock(postgres::Transaction& transaction) const;

  absl::Status Insert(postgres::Transaction& transaction, const RebuildRow& row) const;
  // Makes the shadow group, with its slot and the Seek that its first session performs.
  absl::Status SetFilling(postgres::Transaction& transaction, const RebuildRow& row) const;
  // REQUIRES: called before the group's new epoch is written.
  absl::Status SetSwapped(postgres::Transaction& transaction) const;
  absl::Status SetDiscarding(postgres::Transaction& transaction, int slot) const;
  absl::Status Remove(postgres::Transaction& transaction) const;
  absl::Status Audit(postgres::Transaction& transaction, std::string_view action,
                     const std::string& operator_name, const std::string& reason) const;

  // The group that the shadow slot belongs to while it fills.
  ConsumerGroup shadow_group() const { return ConsumerGroup(group_.value() + kShadow); }
  // The group that a shadow group is filled for; another group is its own.
  static ConsumerGroup LiveGroup(const ConsumerGroup& group) {
    const std::string& name = group.value();
    return name.ends_with(kShadow) ? ConsumerGroup(name.substr(0, name.size() - kShadow.size()))
                                   : group;
  }

 private:
  static inline const std::string kShadow = "~rebuild";
};

}  // namespace lockstep::state
