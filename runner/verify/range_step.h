#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "postgres/cancel_on_stop.h"
#include "postgres/connection.h"
#include "projections/write/group_projector.h"
#include "runner/verify/verify_target.h"
#include "state/schema.h"
#include "verify/deep.h"
#include "verify/passage.h"
#include "verify/side.h"
#include "verify/verify.h"

namespace lockstep::runner {

// How long until the next range, so that all rows have had their turn well before `every` has
// passed since the pass began; at least as long as the last one took, so that a table that is too
// large for its time is late and not a load.
Millis PauseAfterRange(Millis every, Millis since_begun, Millis took, int64_t rows, int64_t left);

// The two sides of one table for a range or a few keys: sessions of their own, which can't write,
// want no parallel workers and wait for no lock, under a time for each statement. Made for one
// step, on one thread.
class RangeStep {
 public:
  struct Parts {
    const VerifyTarget& target;
    const verify::VerifyTable& table;
    const projections::GroupProjector* projector = nullptr;  // of a deep comparison; null = none
    std::string source, replica;                             // databases
    const state::Schema& schema;
    std::string group;
    verify::PassageOptions passage;
    Millis statement_timeout{30'000};
    std::stop_token stop;
    std::function<void()> alive;  // called between statements; may be empty
  };
  // REQUIRES: the target and what is referred to outlive it.
  static absl::StatusOr<std::unique_ptr<RangeStep>> Open(Parts parts);

  // What keys are made of, the replica's columns and as what they are compared: "tenant text, id
  // bigint". Keys from when it was another mean nothing now.
  std::string KeyedBy() const;

  struct Compared {
    verify::VerifyResult result;
    std::optional<verify::RowKey> next;  // where the next range begins; none = there is none
    int64_t left = 0;                    // rows behind it, about
  };
  // About `rows` rows of each side from `from` on. Where no index yields the order of the keys, a
  // range costs a scan: then they are larger, and few. `divided`: of either the so manieth part.
  absl::StatusOr<Compared> Next(const std::optional<verify::RowKey>& from, int64_t rows,
                                int64_t divided = 1);

  absl::StatusOr<verify::VerifyResult> Keys(const std::vector<verify::RowKey>& keys);

 private:
  explicit RangeStep(Parts parts) : parts_(std::move(parts)) {}
  absl::Status Connect();
  verify::Verify MakeVerify();
  absl::StatusOr<std::optional<verify::RowKey>> EndOf(const verify::KeyRange& range, int64_t rows);

  const Parts parts_;
  std::unique_ptr<postgres::Connection> at_source_, at_replica_;
  std::optional<postgres::CancelOnStop> cancel_source_, cancel_replica_;
  std::unique_ptr<verify::VerifySide> source_, replica_;
  std::unique_ptr<verify::DeepCompare> deep_;
};

}  // namespace lockstep::runner
