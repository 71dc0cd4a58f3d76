#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/identifier.h"

namespace lockstep::publisher {

// What a backfill sends, as a YAML file declares it and as the source's database keeps it
// (docs/replicas.md).
struct Declaration {
  std::string name;
  postgres::QualifiedName outbox;  // its publisher does the work
  std::string topic;               // the logical one
  // One of the two: a table, or a SELECT that is read as if it were one.
  std::string table;  // schema.name
  std::string query;
  std::vector<std::string> key;  // columns in whose order rows are read
  std::string aggregate_type;
  std::string aggregate_id;  // these three are columns
  std::string version;
  std::string tenant;  // empty = none
  std::string event_type;
  int schema_version = 1;
  // The payload's fields and the columns that they come from.
  std::vector<std::pair<std::string, std::string>> fields;
  std::string message;          // a protobuf message's full name; empty = JSON
  std::string descriptors;      // the bytes of its descriptor set
  int64_t rows_per_second = 0;  // 0 = as fast as it goes
  Millis chunk{200};            // how long the reading of one page should take

  // What follows FROM: the quoted table, or the query in parentheses. It wants an alias.
  std::string SourceSql() const;
  // "catalog.videos", or "the query": for messages.
  std::string SourceName() const { return table.empty() ? "the query" : table; }
  // Every column that is read, each once.
  std::vector<std::string> Columns() const;

  // Whether it is whole and makes sense by itself; no database is asked.
  absl::Status Validate() const;

  // All but the descriptor set.
  nlohmann::ordered_json ToJson() const;
  static absl::StatusOr<Declaration> FromJson(const nlohmann::ordered_json& json,
                                              std::string descriptors);
};

// Reads the file and its descriptor set. The status lists the mistakes, one per line, with their
// places.
absl::StatusOr<Declaration> LoadDeclaration(const std::string& file);

}  // namespace lockstep::publisher
