#pragma once

#include <functional>
#include <istream>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "publisher/outbox/outbox_rows.h"
#include "verify/plan.h"
#include "verify/side.h"
#include "verify/verify.h"

// A comparison without the source's database at hand: a file of ranges with count and hash, made
// there, is compared here; a second one has the keys of the ranges that differ. JSON, a line each:
// a header {"lockstep_verify": 1, …}, then {"from", "below", "count", "hash"} and, in the second
// file, {…, "keys": [[key, version], …]} (with "seen" and "absent" as asked), and {"end": true,
// "lines", "rows"} last. docs/verify.md.
namespace lockstep::verify {

// A range whose keys the other side is asked for, with the rows that were seen here and not in the
// file: a newer file without them says that they are ghosts. And those of the file that were not
// here: they may have been deleted since, unless a newer file still has them in that version.
struct AskedRange {
  KeyRange range;
  std::map<RowKey, int64_t> seen = {};
  std::map<RowKey, int64_t> absent = {};
};

// What a file says of its source's outbox.
struct FileSource {
  std::optional<publisher::PublishedEvent> newest;  // about the declared aggregates; none = none
};

struct ExchangeHeader {
  std::string backfill;
  std::string projection;
  std::vector<KeyType> types;  // what keys are compared as: those of the exporting side
  // The newest event that is published: who has it has what the file has. So it is asked for once
  // the rows are read, and answers when the events of them all are published.
  std::function<absl::StatusOr<std::optional<publisher::PublishedEvent>>()> newest;
};

using WriteLine = std::function<void(const std::string& line)>;

// All ranges of the side; 4,096 at most.
absl::Status ExportRanges(VerifySide& side, const ExchangeHeader& header, const WriteLine& write);

// The keys of these ranges. A range of many keys is divided, so that no file grows without bounds;
// the next round lists what then still differs.
absl::Status ExportKeys(VerifySide& side, const ExchangeHeader& header,
                        const std::vector<AskedRange>& ranges, const WriteLine& write);

// Ranges as a file has them, for the other side; their keys have so many columns.
std::vector<std::string> RangeLines(const std::vector<AskedRange>& ranges);
absl::StatusOr<std::vector<AskedRange>> ReadRanges(std::istream& from, size_t columns);

struct FileComparison {
  VerifyResult result;
  // Differ, and can't be told by this file: it does not have their keys, or rows here are newer
  // than the file, or ghosts, or rows that are not here are missing, or deleted since.
  std::vector<AskedRange> ranges;
};

// `passed` returns once the replica has all that the file has.
absl::StatusOr<FileComparison> CompareWithFile(
    std::istream& from, const VerifyTable& table, const std::string& backfill,
    postgres::Connection& replica,
    const std::function<absl::Status(const FileSource& source, const std::stop_token& stop)>&
        passed,
    const std::stop_token& stop);

}  // namespace lockstep::verify
