#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "verify/exchange.h"
#include "verify/side.h"

// How the files of exchange.h are written and read, a line at a time.
namespace lockstep::verify {

using FileJson = nlohmann::ordered_json;

FileJson RangeJson(const KeyRange& range);
FileJson SummaryJson(const KeyRange& range, const VerifySide::Summary& summary);
FileJson RowsJson(const std::map<RowKey, int64_t>& rows);
std::string FileText(const FileJson& json);

// The last line of every file: what it has. A file without it was cut off.
std::string EndText(int64_t lines, int64_t rows);

// Counts what is written, and says so at the end.
class CountedWriter {
 public:
  // REQUIRES: `write` outlives it.
  explicit CountedWriter(const WriteLine& write) : write_(write) {}

  void Add(const FileJson& range);
  void End() { write_(EndText(lines_, rows_)); }

 private:
  const WriteLine& write_;
  int64_t lines_ = 0;
  int64_t rows_ = 0;
};

// A line of a file. What is not there, or is of another kind, is a sentence.
struct FileLine {
  KeyRange range;
  VerifySide::Summary summary;
  std::optional<std::map<RowKey, int64_t>> keys;
  std::map<RowKey, int64_t> seen;    // at the other side, before the file was made
  std::map<RowKey, int64_t> absent;  // there, of the file before
};

// The lines of a file, up to the one that says that it is whole.
class FileLines {
 public:
  // REQUIRES: `from` outlives it.
  explicit FileLines(std::istream& from) : from_(from) {}

  // The first, or nothing of an empty file.
  absl::StatusOr<std::optional<FileJson>> Header() { return Next(); }

  // The next range, or nothing at the end, which must be the end that was written.
  absl::StatusOr<std::optional<FileLine>> Range(size_t columns);

 private:
  absl::StatusOr<std::optional<FileJson>> Next();

  std::istream& from_;
  int64_t number_ = 0;
  int64_t lines_ = 0;
  int64_t rows_ = 0;
};

}  // namespace lockstep::verify
