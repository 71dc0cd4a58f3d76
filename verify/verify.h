#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verify/side.h"

namespace lockstep::verify {

// How a row of the replica differs from its source.
enum class DifferenceKind {
  kMissing,  // the source has it, the replica does not
  kBehind,   // an older version than the source's
  kGhost,    // the replica has it, the source does not
  kAhead,    // a newer version than the source's, or deleted in one: the source was restored
  kContent,  // the same version, other values (a deep comparison finds these)
};
inline const std::vector<std::pair<std::string, DifferenceKind>> kDifferenceKinds = {
    {"missing", DifferenceKind::kMissing}, {"behind", DifferenceKind::kBehind},
    {"ghost", DifferenceKind::kGhost},     {"ahead", DifferenceKind::kAhead},
    {"content", DifferenceKind::kContent},
};
std::string_view Name(DifferenceKind kind);

struct Difference {
  DifferenceKind kind = DifferenceKind::kMissing;
  RowKey key;
  std::optional<int64_t> source_version;
  std::optional<int64_t> replica_version;
  std::vector<std::string> columns;  // of kContent: those that differ; never their values
  // Of kContent: why the source's row, as a snapshot, can't go through the projection, so that
  // nothing could be compared; empty = it can. Sent again it would be a dead letter.
  std::string unmapped = {};
};

struct VerifyOptions {
  // Ranges of about so many keys are hashed, and listed when they differ.
  int64_t range_keys = 10'000;
  // Ranges hashed by one statement where an index yields the order of the keys; where none does,
  // one statement answers for all ranges.
  int ranges_at_once = 16;
  // At most so many ranges at a time: what one side's bounds take in memory.
  int64_t most_ranges = 4'096;
  // Differences that are looked at closely; what is beyond is only counted.
  int64_t most = 100'000;
  // How often a key that moves is looked at again.
  int looks = 5;
};

struct VerifyResult {
  int64_t source_rows = 0;
  int64_t replica_rows = 0;
  int64_t ranges = 0;             // that were hashed
  int64_t differing = 0;          // of them
  int64_t first_look = 0;         // keys that differed at the first look
  int64_t moving = 0;             // keys that moved between all looks: neither equal nor different
  std::vector<RowKey> undecided;  // these keys
  std::vector<Difference> differences;
  int64_t more = 0;  // differences beyond VerifyOptions::most, at least; seen once only
  // Empty when every difference was seen again after the replica had everything that was committed
  // at the first look; else why not.
  std::string unconfirmed;

  bool differs() const { return !differences.empty() || more > 0; }
  bool equal() const { return !differs() && moving == 0; }
};

// Compares the two sides by key range: count and hash, down to the keys of ranges that differ, and
// those keys again after `passed`. Needs no lock and no pause: a change under way is no difference.
// Memory is bounded by the options. Owned by one thread.
class Verify {
 public:
  struct Parts {
    VerifySide& source;
    VerifySide& replica;
    // Returns once the replica has (or never will have by itself) all that the source had committed
    // at the call; a failure says why that can't be told.
    std::function<absl::Status(const std::stop_token& stop)> passed;
    std::function<void(int64_t done, int64_t total)> progress;  // rows; may be empty
    // A deep comparison of the source's rows in the range: appends kContent, of rows of the same
    // version that hold other values; and of rows whose versions differ by then (the replica's may
    // be none), which could not be compared. Empty = none.
    std::function<absl::Status(const KeyRange& range, std::vector<Difference>* found)> deep;
    // The same for given keys, for their second look.
    std::function<absl::Status(const std::vector<RowKey>& keys, std::vector<Difference>* found)>
        deep_keys;
    // In which versions the replica has deleted rows of these keys, as far as it remembers. Empty =
    // it does not.
    std::function<absl::StatusOr<std::map<RowKey, int64_t>>(const std::vector<RowKey>& keys)>
        deleted;
  };

  Verify(Parts parts, VerifyOptions options);

  // CANCELLED when it is stopped.
  absl::StatusOr<VerifyResult> Run(const std::stop_token& stop);

  // Of this range alone; its parts are hashed by one statement. No rows without a key are found.
  absl::StatusOr<VerifyResult> RunRange(const KeyRange& range, const std::stop_token& stop);

  // Only these keys, all of which are looked at twice; for what was repaired.
  absl::StatusOr<VerifyResult> RunKeys(const std::vector<RowKey>& keys,
                                       const std::stop_token& stop);

 private:
  // A key that differed when it was last looked at.
  struct Candidate {
    std::optional<int64_t> source;
    std::optional<int64_t> replica;
    bool content = false;  // its values may differ: they are compared once the versions agree
  };

  absl::Status Compare(const KeyRange& range, int64_t source_rows, int64_t replica_rows);
  absl::Status CompareKeys(const KeyRange& range);
  void Note(const RowKey& key, Candidate candidate);
  absl::Status LookAgain();
  absl::Status LookAt(const std::vector<RowKey>& keys);
  // Whether it is decided: a difference (added), or none.
  bool Decide(const RowKey& key, Candidate& candidate, std::optional<int64_t> replica,
              std::optional<int64_t> source);
  // Missing rows that a newer delete keeps away are ahead: no snapshot brings them back.
  absl::Status TellDeleted();
  void Found(DifferenceKind kind, const RowKey& key, std::optional<int64_t> source,
             std::optional<int64_t> replica);

  const Parts parts_;
  const VerifyOptions options_;
  std::stop_token stop_;
  bool sorted_ = false;
  int64_t done_ = 0;
  std::map<RowKey, Candidate> candidates_;
  VerifyResult result_;
};

}  // namespace lockstep::verify
