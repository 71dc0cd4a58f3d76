#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "publisher/outbox/claim.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {

// What became of a row that was not published.
struct RowFailure {
  int64_t sequence = 0;
  std::string lock_token;
  int spent_attempts = 0;
  std::optional<Millis> delay = Millis(0);  // nullopt = held until its blocker's fate is known
  std::string error;                        // empty = keep what is there
  std::string code;
  bool dead = false;
};

struct PublishedRow {
  int64_t sequence = 0;
  std::string lock_token;
  std::string message_id;
};

// The lease protocol of one outbox: what a relay does to its rows. Each step after the claim
// carries the lease's token; a row that it does not change is a lost lease, and is left out of the
// answer.
//
// Owned by one thread, with its connection. Each call is one transaction.
class OutboxStore {
 public:
  // Fails with a sentence when the table is missing or is no outbox.
  static absl::StatusOr<std::unique_ptr<OutboxStore>> Open(postgres::Connection& connection,
                                                           const postgres::QualifiedName& table);

  // Moves `cursor` on.
  absl::StatusOr<Claim> ClaimRows(const ClaimRequest& request, ClaimCursor& cursor);

  // Sequences that were still ours. `unblocking`: published rows that others are held behind.
  absl::StatusOr<std::vector<int64_t>> MarkPublished(const std::vector<PublishedRow>& rows,
                                                     const std::vector<int64_t>& unblocking);
  // `unblocking`: rows that died without blocking (on_dead: skip).
  absl::StatusOr<std::vector<int64_t>> MarkFailed(const std::vector<RowFailure>& rows,
                                                  const std::vector<int64_t>& unblocking);
  absl::StatusOr<std::vector<int64_t>> Renew(const std::vector<PublishedRow>& rows);

  // Answers what is there now, as JSON, by sequence; nothing for a row that is gone.
  absl::StatusOr<std::map<int64_t, std::string>> AuditLost(const std::vector<int64_t>& sequences,
                                                           const std::string& owner);

  // Until the next retry is due or a lease behind `floor` ends; nullopt when nothing waits.
  absl::StatusOr<std::optional<Millis>> NextDue(const ClaimRequest& request,
                                                const ClaimCursor& floor = {});

  // Session locks that say "notify me": all of them, or none and false.
  absl::StatusOr<bool> TryWakeLocks(const std::vector<int>& shards);
  absl::Status WakeUnlock(const std::vector<int>& shards);

  const std::string& channel() const { return outbox_.channel; }
  postgres::Connection& connection() { return connection_; }

 private:
  OutboxStore(postgres::Connection& connection, const postgres::QualifiedName& table,
              Outbox outbox);

  absl::StatusOr<std::vector<int64_t>> Update(const postgres::Statement& statement,
                                              const postgres::Params& params,
                                              const std::vector<int64_t>& unblocking);

  postgres::Connection& connection_;
  const std::string quoted_table_;
  const Outbox outbox_;
  const Claimer claimer_;
  const OutboxStatement mark_;
  const OutboxStatement fail_;
  const OutboxStatement renew_;
  const OutboxStatement release_behind_;
  const OutboxStatement audit_lost_;
  const OutboxStatement next_due_;
};

}  // namespace lockstep::publisher
