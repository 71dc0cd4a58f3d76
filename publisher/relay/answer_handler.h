#pragma once

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/retry_policy.h"
#include "publisher/dispatch/dispatcher.h"
#include "publisher/options/options.h"
#include "publisher/relay/doubts.h"
#include "publisher/relay/leased_rows.h"
#include "publisher/relay/marks.h"
#include "publisher/relay/published_lately.h"
#include "publisher/relay/relay_events.h"
#include "publisher/relay/topic_pauses.h"

namespace lockstep::publisher {

// Decides what the bus's answers mean for their rows and their keys, and notes it as marks, as
// pauses of topics, or as rows to be sent again. Owned by the relay's thread.
class AnswerHandler {
 public:
  struct Parts {
    const RelayOptions& options;  // as it is when an answer comes
    const Clock& clock;
    Backoff::Random random;
    RelayEvents& events;
    LeasedRows& leased;
    PublishedLately& lately;
    Marks& marks;
    TopicPauses& pauses;
  };
  explicit AnswerHandler(Parts parts) : parts_(std::move(parts)) {}  // which outlive it

  void Handle(LeasedRows::Request request, std::vector<DispatchResult> results);

  // The rows are free again, after a while. `why`: kept as their last error.
  void GiveBack(std::vector<KeyQueues::Entry> entries, Millis delay = Millis(0),
                const DispatchResult* why = nullptr);

  // Why the topic that was paused last is out of reach.
  const absl::Status& outage() const { return outage_; }

 private:
  // Of one key, [first, last) of the request. `refused`: how many rows of the request were, for a
  // fault that may be a row's.
  void HandleKey(const LeasedRows::Request& request, size_t first, size_t last,
                 const std::vector<DispatchResult>& results, int refused);
  void HandleFailure(const KeyQueues::Entry& entry, const DispatchResult& result,
                     std::vector<KeyQueues::Entry> behind);
  void TellUnblamed(const OutboxRow& row, Millis wait, const DispatchResult& result);
  void Doubt(const KeyQueues::Entry& entry, int times, const DispatchResult& result,
             std::vector<KeyQueues::Entry> behind);
  // False where there are too many: the rows have to wait each for itself.
  bool PauseTopic(const OutboxRow& row, const DispatchResult& result);
  void RetryOrBury(const KeyQueues::Entry& entry, const DispatchResult& result, bool permanent,
                   std::vector<KeyQueues::Entry> behind);

  const Parts parts_;
  Doubts doubts_;
  absl::Status outage_;
};

}  // namespace lockstep::publisher
