#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/received.h"
#include "state/events/event_fates.h"
#include "state/schema.h"

namespace lockstep::state {

// What became of an event that the inbox has, as the inbox says it.
enum class Fate : char {
  kApplied = 'a',  // also said of one that is parked, as long as it is
  kSuperseded = 's',
  kIgnored = 'i',
  kDead = 'd',  // a dead letter, or it was one that was given up
};

// Which events each generation has seen, for those who ask; batches write it (Opening). Of a
// generation that goes by versions (inbox_by_versions.cc) it answers by key_state, and by what
// waits or is dead.
class Inbox {
 public:
  explicit Inbox(const Schema& schema) : schema_(schema) {}

  // Of the group's active slot; by versions an aggregate counts as one, however many came of it.
  absl::StatusOr<int64_t> CountSince(postgres::Connection& connection, const ConsumerGroup& group,
                                     WallTime since) const;

  // Events that the active slot of one group has since then and that of the other lacks; of these,
  // how many came since `lately`. REQUIRES: if one goes by versions, both follow them.
  struct Missing {
    int64_t all = 0;
    int64_t recent = 0;
  };
  absl::StatusOr<Missing> CountMissing(postgres::Transaction& transaction, const ConsumerGroup& in,
                                       const ConsumerGroup& not_in, WallTime since,
                                       WallTime lately) const;

  // For how many aggregates a snapshot has come to the group's active slot, whoever sent it; those
  // that died count. Reads all keys, however long that takes.
  absl::StatusOr<int64_t> CountSnapshots(postgres::Connection& connection,
                                         const ConsumerGroup& group) const;

  // Whether the generation has seen them, one by one; an empty id it has not. By versions, one that
  // has no aggregate or is a snapshot counts by its id all the same.
  absl::StatusOr<std::vector<bool>> Seen(postgres::Connection& connection, int generation,
                                         const std::vector<EventFates::Event>& events) const;

  // The ids of those that wait, or that died.
  absl::StatusOr<std::unordered_set<std::string>> Waiting(
      postgres::Transaction& transaction, int generation,
      std::span<const envelope::Received* const> messages) const;

  // Which of these events were handled in one of the generations (GroupEpoch::other_generations):
  // not those that died there, or wait.
  absl::StatusOr<std::unordered_set<std::string>> Handled(
      postgres::Transaction& transaction, const std::string& generations,
      std::span<const envelope::Received* const> messages) const;

  // Says what became of events after all, where that is not what was said when they came. An event
  // that is forgotten stays so.
  using Fates = std::vector<std::pair<EventId, Fate>>;
  absl::Status Correct(postgres::Transaction& transaction, int generation, Fates fates) const;

 private:
  absl::StatusOr<postgres::Result> MissingVersions(postgres::Transaction& transaction,
                                                   const ConsumerGroup& in,
                                                   const ConsumerGroup& not_in, WallTime since,
                                                   WallTime lately) const;

  const Schema schema_;
};

}  // namespace lockstep::state
