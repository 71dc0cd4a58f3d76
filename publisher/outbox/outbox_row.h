#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "platform/clock.h"
#include "platform/strong_id.h"

namespace lockstep::publisher {

// A row of an outbox in the hands of a relay.
struct OutboxRow {
  int64_t sequence = 0;
  EventId event_id;
  std::optional<std::string> tenant_id;
  std::string topic;  // the logical one
  std::string aggregate_type;
  std::string aggregate_id;  // the ordering key
  std::string event_type;
  int64_t version = 0;
  int64_t schema_version = 1;
  std::string payload;
  std::string content_type;
  std::string attributes;  // JSON
  std::optional<std::string> traceparent;
  std::optional<std::string> tracestate;
  std::string occurred_at;  // RFC 3339, UTC, microseconds
  WallTime created_at;
  std::string target_space;  // of content dedup; empty = none
  std::string payload_sha;   // bytes; with a target_space
  // Of several routes, those that have it already, with their message ids (docs/routes.md).
  std::map<std::string, std::string> taken_by;
  int attempts = 0;            // before this one
  int64_t aggregate_hash = 0;  // with version and sequence, the row's place in the queue
  int shard = 0;
  bool first_claim = false;
  std::string lock_token;

  int64_t ByteSize() const {
    return static_cast<int64_t>(payload.size() + attributes.size() + aggregate_id.size());
  }
};

using RowPtr = std::shared_ptr<const OutboxRow>;  // shared: the relay may send it a second time

}  // namespace lockstep::publisher
