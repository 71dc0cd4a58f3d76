#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "publisher/outbox/outbox_store.h"
#include "publisher/relay/key_queues.h"

namespace lockstep::publisher {

// The rows that a relay has leased: those that wait in its queues, those under way at the bus, and,
// by the tokens of their leases, those whose outcome is not marked in the outbox yet. It renews the
// leases of the first two. Owned by the relay's thread.
class LeasedRows {
 public:
  struct Request {
    KeyQueues::Request entries;
    SteadyTime sent_at;
  };

  // Rows of one claim, which began at `leased_at`.
  void Add(std::vector<OutboxRow> rows, SteadyTime leased_at);

  // The next request for the bus, under way from now on; its number is for Answered.
  std::optional<int64_t> Send(SteadyTime now);
  const KeyQueues::Request& entries(int64_t request) const {
    return under_way_.at(request).entries;
  }
  // No longer under way. Nothing where that request is unknown.
  std::optional<Request> Answered(int64_t request);

  // The row's outcome is in the outbox, or its lease was lost: the claim rule need not know it.
  void Marked(const OutboxRow& row);

  // Renews what is a third of its time old, and looks for it every sixth of it. What was left too
  // long is dropped: it may be another's. Answers waiting rows whose lease another took.
  absl::StatusOr<std::vector<KeyQueues::Entry>> Renew(OutboxStore& store, Millis lock_ttl,
                                                      SteadyTime now);

  KeyQueues& queues() { return queues_; }
  size_t requests() const { return under_way_.size(); }
  size_t rows() const { return queues_.waiting() + rows_under_way_; }
  bool AnyUnderWay(const std::function<bool(const OutboxRow&)>& pick) const;
  std::vector<std::string> live_tokens() const;

 private:
  KeyQueues queues_;
  std::map<int64_t, Request> under_way_;
  int64_t next_request_ = 1;
  size_t rows_under_way_ = 0;
  std::map<std::string, int> unmarked_;  // rows of each lease
  SteadyTime last_look_;                 // for leases to renew
};

}  // namespace lockstep::publisher
