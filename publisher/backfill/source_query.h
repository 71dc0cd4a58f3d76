#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "postgres/connection.h"
#include "publisher/backfill/backfill_store.h"
#include "publisher/backfill/declaration.h"

namespace lockstep::publisher {

struct SourceRow {
  KeyTexts key;
  std::optional<std::string> aggregate_id;
  std::optional<std::string> tenant_id;
  std::optional<int64_t> version;
  std::string payload;    // JSON, as Postgres made it
  bool repeated = false;  // the row before it has the same key
  int64_t n = 0;          // of ReadKeys: which of the keys it is, from 1
};

struct SourcePage {
  std::vector<SourceRow> rows;
  bool last = false;  // none are behind it
  WallTime read_at;   // by the source's clock
  int64_t bytes = 0;  // of the payloads
  size_t keys = 0;    // of ReadKeys: so many of them were looked for, from the first
};

// What reads a backfill's source: pages in the order of its key, each in a short transaction that
// can't write. Keys are compared as their columns' types and collations do, by the source alone.
// Errors of the declaration are sentences (INVALID_ARGUMENT); those that may pass stay as they are.
class SourceQuery {
 public:
  // Asks for the columns and their types, and lets Postgres judge the statements.
  static absl::StatusOr<SourceQuery> Make(postgres::Connection& connection,
                                          const Declaration& declaration);

  // Nullopt when there is no row.
  absl::StatusOr<std::optional<KeyTexts>> Highest(postgres::Connection& connection) const;
  // Whether a row has NULL in its key: no order holds such a row, so it would be passed over.
  absl::StatusOr<bool> HasNullKeys(postgres::Connection& connection) const;
  // The planner's guess of the rows.
  absl::StatusOr<int64_t> Estimate(postgres::Connection& connection) const;

  // At most `rows` rows behind `after` (nullopt = from the start) and up to `up_to`.
  absl::StatusOr<SourcePage> Read(postgres::Connection& connection,
                                  const std::optional<KeyTexts>& after, const KeyTexts& up_to,
                                  int rows) const;
  // Those of these keys that there are, in their order; of wide rows not all at once.
  absl::StatusOr<SourcePage> ReadKeys(postgres::Connection& connection,
                                      const std::vector<KeyTexts>& keys) const;

  // The type of a column that Columns() names, as format_type writes it, and its base type.
  struct ColumnType {
    std::string name;
    std::string type;
    std::string base;
  };
  const std::vector<ColumnType>& columns() const { return columns_; }

  // The payload's JSON of a row of the source with that alias.
  std::string PayloadSql(const std::string& alias) const;

  // The error of a statement on the source, as a sentence unless it may pass.
  absl::Status Explain(const absl::Status& status) const;

 private:
  explicit SourceQuery(Declaration declaration) : declaration_(std::move(declaration)) {}

  absl::Status ReadTypes(postgres::Connection& connection);
  const ColumnType& TypeOf(const std::string& column) const;
  // The columns of a page, of the alias q.
  std::string SelectList() const;
  std::string PageSql(bool from_start) const;
  std::string KeysSql() const;
  absl::StatusOr<SourcePage> Run(postgres::Connection& connection, const std::string& sql,
                                 const postgres::Params& params) const;

  Declaration declaration_;
  std::vector<ColumnType> columns_;
  std::string keys_;    // q."a", q."b"
  std::string places_;  // k0, k1
};

}  // namespace lockstep::publisher
