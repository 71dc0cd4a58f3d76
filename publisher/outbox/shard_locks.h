#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "publisher/outbox/outboxes.h"

namespace lockstep::publisher {

// The advisory locks by which publishers share out the shards of outboxes, held by one session and
// gone with it: one per shard, and a shared one per outbox that says "I am a member". An outbox is
// named by its oid. Owned by one thread.
class ShardLocks {
 public:
  // Opens a session whose locks will last, or says why that can't be (a transaction pooler). The
  // server ends a session that does nothing for `session_timeout`; 0 = never.
  static absl::StatusOr<std::unique_ptr<ShardLocks>> Open(const std::string& database,
                                                          Millis session_timeout);

  absl::StatusOr<Outbox> Find(const postgres::QualifiedName& table);

  absl::Status Join(int64_t outbox);
  absl::Status Leave(int64_t outbox);

  // Those of `shards` that nobody else holds, at most so many; tried in the order given.
  absl::StatusOr<std::vector<int>> Take(int64_t outbox, const std::vector<int>& shards,
                                        int at_most);
  absl::Status Release(int64_t outbox, const std::vector<int>& shards);

  // REQUIRES: all shards are held.
  absl::Status SetShardCount(int64_t outbox, int count);

  struct View {
    int shards = 0;        // as stored
    int members = 0;       // sessions
    std::string stranger;  // a session that holds a shard and is no member, in words
  };
  // In the order of `outboxes`. Also the session's ping.
  absl::StatusOr<std::vector<View>> Look(const std::vector<int64_t>& outboxes);

 private:
  ShardLocks(std::unique_ptr<postgres::Connection> session, int64_t backend);

  const std::unique_ptr<postgres::Connection> session_;
  const int64_t backend_;
};

}  // namespace lockstep::publisher
