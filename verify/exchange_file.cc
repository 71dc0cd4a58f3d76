#include "verify/exchange_file.h"

#include <stdexcept>
#include <utility>

#include "platform/status.h"

namespace lockstep::verify {
namespace {

FileJson BoundJson(const std::optional<RowKey>& key) {
  return key ? FileJson(*key) : FileJson(nullptr);
}

absl::StatusOr<FileJson> ParseLine(const std::string& text, int64_t number) {
  FileJson json = FileJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return InvalidArgument("line {} of the file is no JSON object: was it cut off?", number);
}

absl::StatusOr<FileLine> ReadLine(const FileJson& json, size_t columns, int64_t number) {
  FileLine line;
  try {
    const auto key = [&](const FileJson& value) {
      RowKey read = value.get<RowKey>();
      if (read.size() != columns)
        throw std::invalid_argument("a key has another number of columns");
      return read;
    };
    if (!json.at("from").is_null()) line.range.from = key(json.at("from"));
    if (!json.at("below").is_null()) line.range.below = key(json.at("below"));
    if (json.contains("count")) {
      line.summary = {json.at("count").get<int64_t>(), json.at("hash").get<int64_t>()};
    }
    const auto rows = [&](const FileJson& list, std::map<RowKey, int64_t>* into) {
      for (const FileJson& row : list) into->emplace(key(row.at(0)), row.at(1).get<int64_t>());
    };
    if (json.contains("keys")) rows(json.at("keys"), &line.keys.emplace());
    if (json.contains("seen")) rows(json.at("seen"), &line.seen);
    if (json.contains("absent")) rows(json.at("absent"), &line.absent);
  } catch (const std::exception& error) {
    return InvalidArgument("line {} of the file is no range: {}", number, error.what());
  }
  return line;
}

}  // namespace

FileJson RangeJson(const KeyRange& range) {
  return {{"from", BoundJson(range.from)}, {"below", BoundJson(range.below)}};
}

FileJson SummaryJson(const KeyRange& range, const VerifySide::Summary& summary) {
  FileJson json = RangeJson(range);
  json["count"] = summary.count;
  json["hash"] = summary.hash;
  return json;
}

FileJson RowsJson(const std::map<RowKey, int64_t>& rows) {
  FileJson json = FileJson::array();
  for (const auto& [key, version] : rows) json.push_back({key, version});
  return json;
}

std::string FileText(const FileJson& json) {
  return json.dump(-1, ' ', false, FileJson::error_handler_t::replace);
}

std::string EndText(int64_t lines, int64_t rows) {
  return FileText({{"end", true}, {"lines", lines}, {"rows", rows}});
}

void CountedWriter::Add(const FileJson& range) {
  ++lines_;
  rows_ += range.value("count", int64_t{0});
  write_(FileText(range));
}

absl::StatusOr<std::optional<FileLine>> FileLines::Range(size_t columns) {
  ASSIGN_OR_RETURN(const auto json, Next());
  if (!json) {
    return InvalidArgument(
        "the file ends after {} lines without the line that ends it: it was cut off", number_);
  }
  if (!json->contains("end")) {
    ASSIGN_OR_RETURN(FileLine line, ReadLine(*json, columns, number_));
    ++lines_;
    rows_ += line.summary.count;
    return std::optional(std::move(line));
  }
  if (FileText(*json) != EndText(lines_, rows_)) {
    return InvalidArgument("the file has {} ranges of {} rows, but its end says {}", lines_, rows_,
                           FileText(*json));
  }
  ASSIGN_OR_RETURN(const auto more, Next());
  if (more) return InvalidArgument("the file goes on after its end, in line {}", number_);
  return std::optional<FileLine>();
}

absl::StatusOr<std::optional<FileJson>> FileLines::Next() {
  std::string text;
  while (std::getline(from_, text)) {
    ++number_;
    if (text.empty()) continue;
    ASSIGN_OR_RETURN(FileJson json, ParseLine(text, number_));
    return std::optional(std::move(json));
  }
  return std::optional<FileJson>();
}

}  // namespace lockstep::verify
