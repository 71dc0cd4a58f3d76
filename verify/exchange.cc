#include "verify/exchange.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "platform/duration.h"
#include "platform/status.h"
#include "verify/exchange_file.h"

namespace lockstep::verify {
namespace {

constexpr int kFileVersion = 1;
constexpr int64_t kMostRanges = 4'096;
constexpr int64_t kKeysPerRange = 10'000;
constexpr int64_t kMostKeys = 200'000;  // in one file, and listed here for one
constexpr size_t kLookedUpAtOnce = 1'000;
constexpr size_t kRangesAtOnce = 16;

FileJson NewestJson(const std::optional<publisher::PublishedEvent>& event) {
  if (!event) return nullptr;
  return {{"event_id", event->event_id},
          {"aggregate", event->aggregate_key},
          {"version", event->version},
          {"message_id", event->message_id}};
}

absl::StatusOr<FileSource> ReadNewest(const FileJson& header) {
  const FileJson newest = header.value("newest", FileJson());
  if (newest.is_null()) return FileSource{};
  publisher::PublishedEvent event;
  try {
    event = {.event_id = newest.at("event_id").get<std::string>(),
             .aggregate_key = newest.at("aggregate").get<std::string>(),
             .version = newest.at("version").get<int64_t>(),
             .message_id = newest.at("message_id").get<std::string>()};
  } catch (const std::exception& error) {
    return InvalidArgument("the file's header has no readable `newest`: {}", error.what());
  }
  // It becomes part of an array of uuids.
  if (event.event_id.size() != 36 ||
      event.event_id.find_first_not_of("0123456789abcdef-") != std::string::npos) {
    return InvalidArgument("the file's header names an event that has no UUID");
  }
  return FileSource{std::move(event)};
}

absl::Status WriteFile(const ExchangeHeader& header, bool keys,
                       const std::vector<std::string>& lines, const WriteLine& write) {
  ASSIGN_OR_RETURN(const auto newest, header.newest());
  FileJson types = FileJson::array();
  for (const KeyType& type : header.types) types.push_back(type.sql);
  write(FileText({{"lockstep_verify", kFileVersion},
                  {"side", "source"},
                  {"backfill", header.backfill},
                  {"projection", header.projection},
                  {"types", types},
                  {"keys", keys},
                  {"newest", NewestJson(newest)},
                  {"at", FormatTimestamp(Clock::System().Now())}}));
  for (const std::string& line : lines) write(line);
  return absl::OkStatus();
}

// The parts of a range by these bounds.
std::vector<KeyRange> PartsOf(const KeyRange& range, const std::vector<RowKey>& bounds) {
  std::vector<KeyRange> parts(bounds.size() + 1, range);
  for (size_t i = 0; i < bounds.size(); ++i) parts[i].below = parts[i + 1].from = bounds[i];
  return parts;
}

absl::Status WriteParts(VerifySide& side, const KeyRange& range, int64_t step,
                        CountedWriter& write) {
  ASSIGN_OR_RETURN(const auto bounds, side.Split(range, step));
  ASSIGN_OR_RETURN(const auto summaries, side.Summarize(range, bounds));
  const std::vector<KeyRange> parts = PartsOf(range, bounds);
  for (size_t i = 0; i < parts.size(); ++i) write.Add(SummaryJson(parts[i], summaries[i]));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<KeyType>> ReadHeader(const FileJson& json, const VerifyTable& table,
                                                const std::string& backfill) {
  if (!json.contains("lockstep_verify") || json["lockstep_verify"] != kFileVersion ||
      !json.contains("types") || !json["types"].is_array()) {
    return InvalidArgument(
        "the file is none that this version of `lockstepctl verify export` wrote");
  }
  const std::string made_of = json.value("backfill", ""), made_for = json.value("projection", "");
  if (made_of != backfill || made_for != table.projection) {
    return InvalidArgument(
        "the file is of backfill {} for projection {}, not of backfill {} for projection {}",
        made_of, made_for, backfill, table.projection);
  }
  std::vector<KeyType> types;
  for (const FileJson& type : json["types"]) {
    // It becomes part of statements.
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    if (name.empty() ||
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_ ") != std::string::npos) {
      return InvalidArgument("the file's header names a type that is none of Postgres's own");
    }
    types.push_back({name, name == "text"});
  }
  if (types.size() != table.keys.size()) {
    return InvalidArgument("the file has keys of {} columns, {} has keys of {}", types.size(),
                           table.name, table.keys.size());
  }
  return types;
}

// What the replica has of the ranges, which follow each other, is compared with what the file says.
class FileComparer {
 public:
  FileComparer(VerifySide& side, FileComparison& found) : side_(side), found_(found) {}

  absl::Status Add(FileLine line) {
    const bool follows = !lines_.empty() && lines_.back().range.below &&
                         lines_.back().range.below == line.range.from;
    if (!follows || lines_.size() >= kRangesAtOnce) RETURN_IF_ERROR(Flush());
    lines_.push_back(std::move(line));
    return absl::OkStatus();
  }

  absl::Status Flush() {
    if (lines_.empty()) return absl::OkStatus();
    std::vector<RowKey> bounds;
    for (size_t i = 1; i < lines_.size(); ++i) bounds.push_back(*lines_[i].range.from);
    const KeyRange outer{lines_.front().range.from, lines_.back().range.below};
    ASSIGN_OR_RETURN(const auto here, side_.Summarize(outer, bounds));
    for (size_t i = 0; i < lines_.size(); ++i) {
      ++found_.result.ranges;
      found_.result.source_rows += lines_[i].summary.count;
      found_.result.replica_rows += here[i].count;
      if (here[i] == lines_[i].summary) continue;
      ++found_.result.differing;
      if (!lines_[i].keys) {
        found_.ranges.push_back({lines_[i].range});
        continue;
      }
      if (here[i].count > 2 * kKeysPerRange) {
        RETURN_IF_ERROR(AskInParts(lines_[i].range, here[i].count));
        continue;
      }
      // Beyond, the next round lists them.
      if (listed_ > 0 && listed_ + here[i].count > kMostKeys) {
        found_.ranges.push_back(
            {lines_[i].range, std::move(lines_[i].seen), std::move(lines_[i].absent)});
        continue;
      }
      ASSIGN_OR_RETURN(const auto rows, side_.List(lines_[i].range));
      listed_ += static_cast<int64_t>(rows.size());
      Compare(lines_[i], rows);
    }
    lines_.clear();
    return absl::OkStatus();
  }

  // Rows that the file has in a newer version than the replica.
  std::map<RowKey, int64_t> wanted;

 private:
  // Too many rows here to be listed: the other side is asked for smaller ranges.
  absl::Status AskInParts(const KeyRange& range, int64_t rows) {
    ASSIGN_OR_RETURN(const auto bounds,
                     side_.Split(range, std::max(kKeysPerRange, rows / kMostRanges)));
    for (const KeyRange& part : PartsOf(range, bounds)) found_.ranges.push_back({part});
    return absl::OkStatus();
  }

  void Compare(const FileLine& line, const std::map<RowKey, int64_t>& here) {
    AskedRange open{line.range};
    for (const auto& [key, version] : *line.keys) {
      const auto found = here.find(key);
      if (found == here.end()) {
        // Deleted since, unless it was not here when the source still had it, in this version.
        const auto before = line.absent.find(key);
        if (before == line.absent.end() || before->second != version) {
          open.absent.emplace(key, version);
          continue;
        }
      }
      if (found == here.end() || found->second < version) wanted.emplace(key, version);
      if (found == here.end() || found->second <= version) continue;
      Judge(line, key, version, found->second, &open);
    }
    for (const auto& [key, version] : here) {
      if (!line.keys->contains(key)) Judge(line, key, std::nullopt, version, &open);
    }
    if (!open.seen.empty() || !open.absent.empty()) found_.ranges.push_back(std::move(open));
  }

  // A row that is more here than in the file: a difference when it was so before the file was made.
  void Judge(const FileLine& line, const RowKey& key, std::optional<int64_t> file, int64_t here,
             AskedRange* open) {
    const auto seen = line.seen.find(key);
    if (seen == line.seen.end() || seen->second != here) {
      open->seen.emplace(key, here);
      return;
    }
    found_.result.differences.push_back(
        {.kind = file ? DifferenceKind::kAhead : DifferenceKind::kGhost,
         .key = key,
         .source_version = file,
         .replica_version = here});
  }

  VerifySide& side_;
  FileComparison& found_;
  std::vector<FileLine> lines_;
  int64_t listed_ = 0;
};

}  // namespace

absl::Status ExportRanges(VerifySide& side, const ExchangeHeader& header, const WriteLine& write) {
  ASSIGN_OR_RETURN(const int64_t rows, side.Count());
  std::vector<std::string> written;
  const WriteLine keep = [&](const std::string& line) { written.push_back(line); };
  CountedWriter lines(keep);
  RETURN_IF_ERROR(
      WriteParts(side, {}, std::max(kKeysPerRange, (rows + kMostRanges - 1) / kMostRanges), lines));
  lines.End();
  return WriteFile(header, /*keys=*/false, written, write);
}

absl::Status ExportKeys(VerifySide& side, const ExchangeHeader& header,
                        const std::vector<AskedRange>& ranges, const WriteLine& write) {
  std::vector<std::string> written;
  const WriteLine keep = [&](const std::string& line) { written.push_back(line); };
  CountedWriter lines(keep);
  int64_t listed = 0;
  for (const auto& [range, seen, absent] : ranges) {
    ASSIGN_OR_RETURN(const auto summary, side.Summarize(range, {}));
    const int64_t count = summary[0].count;
    if (count > 2 * kKeysPerRange) {
      RETURN_IF_ERROR(WriteParts(side, range, std::max(kKeysPerRange, count / kMostRanges), lines));
      continue;
    }
    FileJson json = SummaryJson(range, summary[0]);
    if (listed + count <= kMostKeys) {
      ASSIGN_OR_RETURN(const auto rows, side.List(range));
      listed += static_cast<int64_t>(rows.size());
      json["keys"] = RowsJson(rows);
      json["seen"] = RowsJson(seen);
      json["absent"] = RowsJson(absent);
    }
    lines.Add(json);
  }
  lines.End();
  return WriteFile(header, /*keys=*/true, written, write);
}

std::vector<std::string> RangeLines(const std::vector<AskedRange>& ranges) {
  std::vector<std::string> lines;
  for (const auto& [range, seen, absent] : ranges) {
    FileJson json = RangeJson(range);
    json["seen"] = RowsJson(seen);
    json["absent"] = RowsJson(absent);
    lines.push_back(FileText(json));
  }
  lines.push_back(EndText(static_cast<int64_t>(ranges.size()), 0));
  return lines;
}

absl::StatusOr<std::vector<AskedRange>> ReadRanges(std::istream& from, size_t columns) {
  std::vector<AskedRange> ranges;
  FileLines lines(from);
  while (true) {
    ASSIGN_OR_RETURN(auto line, lines.Range(columns));
    if (!line) return ranges;
    ranges.push_back({line->range, std::move(line->seen), std::move(line->absent)});
  }
}

absl::StatusOr<FileComparison> CompareWithFile(
    std::istream& from, const VerifyTable& table, const std::string& backfill,
    postgres::Connection& replica,
    const std::function<absl::Status(const FileSource& source, const std::stop_token& stop)>&
        passed,
    const std::stop_token& stop) {
  FileLines lines(from);
  ASSIGN_OR_RETURN(const auto first, lines.Header());
  if (!first) return InvalidArgument("the file is empty");
  ASSIGN_OR_RETURN(const auto types, ReadHeader(*first, table, backfill));
  ASSIGN_OR_RETURN(const FileSource source, ReadNewest(*first));
  VerifySide side(replica, table.replica, types);
  FileComparison found;
  // Whatever was under way when the file was made has arrived then.
  const absl::Status passing = passed(source, stop);
  if (!passing.ok()) found.result.unconfirmed = MessageOf(passing);
  FileComparer comparer(side, found);
  while (true) {
    if (stop.stop_requested()) return absl::CancelledError("stopped before all was compared");
    ASSIGN_OR_RETURN(auto line, lines.Range(types.size()));
    if (!line) break;
    RETURN_IF_ERROR(comparer.Add(*std::move(line)));
  }
  RETURN_IF_ERROR(comparer.Flush());
  std::vector<RowKey> keys;
  for (const auto& [key, version] : comparer.wanted) keys.push_back(key);
  for (size_t i = 0; i < keys.size(); i += kLookedUpAtOnce) {
    const std::vector<RowKey> page(keys.begin() + i,
                                   keys.begin() + std::min(i + kLookedUpAtOnce, keys.size()));
    ASSIGN_OR_RETURN(const auto rows, side.Find(page));
    for (const RowKey& key : page) {
      const int64_t version = comparer.wanted.at(key);
      const auto now = rows.find(key);
      if (now != rows.end() && now->second >= version) continue;
      found.result.differences.push_back(
          {.kind = now == rows.end() ? DifferenceKind::kMissing : DifferenceKind::kBehind,
           .key = key,
           .source_version = version,
           .replica_version = now == rows.end() ? std::nullopt : std::optional(now->second)});
    }
  }
  found.result.first_look = static_cast<int64_t>(comparer.wanted.size());
  std::ranges::sort(found.result.differences, {}, &Difference::key);
  return found;
}

}  // namespace lockstep::verify
