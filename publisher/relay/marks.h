#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "publisher/outbox/outbox_store.h"
#include "publisher/relay/relay_events.h"

namespace lockstep::publisher {

// The outcomes that wait to be written to the outbox. While the database is away they stay here;
// the leases' tokens make a late write safe. Owned by the relay's thread.
class Marks {
 public:
  // Whose rows are written to the table: `owner` is this publisher's name.
  Marks(std::string owner, RelayEvents& events) : owner_(std::move(owner)), events_(events) {}

  void Published(RowPtr row, std::string message_id, SteadyTime now, bool dedup_hit = false);
  void Failed(RowFailure failure) { failed_.push_back(std::move(failure)); }

  bool empty() const { return published_.empty() && failed_.empty(); }

  // Each write is a transaction, so a relay that rests lets successes gather for a moment. Others
  // may wait for a failure, and behind what failed before.
  static constexpr Millis kGather{2};
  bool urgent() const { return !failed_.empty() || published_unblocks_; }
  // Until they are to be written; nothing when there are none.
  std::optional<Millis> Left(SteadyTime now) const;

  // Writes what is here; each row written (or lost) is handed to `marked`. On an error all of it
  // stays for the next call: a row written twice is a lost lease the second time, which is
  // harmless.
  // `unmarked` says how many rows of a lease have no outcome yet, those in here included.
  using Marked = std::function<void(const OutboxRow&)>;
  using Unmarked = std::function<int(const std::string& lease)>;
  absl::Status Write(OutboxStore& store, const Marked& marked, const Unmarked& unmarked);

 private:
  // The leases of which `outcomes` are the last rows.
  template <class Outcome>
  static std::vector<std::string> EndedWith(const std::vector<Outcome>& outcomes,
                                            const Unmarked& unmarked);
  // What stands behind a Write: `outcomes` were written, and those of `kept` were still ours.
  template <class Outcome>
  absl::Status Account(OutboxStore& store, std::vector<Outcome> outcomes,
                       const std::vector<int64_t>& kept, const Marked& marked);

  std::string owner_;
  RelayEvents& events_;
  SteadyTime since_;  // of the oldest success
  std::vector<PublishedRow> published_;
  bool published_unblocks_ = false;  // rows may be held behind one of them
  std::vector<RowFailure> failed_;
};

}  // namespace lockstep::publisher
