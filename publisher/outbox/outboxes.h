#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"

namespace lockstep::publisher {

// An outbox as the database knows it.
struct Outbox {
  int64_t oid = 0;
  int shards = 1;
  std::string channel;  // of its notifications
  bool partitioned = false;
};

// Session settings for those who work on rows, as statements. Lease and mark need not be durable:
// losing one costs a duplicate, never a loss. Every statement is driven by an index and its order;
// the planner, which does not know how few rows are pending, must not think otherwise.
std::string OutboxSettings();

// The text with {outbox} replaced by the table of events, and {pending}, {leases}, {published},
// {status}, {changed_leases} and the functions of its partitions by what stands beside it
// (sql/outbox).
std::string FillParts(std::string_view sql, const postgres::QualifiedName& table);

// Fails with a sentence that says what to do when the table is missing or is no outbox, or when the
// schema `lockstep` is of a version that this program can't work with.
absl::StatusOr<Outbox> FindOutbox(postgres::Connection& connection,
                                  const postgres::QualifiedName& table);

// Answers its name. One that exists is left as it is. `dedup_window`: of content dedup; 0 = none.
// `partition`: "day" or "hour"; empty = it has no partitions.
absl::StatusOr<std::string> CreateOutbox(postgres::Connection& connection,
                                         const postgres::QualifiedName& table, int shards,
                                         Millis dedup_window = Millis(0),
                                         const std::string& partition = "");
// Content dedup from now on, or with 0 no longer.
absl::Status SetDedupWindow(postgres::Connection& connection, const postgres::QualifiedName& table,
                            Millis window);
// Refused while rows are unpublished, unless forced.
absl::Status DropOutbox(postgres::Connection& connection, const postgres::QualifiedName& table,
                        bool force);
// A list of {outbox, shards, partition, rows, bytes, created_at}; `rows` is the planner's guess.
absl::StatusOr<nlohmann::ordered_json> ListOutboxes(postgres::Connection& connection);

// Calls one of the functions of sql/outbox that give and take rights: grant_writer,
// grant_publisher, grant_reader, grant_operator, revoke_rights.
absl::Status ChangeRights(postgres::Connection& connection, const postgres::QualifiedName& table,
                          const std::string& function, const std::string& role);

}  // namespace lockstep::publisher
