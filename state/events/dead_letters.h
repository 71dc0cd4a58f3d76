#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/received.h"
#include "state/schema.h"

namespace lockstep::state {

// What an operator does with a dead letter.
struct DeadLetterResolution {
  int64_t id = 0;
  bool replay = false;  // else it is discarded
  std::string operator_name;
  std::string reason;
  bool accept_missing = false;  // discarded although versions before it have not come yet
};

// A dead letter that is being resolved.
struct OpenDeadLetter {
  int generation = 0;
  envelope::Received item;  // parsed, not mapped
};

// Messages that could not be applied, kept whole. Written in the batch's own transaction.
class DeadLetters : public GroupStore {
 public:
  using GroupStore::GroupStore;

  struct Dead {
    const envelope::Received* item;  // with its poison
    bool blocks = false;             // later versions of its aggregate wait
  };
  // A message that is there already (a redelivery without a readable event id) stays as it is.
  absl::Status Insert(postgres::Transaction& transaction, int generation,
                      const std::vector<Dead>& items) const;

  // NOT_FOUND when this group has no such dead letter, FAILED_PRECONDITION when it is resolved or
  // quarantined. Locks nothing.
  absl::StatusOr<OpenDeadLetter> Load(postgres::Transaction& transaction, int64_t id) const;

  // Marks it and writes the audit. REQUIRES: its aggregate's key_state is locked.
  absl::Status Resolve(postgres::Transaction& transaction,
                       const DeadLetterResolution& resolution) const;

  // The least version of the aggregate that later ones still wait for.
  absl::StatusOr<std::optional<int64_t>> Blocking(postgres::Transaction& transaction,
                                                  int generation, const std::string& key) const;

  // How many versions of the aggregate between these two are dead or parked.
  absl::StatusOr<int64_t> AtHand(postgres::Transaction& transaction, int generation,
                                 const std::string& key, int64_t after, int64_t before) const;

  // Those of a life of the read model that is over: the replay meets their events again.
  absl::Status DiscardAll(postgres::Transaction& transaction, int generation,
                          const std::string& operator_name, const std::string& note) const;
  // Makes those of another group this group's.
  absl::Status Take(postgres::Transaction& transaction, const ConsumerGroup& from) const;

  // One more try failed.
  absl::Status Record(postgres::Connection& connection, int64_t id,
                      const envelope::Poison& poison) const;
};

}  // namespace lockstep::state
