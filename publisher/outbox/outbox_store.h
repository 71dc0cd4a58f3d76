#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "publisher/outbox/outbox_row.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {

// Where a claim starts: behind the last candidate of the one before. An empty one is the start.
struct ClaimCursor {
  std::string available_at = "-infinity";
  int64_t sequence = 0;
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

struct PublishedRow {
  RowPtr row;
  std::string message_id;  // empty where the bus has none
  bool dedup_hit = false;  // it was not sent: another row had been, with the same content
};

// What content dedup says of a row that was claimed.
struct ContentVerdict {
  enum class Kind {
    kSend,  // nobody sends its content but it
    kHit,   // another was sent, lately enough: `message_id` is that one's
    kWait,  // another is to be sent, and it is not known what becomes of it
  };
  Kind kind = Kind::kSend;
  std::string message_id;
};

// A row as it is remembered once it is published.
struct RowName {
  int64_t sequence = 0;
  EventId event_id;
  std::optional<std::string> tenant_id;
  std::string aggregate_type;
  std::string aggregate_id;
  int64_t version = 0;
};

// What became of a row that was not published.
struct RowFailure {
  RowPtr row;
  int spent_attempts = 0;
  std::optional<Millis> delay = Millis(0);  // nullopt = held until its blocker's fate is known
  std::string error;                        // empty = keep what is there
  std::string code;
  bool dead = false;
  bool frees_followers = false;  // those held behind it may go (on_dead: skip)
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

  // Takes rows under a lease (claim.cc says how order is kept) and moves `cursor` on.
  absl::StatusOr<Claim> ClaimRows(const ClaimRequest& request, ClaimCursor& cursor);

  // Each answers the sequences that were still ours. The rows that were held behind one that is
  // published, or dead without blocking, may go with it. A row that dies, or passes after it was
  // tried again, leaves an audit row of `owner`; one that simply passes leaves none.
  // `ended`: leases of which these are the last rows.
  absl::StatusOr<std::vector<int64_t>> MarkPublished(const std::vector<PublishedRow>& rows,
                                                     const std::string& owner = "",
                                                     const std::vector<std::string>& ended = {});
  absl::StatusOr<std::vector<int64_t>> MarkFailed(const std::vector<RowFailure>& rows,
                                                  const std::string& owner = "",
                                                  const std::vector<std::string>& ended = {});
  absl::StatusOr<std::vector<int64_t>> Renew(const std::vector<RowPtr>& rows);

  // By sequence, of the claimed rows that have a target_space, where the outbox has a dedup_window.
  // One that may be sent has the place of its content from now on: others of it wait for its fate.
  absl::StatusOr<std::map<int64_t, ContentVerdict>> JudgeContents(
      const std::vector<OutboxRow>& rows);
  // These are not sent after all, for they stand behind one that waits: others may be. Else two
  // keys could wait for each other.
  absl::Status LeaveContents(const std::vector<RowPtr>& rows);

  // Answers what is there now, as JSON, by sequence; nothing for a row that is gone.
  absl::StatusOr<std::map<int64_t, std::string>> AuditLost(const std::vector<int64_t>& sequences,
                                                           const std::string& owner);

  // Writes those of `rows` that are no longer there into the audit, and answers how many.
  absl::StatusOr<int64_t> AuditGone(const std::vector<RowName>& rows, const std::string& owner);

  // Until the next retry is due or a lease behind `floor` ends; nullopt when nothing waits.
  absl::StatusOr<std::optional<Millis>> NextDue(const ClaimRequest& request,
                                                const ClaimCursor& floor = {});

  // Session locks that say "notify me": all of them, or none and false.
  absl::StatusOr<bool> TryWakeLocks(const std::vector<int>& shards);
  absl::Status WakeUnlock(const std::vector<int>& shards);

  const std::string& channel() const { return outbox_.channel; }
  postgres::Connection& connection() { return connection_; }

 private:
  OutboxStore(postgres::Connection& connection, const postgres::QualifiedName& table, Outbox outbox)
      : connection_(connection),
        table_(table),
        quoted_table_(table.Quoted()),
        outbox_(std::move(outbox)) {}

  // `sql` about this outbox, prepared on first use. One connection may serve several outboxes, so
  // the statement's full name carries the oid. REQUIRES: `name` is a literal, always of this `sql`.
  postgres::Statement About(std::string_view name, std::string_view sql);

  absl::StatusOr<Claim> Take(bool few, const ClaimRequest& request, ClaimCursor& cursor);
  absl::StatusOr<Claim> TakeFew(const ClaimRequest& request, ClaimCursor& cursor);
  // Rows that end with it, for the audit.
  struct Ends {
    std::vector<int64_t> rows;
    std::string outcome;
    std::string owner;
  };
  absl::StatusOr<std::vector<int64_t>> Update(const postgres::Statement& statement,
                                              const postgres::Params& params,
                                              const std::vector<int64_t>& unblocking = {},
                                              const std::vector<Ends>& ends = {});

  postgres::Connection& connection_;
  const postgres::QualifiedName table_;
  const std::string quoted_table_;
  const Outbox outbox_;
  struct Text {
    std::string name;
    std::string sql;
  };
  std::map<std::string_view, Text> statements_;  // those used so far
};

}  // namespace lockstep::publisher
