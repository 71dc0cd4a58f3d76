#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "publisher/outbox/outbox_row.h"

namespace lockstep::publisher {

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

// A statement about one outbox, prepared on first use. Its name carries the outbox's oid, for one
// connection may serve several.
struct OutboxStatement {
  OutboxStatement(std::string_view name, std::string_view sql, std::string_view quoted_table,
                  int64_t oid);
  operator postgres::Statement() const { return {name, sql}; }  // NOLINT: that is what it is for

  std::string name;
  std::string sql;
};

// Takes rows under a lease: see claim.cc for how order is kept.
class Claimer {
 public:
  Claimer(std::string_view quoted_table, int64_t oid);

  // Moves `cursor` on.
  absl::StatusOr<Claim> Take(postgres::Connection& connection, const ClaimRequest& request,
                             ClaimCursor& cursor) const;

 private:
  absl::StatusOr<Claim> TakeFew(postgres::Connection& connection, const ClaimRequest& request,
                                ClaimCursor& cursor) const;

  OutboxStatement many_;
  OutboxStatement few_;
};

}  // namespace lockstep::publisher
