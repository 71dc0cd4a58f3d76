#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/received.h"
#include "platform/clock.h"
#include "state/schema.h"

namespace lockstep::state {

// Which dead letters are meant. Everything that is set must hold.
struct DeadLetterFilter {
  std::vector<int64_t> ids = {};
  std::string event_id;
  std::string key;  // an aggregate (video/123) or an ordering key
  std::string code;
  std::string event_type;
  std::string state;          // empty = dead and quarantined; `any` = all
  bool newest_first = false;  // else in the order in which they must be replayed

  // Whether it means something in particular: what a dangerous command asks for.
  bool selective() const {
    return !ids.empty() || !event_id.empty() || !key.empty() || !code.empty() ||
           !event_type.empty();
  }
};

struct DeadLetterRow {
  int64_t id = 0;
  std::string event_id, aggregate_key, event_type, message_id, ordering_key, code, reason, state,
      note, attributes;
  std::optional<int64_t> version;
  int attempts = 0;
  bool blocks = false;
  int64_t waiting = 0;  // events that are parked behind it
  int64_t payload_bytes = 0;
  WallTime dead_at{};
  std::string payload;  // only when asked for
};

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

// Messages that could not be applied, kept whole. Batches write them in their own transactions;
// operators list them, show them and put them in quarantine, which needs no projection.
class DeadLetters : public GroupStore {
 public:
  using GroupStore::GroupStore;

  // What an operator has decided about an event, whichever generation it died in.
  struct Decision {
    std::string kind;  // discarded, quarantined
    std::string by, why;
    bool discarded() const { return kind == "discarded"; }
  };
  // By item; none = nothing was.
  absl::StatusOr<std::vector<std::optional<Decision>>> Decisions(
      postgres::Transaction& transaction,
      const std::vector<const envelope::Received*>& items) const;

  struct Dead {
    const envelope::Received* item;                   // with its poison
    bool blocks = false;                              // later versions of its aggregate wait
    std::optional<Decision> decision = std::nullopt;  // which it keeps
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

  // Snapshots came of these aggregates, in these versions: nothing waits any longer for what died
  // up to there. They stay open: a table that the snapshot does not feed has not got what they say.
  // Answers how many there were. REQUIRES: their key_state is locked.
  absl::StatusOr<int64_t> Overtake(
      postgres::Transaction& transaction, int generation,
      const std::vector<std::pair<std::string, int64_t>>& snapshots) const;

  // Those of a life of the read model that is over: the replay meets their events again.
  absl::Status DiscardAll(postgres::Transaction& transaction, int generation,
                          const std::string& operator_name, const std::string& note) const;
  // Makes those of another group this group's.
  absl::Status Take(postgres::Transaction& transaction, const ConsumerGroup& from) const;

  // One more try failed.
  absl::Status Record(postgres::Connection& connection, int64_t id,
                      const envelope::Poison& poison) const;

  // Those must be replayed by aggregate and version.
  absl::StatusOr<std::vector<DeadLetterRow>> List(postgres::Connection& connection,
                                                  const DeadLetterFilter& filter, int limit) const;
  absl::StatusOr<DeadLetterRow> Show(postgres::Connection& connection, int64_t id,
                                     bool with_payload) const;

  // Keeps it from every replay by filter until it is taken out again; its aggregate goes on
  // waiting. Answers how many were moved.
  absl::StatusOr<int64_t> Quarantine(postgres::Connection& connection,
                                     const std::vector<int64_t>& ids, bool quarantined,
                                     const std::string& operator_name,
                                     const std::string& note) const;

  // Open ones (at most "very many"), and those that were ever replayed.
  absl::StatusOr<int64_t> CountOpen(postgres::Connection& connection) const;
  absl::StatusOr<int64_t> CountReplayed(postgres::Connection& connection) const;
  // The newest open ones: id, event_id, message_id, aggregate_key, ordering_key, version,
  // event_type, code, reason, attempts, blocks, state, dead_at, publish_time.
  absl::StatusOr<postgres::Result> Newest(postgres::Connection& connection, int limit) const;
  // The newest thousand open ones by cause, the most frequent first: code, reason (with … in place
  // of numbers and ids, which differ from event to event), letters, newest_at.
  absl::StatusOr<postgres::Result> Causes(postgres::Connection& connection, int limit) const;
};

}  // namespace lockstep::state
