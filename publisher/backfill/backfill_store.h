#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "publisher/backfill/backfill_record.h"
#include "publisher/backfill/declaration.h"

namespace lockstep::publisher {

// All SQL on lockstep.backfills and lockstep.backfill_keys: what operators do in backfill_store.cc,
// what workers do in backfill_work.cc. What changes a state is audited in
// lockstep.outbox_audit, in the same statement. Owned by the thread of its connection, which
// outlives it.
class BackfillStore {
 public:
  explicit BackfillStore(postgres::Connection& connection) : connection_(connection) {}

  // For operators -----------------------------------------------------------------------------

  // Answers its id. ALREADY_EXISTS while one of that name and outbox has not ended. `expected`: how
  // many rows, about. `id`: a UUID by which its owner finds it again; empty = any.
  absl::StatusOr<std::string> Create(const Declaration& declaration, int64_t expected,
                                     const std::string& actor, const std::string& reason,
                                     const std::string& id = "");
  // A backfill of these rows alone, whose messages also replace rows of the same version; and
  // ghosts go. Refused when there are none.
  absl::StatusOr<std::string> CreateRepair(const Declaration& declaration,
                                           const std::vector<KeyTexts>& keys,
                                           const std::vector<Ghost>& ghosts,
                                           const std::string& actor, const std::string& reason);

  // The newest first, without descriptor sets. Empty `outbox` = of all; `open`: that have not
  // ended.
  absl::StatusOr<std::vector<BackfillRecord>> List(const std::string& outbox = "",
                                                   int at_most = 100, bool open = false);
  // By id, or the newest of that name; a name of several outboxes is refused.
  absl::StatusOr<BackfillRecord> Find(const std::string& name_or_id);
  // What was done to it: a list of {at, actor, role, action, note}.
  absl::StatusOr<nlohmann::ordered_json> ReadAudit(const BackfillRecord& backfill);

  enum class Change { kPause, kResume, kCancel };
  // FAILED_PRECONDITION when it is in no state for that. Answers its new state.
  absl::StatusOr<std::string> Apply(Change change, const std::string& id, const std::string& actor,
                                    const std::string& reason);

  // For the publisher that works on it ----------------------------------------------------------
  // `token` is a worker's own. False = the lease is another's by now, or an operator has stopped
  // the backfill: nothing was written, and the worker drops it.

  // One of these outboxes that is to go on, the longest untouched first; leased for `ttl`.
  absl::StatusOr<std::optional<BackfillRecord>> Claim(const std::vector<std::string>& outboxes,
                                                      const std::string& token,
                                                      const std::string& owner, Millis ttl);
  absl::StatusOr<bool> Begin(const std::string& id, const std::string& token,
                             const std::string& start_lsn, const std::optional<KeyTexts>& highest,
                             int64_t expected);
  // Pub/Sub has taken all rows up to `cursor`, `rows` of them since the last time; of these
  // messages `last` were the last, if there were any.
  absl::StatusOr<bool> Advance(const std::string& id, const std::string& token,
                               const KeyTexts& cursor, int64_t rows, Millis ttl,
                               const std::vector<std::string>& last = {});
  absl::StatusOr<bool> Renew(const std::string& id, const std::string& token, Millis ttl);
  absl::Status Release(const std::string& id, const std::string& token);
  // A fault that may pass: the lease ends, and it goes on after `delay`.
  absl::StatusOr<bool> Retry(const std::string& id, const std::string& token,
                             const std::string& error, Millis delay);
  absl::StatusOr<bool> Fail(const std::string& id, const std::string& token,
                            const std::string& error, const std::string& actor);
  absl::StatusOr<bool> Finish(const std::string& id, const std::string& token,
                              const std::string& actor);

  absl::StatusOr<std::vector<RepairItem>> RepairItems(const std::string& id, int64_t after,
                                                      int at_most);
  // Where the write-ahead log stands.
  absl::StatusOr<std::string> CurrentLsn();
  // Which cluster that is, and which of its timelines it writes.
  struct Writer {
    std::string cluster;
    std::string timeline;
  };
  absl::StatusOr<Writer> Lineage();

 private:
  absl::StatusOr<bool> End(const std::string& id, const std::string& token,
                           const std::string& state, const std::string& note,
                           const std::string& actor);

  postgres::Connection& connection_;
};

}  // namespace lockstep::publisher
