#include "verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platform/status.h"

namespace lockstep::verify {
namespace {

constexpr size_t kKeysAtOnce = 1'000;  // looked up with one statement

template <class Map>
std::optional<int64_t> VersionIn(const Map& rows, const RowKey& key) {
  const auto found = rows.find(key);
  return found == rows.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::string_view Name(DifferenceKind kind) {
  for (const auto& [name, value] : kDifferenceKinds) {
    if (value == kind) return name;
  }
  return "unknown";
}

Verify::Verify(Parts parts, VerifyOptions options)
    : parts_(std::move(parts)), options_(std::move(options)) {}

absl::StatusOr<VerifyResult> Verify::Run(const std::stop_token& stop) {
  stop_ = stop;
  ASSIGN_OR_RETURN(result_.source_rows, parts_.source.Count());
  ASSIGN_OR_RETURN(result_.replica_rows, parts_.replica.Count());
  ASSIGN_OR_RETURN(const bool source_sorted, parts_.source.Sorted());
  ASSIGN_OR_RETURN(const bool replica_sorted, parts_.replica.Sorted());
  sorted_ = source_sorted && replica_sorted;
  RETURN_IF_ERROR(Compare({}, result_.source_rows, result_.replica_rows));
  RETURN_IF_ERROR(LookAgain());
  return std::move(result_);
}

absl::StatusOr<VerifyResult> Verify::RunRange(const KeyRange& range, const std::stop_token& stop) {
  stop_ = stop;
  ASSIGN_OR_RETURN(const auto source, parts_.source.Summarize(range, {}));
  ASSIGN_OR_RETURN(const auto replica, parts_.replica.Summarize(range, {}));
  result_.source_rows = source[0].count;
  result_.replica_rows = replica[0].count;
  if (source == replica && !parts_.deep) {
    result_.ranges = 1;
    return std::move(result_);
  }
  RETURN_IF_ERROR(Compare(range, result_.source_rows, result_.replica_rows));
  RETURN_IF_ERROR(LookAgain());
  return std::move(result_);
}

absl::StatusOr<VerifyResult> Verify::RunKeys(const std::vector<RowKey>& keys,
                                             const std::stop_token& stop) {
  stop_ = stop;
  // What stands at the source now is what the replica must have.
  for (size_t i = 0; i < keys.size(); i += kKeysAtOnce) {
    const std::vector<RowKey> page(keys.begin() + i,
                                   keys.begin() + std::min(i + kKeysAtOnce, keys.size()));
    ASSIGN_OR_RETURN(const auto replica, parts_.replica.Find(page));
    ASSIGN_OR_RETURN(const auto source, parts_.source.Find(page));
    for (const RowKey& key : page) {
      candidates_[key] = {VersionIn(source, key), VersionIn(replica, key),
                          parts_.deep_keys != nullptr};
    }
  }
  RETURN_IF_ERROR(LookAgain());
  return std::move(result_);
}

// Divides by the keys of the side with more rows, so that no part is large on either.
absl::Status Verify::Compare(const KeyRange& range, int64_t source_rows, int64_t replica_rows) {
  const int64_t rows = std::max(source_rows, replica_rows);
  const int64_t step =
      std::max(options_.range_keys, (rows + options_.most_ranges - 1) / options_.most_ranges);
  VerifySide& larger = source_rows >= replica_rows ? parts_.source : parts_.replica;
  std::vector<RowKey> bounds;
  if (rows > step) {
    ASSIGN_OR_RETURN(bounds, larger.Split(range, step));
  }
  const size_t at_once = sorted_ ? static_cast<size_t>(options_.ranges_at_once) : bounds.size() + 1;
  for (size_t first = 0; first <= bounds.size(); first += at_once) {
    if (stop_.stop_requested()) return absl::CancelledError("stopped before all was compared");
    const size_t last = std::min(first + at_once, bounds.size() + 1);  // ranges [first, last)
    KeyRange outer = range;
    if (first > 0) outer.from = bounds[first - 1];
    if (last <= bounds.size()) outer.below = bounds[last - 1];
    const std::vector<RowKey> inner(bounds.begin() + first, bounds.begin() + (last - 1));
    ASSIGN_OR_RETURN(const auto source, parts_.source.Summarize(outer, inner));
    ASSIGN_OR_RETURN(const auto replica, parts_.replica.Summarize(outer, inner));
    for (size_t i = 0; i < source.size(); ++i) {
      ++result_.ranges;
      KeyRange part = outer;
      if (i > 0) part.from = inner[i - 1];
      if (i < inner.size()) part.below = inner[i];
      if (source[i] == replica[i]) {
        if (parts_.deep && source[i].count > 0) {
          std::vector<Difference> found;
          RETURN_IF_ERROR(parts_.deep(part, &found));
          for (const Difference& one : found) {
            Note(one.key, {one.source_version, one.replica_version, true});
          }
        }
        done_ += source[i].count;
      } else {
        ++result_.differing;
        if (std::max(source[i].count, replica[i].count) > 2 * options_.range_keys) {
          RETURN_IF_ERROR(Compare(part, source[i].count, replica[i].count));
          continue;  // it has counted them itself
        }
        RETURN_IF_ERROR(CompareKeys(part));
        done_ += source[i].count;
      }
      if (parts_.progress) parts_.progress(done_, std::max(done_, result_.source_rows));
    }
  }
  return absl::OkStatus();
}

// The replica first: a row that it holds and the source, read later, does not, was deleted there
// before the passage begins, or never was.
absl::Status Verify::CompareKeys(const KeyRange& range) {
  ASSIGN_OR_RETURN(const auto replica, parts_.replica.List(range));
  ASSIGN_OR_RETURN(const auto source, parts_.source.List(range));
  for (const auto& [key, version] : source) {
    const auto there = VersionIn(replica, key);
    if (there != version) Note(key, {version, there});
  }
  for (const auto& [key, version] : replica) {
    if (!source.contains(key)) Note(key, {std::nullopt, version});
  }
  if (!parts_.deep) return absl::OkStatus();
  std::vector<Difference> found;
  RETURN_IF_ERROR(parts_.deep(range, &found));
  for (const Difference& one : found) {
    Note(one.key, {one.source_version, one.replica_version, true});
  }
  return absl::OkStatus();
}

void Verify::Note(const RowKey& key, Candidate candidate) {
  if (const auto known = candidates_.find(key); known != candidates_.end()) {
    known->second.content |= candidate.content;
    return;
  }
  ++result_.first_look;
  if (static_cast<int64_t>(candidates_.size()) >= options_.most) {
    ++result_.more;
  } else {
    candidates_.emplace(key, candidate);
  }
}

absl::Status Verify::LookAgain() {
  for (int look = 0; look < options_.looks && !candidates_.empty(); ++look) {
    const absl::Status passed = parts_.passed(stop_);
    if (stop_.stop_requested()) return absl::CancelledError("stopped before the second look");
    if (!passed.ok()) result_.unconfirmed = MessageOf(passed);
    std::vector<RowKey> keys;
    for (const auto& [key, candidate] : candidates_) keys.push_back(key);
    for (size_t i = 0; i < keys.size(); i += kKeysAtOnce) {
      RETURN_IF_ERROR(
          LookAt({keys.begin() + i, keys.begin() + std::min(i + kKeysAtOnce, keys.size())}));
    }
    if (!passed.ok()) break;
  }
  if (parts_.deleted) RETURN_IF_ERROR(TellDeleted());
  result_.moving = static_cast<int64_t>(candidates_.size());
  for (const auto& [key, candidate] : candidates_) result_.undecided.push_back(key);
  candidates_.clear();
  if (result_.more > 0 && result_.differences.empty() && result_.unconfirmed.empty()) {
    result_.unconfirmed = fmt::format(
        "more rows differed at the first look than are looked at again, and none of the {} that "
        "were looked at still does; compare again",
        options_.most);
  }
  std::ranges::sort(result_.differences, {}, &Difference::key);
  return absl::OkStatus();
}

// The replica first: what it holds then, the source had before.
absl::Status Verify::LookAt(const std::vector<RowKey>& keys) {
  ASSIGN_OR_RETURN(const auto replica, parts_.replica.Find(keys));
  ASSIGN_OR_RETURN(const auto source, parts_.source.Find(keys));
  std::vector<RowKey> same;  // whose values may differ
  for (const RowKey& key : keys) {
    Candidate& candidate = candidates_.at(key);
    const auto in_replica = VersionIn(replica, key);
    const auto in_source = VersionIn(source, key);
    if (candidate.content && in_source == in_replica && in_source) {
      candidate = {in_source, in_replica, true};
      same.push_back(key);
    } else if (Decide(key, candidate, in_replica, in_source)) {
      candidates_.erase(key);
    }
  }
  if (same.empty()) return absl::OkStatus();
  std::vector<Difference> found;
  RETURN_IF_ERROR(parts_.deep_keys(same, &found));
  std::set<RowKey> decided(same.begin(), same.end());
  for (Difference& one : found) {
    if (one.source_version == one.replica_version) {
      result_.differences.push_back(std::move(one));
    } else {
      decided.erase(one.key);  // moved since: its values were not compared
    }
  }
  for (const RowKey& key : decided) candidates_.erase(key);
  return absl::OkStatus();
}

// `candidate` has what was seen before the replica passed everything committed then.
bool Verify::Decide(const RowKey& key, Candidate& candidate, std::optional<int64_t> replica,
                    std::optional<int64_t> source) {
  const Candidate before = std::exchange(candidate, {source, replica, candidate.content});
  if (replica && source && *replica > *source) {  // read later, the source can't be behind
    Found(DifferenceKind::kAhead, key, source, replica);
    return true;
  }
  if (replica == source) return true;
  if (before.source && source) {
    // It has what there was, and more comes. Its values are compared once the versions agree.
    if (replica && *replica >= *before.source) return !before.content;
    // Deleted, which the replica has, and made anew, which it need not have yet.
    if (!replica && *source != *before.source) return false;
    Found(replica ? DifferenceKind::kBehind : DifferenceKind::kMissing, key, source, replica);
    return true;
  }
  if (!before.source && !source && before.replica == replica) {
    Found(DifferenceKind::kGhost, key, source, replica);
    return true;
  }
  return false;  // made or deleted meanwhile
}

absl::Status Verify::TellDeleted() {
  std::vector<Difference*> missing;
  for (Difference& one : result_.differences) {
    if (one.kind == DifferenceKind::kMissing) missing.push_back(&one);
  }
  for (size_t i = 0; i < missing.size(); i += kKeysAtOnce) {
    const size_t end = std::min(i + kKeysAtOnce, missing.size());
    std::vector<RowKey> keys;
    for (size_t j = i; j < end; ++j) keys.push_back(missing[j]->key);
    ASSIGN_OR_RETURN(const auto deleted, parts_.deleted(keys));
    for (size_t j = i; j < end; ++j) {
      const auto version = VersionIn(deleted, missing[j]->key);
      if (version > missing[j]->source_version) missing[j]->kind = DifferenceKind::kAhead;
    }
  }
  return absl::OkStatus();
}

void Verify::Found(DifferenceKind kind, const RowKey& key, std::optional<int64_t> source,
                   std::optional<int64_t> replica) {
  result_.differences.push_back(
      {.kind = kind, .key = key, .source_version = source, .replica_version = replica});
}

}  // namespace lockstep::verify
