#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "postgres/connection.h"

namespace lockstep::verify {

// The texts of a row's key, a member per key column of the replica.
using RowKey = std::vector<std::string>;

// Keys from the one (inclusive) to below the other, as the database sorts them; without a bound
// all.
struct KeyRange {
  std::optional<RowKey> from;
  std::optional<RowKey> below;
  bool behind = false;  // `from` itself is not in it
};

// What a key column is compared and sorted as, on both sides: a type of Postgres, and the text
// types byte by byte, so that two servers of other languages agree. A type that sorts otherwise in
// each database (an enum) is compared as text.
struct KeyType {
  std::string sql;    // uuid, bigint, text; as format_type has it
  bool text = false;  // sorted COLLATE "C"

  static KeyType Of(const std::string& type, char category);
};

// One side of a comparison in SQL; everything is quoted.
struct SideRows {
  std::string what;               // for messages: the source table catalog.videos
  std::string from;               // "catalog"."videos", or (SELECT …)
  std::vector<std::string> keys;  // an expression of a row's columns per key column
  std::string version;            // the same
  std::string where;              // condition; empty = all rows
};

// The key columns' own types on that side.
absl::StatusOr<std::vector<KeyType>> ReadKeyTypes(postgres::Connection& connection,
                                                  const SideRows& rows);

// The rows of one side by key: counted and hashed by range, split, listed, looked up. Every
// statement reads what is committed at its time. Owned by one thread, like its connection.
class VerifySide {
 public:
  // REQUIRES: the connection outlives it; `types` has an entry per key.
  VerifySide(postgres::Connection& connection, SideRows rows, std::vector<KeyType> types);

  struct Summary {
    int64_t count = 0;
    int64_t hash = 0;  // over (key, version): docs/adr/0013

    friend bool operator==(const Summary&, const Summary&) = default;
  };

  // All rows. A row without a key or version is an error, with a sentence.
  absl::StatusOr<int64_t> Count();

  // Whether an index yields the rows in the order of their keys: ranges then cost what they hold,
  // else a statement had better answer for many ranges.
  absl::StatusOr<bool> Sorted();

  // Of the ranges into which the bounds divide the range: one more than there are bounds.
  absl::StatusOr<std::vector<Summary>> Summarize(const KeyRange& range,
                                                 const std::vector<RowKey>& bounds);

  // Every `step`th key of the range, in order.
  absl::StatusOr<std::vector<RowKey>> Split(const KeyRange& range, int64_t step);

  // The first key of the range behind its first `rows` rows; nothing when there are no more. Where
  // an index yields the order, it costs what it passes over.
  absl::StatusOr<std::optional<RowKey>> After(const KeyRange& range, int64_t rows);
  // The planner's guess of the range's rows.
  absl::StatusOr<int64_t> Estimate(const KeyRange& range);
  // The first of them in the order of keys. REQUIRES: there is one.
  absl::StatusOr<RowKey> Least(const std::vector<RowKey>& keys);

  // The rows of the range. A key that comes twice is an error.
  absl::StatusOr<std::map<RowKey, int64_t>> List(const KeyRange& range);

  // Those of the keys that are there, with their versions.
  absl::StatusOr<std::map<RowKey, int64_t>> Find(const std::vector<RowKey>& keys);

  // The keys as this side spells them.
  absl::StatusOr<std::vector<RowKey>> Spelt(const std::vector<RowKey>& keys);

  // Called before each statement, so that whoever holds a lease can renew it.
  void BeforeEach(std::function<void()> call) { before_each_ = std::move(call); }

  const SideRows& rows() const { return rows_; }
  const std::vector<KeyType>& types() const { return types_; }
  postgres::Connection& connection() { return connection_; }

  // The first rows of the range in the order of keys, or of the keys in theirs: their keys (KeyOf),
  // v, and more: `more` is ", expression AS name", of a row r, one of them named payload. As many
  // as `rows`, and as hold about `bytes` in their payloads, but at least one. How many of the range
  // (up to `rows`), or of the keys, there are says rows_there; n is a key's place, from 1.
  absl::StatusOr<postgres::Result> ReadPage(const KeyRange& range, const std::string& more,
                                            int64_t rows, int64_t bytes);
  absl::StatusOr<postgres::Result> ReadPage(const std::vector<RowKey>& keys,
                                            const std::string& more, int64_t bytes);
  RowKey KeyOf(const postgres::Row& row) const;

  // For statements of others on the same rows: the text with {rows} replaced by a table of k1, k2,
  // …, v and `more`; {keys} by k1, k2, …; {wanted} by a table w of keys, given as arrays ($1, $2,
  // …), with their places n; {matched} by the condition that t is w.
  std::string Sql(std::string_view text, std::string_view more = "") const;
  postgres::Params Wanted(const std::vector<RowKey>& keys) const;  // $1, $2, …

 private:
  std::string InRange(const KeyRange& range, postgres::Params* params, int* next) const;
  std::string PageSql(std::string_view rows, std::string_view order, int64_t bytes,
                      const std::string& more) const;
  absl::Status Twice(const RowKey& key) const;
  absl::Status Unversioned(int64_t rows) const;
  absl::StatusOr<postgres::Result> Ask(const std::string& sql, const postgres::Params& params);

  postgres::Connection& connection_;
  const SideRows rows_;
  const std::vector<KeyType> types_;
  std::function<void()> before_each_;
};

}  // namespace lockstep::verify
