#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/clock.h"
#include "postgres/result.h"

namespace lockstep::publisher {

// The texts of a declaration's key columns, in their order.
using KeyTexts = std::vector<std::string>;

// A row that a consumer has and the source has not: a repair takes it away there.
struct Ghost {
  KeyTexts key;  // empty = not known. With it the publisher looks once more whether it is gone
  std::string aggregate_id;
  std::optional<std::string> tenant_id;
  int64_t version = 0;             // that of the consumer's row
  nlohmann::ordered_json payload;  // the fields that the projection's key is mapped from
};

// What a repair sends, one after the other.
struct RepairItem {
  int64_t n = 0;  // its place, from 1
  KeyTexts key;
  std::optional<Ghost> ghost;
};

// A backfill as the database has it.
struct BackfillRecord {
  std::string id;
  std::string outbox;
  std::string name;
  bool repair = false;
  std::string state;  // running, paused, failed, cancelled, done
  std::string created_by;
  std::string role;
  std::string reason;
  WallTime created_at;
  std::optional<WallTime> begun_at;  // none = nobody has worked on it yet
  std::optional<WallTime> ended_at;
  std::optional<WallTime> progress_at;
  std::optional<WallTime> retry_at;
  std::string start_lsn;
  std::optional<KeyTexts> highest;       // none = not begun, or there was no row
  std::optional<KeyTexts> cursor;        // none = no row has been sent
  std::vector<std::string> last_events;  // ids of the messages that were sent last
  int64_t rows_done = 0;
  int64_t rows_expected = 0;  // an estimate, but of a repair
  int failures = 0;           // in a row, of the kind that may pass
  std::string last_error;
  std::string lease_owner;
  bool leased = false;  // somebody is at it

  nlohmann::ordered_json declaration;
  std::string descriptors;

  bool ended() const { return ended_at.has_value(); }
  // As the command line, the status page and scripts see it; never the descriptor set.
  nlohmann::ordered_json ToJson() const;
};

// SQL that reads backfills as `b`: what ReadRecord needs stands in it as {columns}, and
// `descriptors` beside that.
std::string WithRecordColumns(std::string_view sql);
BackfillRecord ReadRecord(const postgres::Row& row);
// A key as the database gives it, a JSON array.
std::optional<KeyTexts> ReadKey(const std::optional<std::string>& json);

}  // namespace lockstep::publisher
