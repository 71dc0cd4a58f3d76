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
#include "publisher/outbox/outbox_row.h"

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

// Where a claim starts: behind the last candidate of the one before. An empty one is the start.
struct ClaimCursor {
  std::string available_at = "-infinity";
  int64_t sequence = 0;
  bool at_start() const { return available_at == "-infinity"; }
};

struct ClaimRequest {
  std::string token;
  std::string owner;
  Millis lock_ttl{60'000};
  int rows = 100;
  std::vector<int> shards = {0};
  int shard_count = 1;
  std::vector<std::string> live_tokens;  // leases whose rows this owner still has in hand, in order
  std::vector<std::string> paused_topics;
  bool dead_blocks = true;  // on_dead: hold_key
  bool few = false;         // a handful is expected, and somebody waits for it: see kClaimFew …
  std::string rest_token;   // … and the lease of what comes beside it
};

struct Claim {
  std::vector<OutboxRow> rows;  // in the order of their sequences
  int candidates = 0;           // rows looked at; as many as asked for = there may be more
  std::string a_second_ago;     // by the database's clock, for ClaimCursor::available_at
};

// One outbox: every statement of the lease protocol. Each step after the claim carries the lease's
// token; a row that it does not change is a lost lease, and is left out of the answer.
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

  // Rows held behind a blocker that is gone; a safety net. Answers how many.
  absl::StatusOr<int64_t> ReleaseHeld(bool dead_blocks);

  // Until the next retry is due or a lease behind `floor` ends; nullopt when nothing waits.
  absl::StatusOr<std::optional<Millis>> NextDue(const ClaimRequest& request,
                                                const ClaimCursor& floor = {});

  struct Backlog {
    int64_t pending = 0;
    int64_t locked = 0;
  };
  // Without a store, for those who want nothing else.
  static absl::StatusOr<Backlog> CountBacklog(postgres::Connection& connection,
                                              const postgres::QualifiedName& table,
                                              int64_t at_most);
  // Rows that failed and will be tried again.
  static absl::StatusOr<int64_t> CountRetries(postgres::Connection& connection,
                                              const postgres::QualifiedName& table);
  absl::StatusOr<int64_t> Position();

  // Session locks that say "notify me": all of them, or none and false.
  absl::StatusOr<bool> TryWakeLocks(const std::vector<int>& shards);
  absl::Status WakeUnlock(const std::vector<int>& shards);

  absl::StatusOr<int64_t> CleanPublished(Millis age, int rows);
  absl::StatusOr<int64_t> CleanDead(Millis age, int rows);

  const std::string& name() const { return name_; }
  int64_t oid() const { return oid_; }
  int shards() const { return shards_; }  // as stored when it was opened
  const std::string& channel() const { return channel_; }
  postgres::Connection& connection() { return connection_; }

 private:
  struct Sql;
  absl::StatusOr<Claim> ClaimFew(const ClaimRequest& request, ClaimCursor& cursor);
  absl::StatusOr<Claim> ClaimBy(const postgres::Statement& statement, const ClaimRequest& request,
                                ClaimCursor& cursor);
  OutboxStore(postgres::Connection& connection, const postgres::QualifiedName& table);

  absl::StatusOr<std::vector<int64_t>> Update(const postgres::Statement& statement,
                                              const postgres::Params& params,
                                              const std::vector<int64_t>& unblocking);

  postgres::Connection& connection_;
  std::string name_;
  std::shared_ptr<const Sql> sql_;
  int64_t oid_ = 0;
  int shards_ = 1;
  std::string channel_;
};

}  // namespace lockstep::publisher
