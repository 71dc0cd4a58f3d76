#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "platform/retry_policy.h"
#include "publisher/options/options.h"
#include "publisher/outbox/outbox_store.h"
#include "publisher/relay/mailbox.h"

namespace lockstep::publisher {

// How a relay waits for work (docs/design.md, wake). NOTIFY is a hint, the poll is the truth.
//
// To sleep, it takes the wake lock of each of its shards; the relay then looks once more, and only
// when that look finds nothing does it wait. A writer that fails to share the lock notifies. One
// that shares it keeps us from sleeping until its transaction ends. A relay that keeps up with the
// writers holds the locks on through its work: each commit wakes it anyway, and going to sleep
// takes three statements (ADR 11). Owned by the relay's thread.
class Sleeper {
 public:
  // `options`: as they are at each rest.
  Sleeper(const RelayOptions& options, Backoff::Random random)
      : options_(options), random_(std::move(random)) {}

  // Work was found: the next wait is short again. If there is `more`, writers need not notify.
  absl::Status Awake(OutboxStore& store, bool more);

  // Called when there is nothing to do. The first time it takes the locks and returns at once;
  // then it waits: for a notification, the mailbox, `at_most`, or the poll. `floor`: where the
  // last look began. `tick` is called at least every second meanwhile. Answers whether there may be
  // something to see, as far as it knows: not when the mailbox or `at_most` ended the wait under
  // the locks.
  absl::StatusOr<bool> Rest(OutboxStore& store, Mailbox& mailbox, const ClaimRequest& request,
                            const ClaimCursor& floor, std::optional<Millis> at_most,
                            const std::function<bool()>& tick);

  // The session is gone, and its locks with it.
  void Forget() { armed_.clear(); }

  bool armed() const { return !armed_.empty(); }
  // Whether a notification ended the last rest. Asked once.
  bool TakeTold() { return std::exchange(told_, false); }

 private:
  absl::Status Disarm(OutboxStore& store);
  absl::StatusOr<bool> Notified(OutboxStore& store);

  bool told_ = false;
  const RelayOptions& options_;
  Backoff::Random random_;
  int rests_ = 0;           // in a row that came to their end
  int writer_rests_ = 0;    // in a row, because somebody was writing
  std::vector<int> armed_;  // shards whose wake locks we hold
};

}  // namespace lockstep::publisher
