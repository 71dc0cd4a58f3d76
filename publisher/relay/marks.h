#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "publisher/options/options.h"
#include "publisher/outbox/outbox_store.h"
#include "publisher/relay/relay_events.h"

namespace lockstep::publisher {

// The outcomes that wait to be written to the outbox. While the database is away they stay here;
// the leases' tokens make a late write safe. Owned by the relay's thread.
class Marks {
 public:
  // Whose rows are written to the table: `owner` is this publisher's name.
  Marks(std::string owner, RelayEvents& events) : owner_(std::move(owner)), events_(events) {}

  void Published(std::shared_ptr<const OutboxRow> row, std::string message_id, SteadyTime now);
  // `frees_followers`: those held behind it may go (on_dead: skip).
  void Failed(std::shared_ptr<const OutboxRow> row, RowFailure failure, bool frees_followers);

  bool empty() const { return published_.empty() && failed_.empty(); }

  // Each write is a transaction, so a relay that rests lets successes gather for a moment. Others
  // may wait for a failure.
  static constexpr Millis kGather{2};
  bool urgent() const { return !failed_.empty() || !published_unblocking_.empty(); }
  // Until they are to be written; nothing when there are none.
  std::optional<Millis> Left(SteadyTime now) const;

  // Writes what is here; each row written (or lost) is handed to `marked`. On an error all of it
  // stays for the next call: a row written twice is a lost lease the second time, which is
  // harmless.
  absl::Status Write(OutboxStore& store, const std::function<void(const OutboxRow&)>& marked);

 private:
  using Row = std::shared_ptr<const OutboxRow>;
  absl::Status Account(OutboxStore& store, const std::vector<Row>& rows,
                       const std::vector<int64_t>& kept,
                       const std::function<void(const OutboxRow&)>& marked);

  std::string owner_;
  RelayEvents& events_;
  SteadyTime since_;  // of the oldest success
  std::vector<Row> published_rows_;
  std::vector<PublishedRow> published_;
  std::vector<int64_t> published_unblocking_;
  std::vector<Row> failed_rows_;
  std::vector<RowFailure> failed_;
  std::vector<int64_t> failed_unblocking_;
};

}  // namespace lockstep::publisher
