#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "state/schema.h"

namespace lockstep::state {

enum class InboxKind {
  kEvent,
  kFollowed,   // by their ids, and every version is followed
  kAggregate,  // by their versions
};

// The slots of one group: {tables, generation, subscription} each, of which one is active. A
// generation that no slot has any longer is retired, and its rows go bit by bit (Retention).
class Slots : public GroupStore {
 public:
  Slots(const Schema& schema, ConsumerGroup group);

  // How far back the slot's generation reaches: what a reset that empties it must be able to
  // replay.
  absl::Status NoteFirst(postgres::Transaction& transaction, int slot, WallTime published) const;

  // With which columns (schema.table.column) the slot's generation begins: a column that comes into
  // the mapping later lacks what was written before. The first call of a generation counts.
  absl::Status NoteColumns(postgres::Connection& connection, int slot,
                           const std::vector<std::string>& columns) const;
  absl::StatusOr<std::vector<std::string>> Columns(postgres::Connection& connection,
                                                   int slot) const;

  // By what the slot's generation knows an event again. The first call of a generation says it; one
  // that is not `followed` any longer can't go by versions later. Answers whether it goes by them.
  absl::StatusOr<bool> NoteInbox(postgres::Connection& connection, int slot, InboxKind kind) const;
  // From now on by versions, if all of them have been followed from the beginning of the
  // generation. REQUIRES: its epoch is locked exclusively, and a new one begins.
  absl::Status GoByVersions(postgres::Transaction& transaction, int slot) const;

  // The greatest number so far.
  absl::StatusOr<int> Newest(postgres::Connection& connection) const;

  // Begins a new life of the slot's read model and retires the generation before.
  absl::StatusOr<int> NewGeneration(postgres::Transaction& transaction, int slot,
                                    int retired) const;

  // Takes a slot over from another group.
  absl::Status Take(postgres::Transaction& transaction, const ConsumerGroup& from, int slot) const;

  // Puts one in the other's place, whose tables get the suffix behind their declared names.
  absl::Status Activate(postgres::Transaction& transaction, int slot, int instead_of,
                        const std::vector<std::string>& tables, const std::string& suffix) const;

  // Removes a slot of this group, or of its shadow, and retires its generation, which it answers;
  // nothing when there is no such slot.
  absl::StatusOr<std::optional<int>> Remove(postgres::Transaction& transaction,
                                            const ConsumerGroup& shadow, int slot) const;

 private:
  const Statement note_first_;
};

}  // namespace lockstep::state
