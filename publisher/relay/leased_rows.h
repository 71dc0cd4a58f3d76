#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "publisher/dispatch/dispatcher.h"
#include "publisher/outbox/outbox_store.h"

namespace lockstep::publisher {

// The rows that a relay has claimed and not yet marked, by ordering key: at most one request per
// key is under way, and what is behind it waits here. So an earlier row's failure is known before
// a later row leaves. Pure data structure of the relay's thread.
class KeyQueues {
 public:
  struct Entry {
    RowPtr row;
    SteadyTime leased_at;
    // Was in a request of twice as many rows that was refused as a whole: the way to find the one.
    int request_limit = std::numeric_limits<int>::max();
  };
  using Request = std::vector<Entry>;  // of one topic; rows of a key in order, side by side

  struct Limits {
    int rows = 1000;
    int64_t bytes = 9'000'000;
    bool one_key = false;
  };
  // Those of a topic; nothing = none of it may leave now.
  using LimitsOf = std::function<std::optional<Limits>(const std::string& topic)>;

  // Rows of one claim. Of one aggregate, they come behind those that are here already.
  void Add(std::vector<OutboxRow> rows, SteadyTime leased_at);

  // The next request, or nothing when every key with rows has one under way. Its keys are under way
  // until each is finished by one of the two calls below.
  std::optional<Request> Next(const LimitsOf& limits_of);
  std::optional<Request> Next(const Limits& limits) {
    return Next([&](const std::string&) { return limits; });
  }

  // All rows of the key in the request were delivered.
  void Succeeded(const std::string& key);
  // Not all were. Takes out what waits behind them, in order.
  std::vector<Entry> Failed(const std::string& key);
  // As Failed, but `entries` go back to the front, to be sent again.
  void SendAgain(const std::string& key, std::vector<Entry> entries);

  // Takes out what waits (nothing that is under way) where `pick` says so.
  std::vector<Entry> TakeWaiting(const std::function<bool(const Entry&)>& pick);

  // Everything here that waits, for renewal.
  void ForEachWaiting(const std::function<void(Entry&)>& visit);
  void AddTopicsOfWaiting(std::set<std::string>& topics) const;

  size_t waiting() const { return waiting_; }

 private:
  struct Queue {
    std::deque<Entry> waiting;
    bool under_way = false;
  };

  void MakeReady(const std::string& key, const Queue& queue);

  std::unordered_map<std::string, Queue> queues_;
  // Keys whose first row may leave, by its topic. May name a key that is gone or under way.
  std::map<std::string, std::deque<std::string>> ready_;
  size_t waiting_ = 0;
};

// The rows that a relay has leased: those that wait in its queues, those under way at the bus, and,
// by the tokens of their leases, those whose outcome is not marked in the outbox yet. It renews the
// leases of the first two. Owned by the relay's thread.
class LeasedRows {
 public:
  struct Request {
    KeyQueues::Request entries;
    SteadyTime sent_at;
    bool counted = true;  // among `requests`
  };
  using ShapeOf = std::function<RequestShape(const std::string& topic)>;

  // Rows of one claim, which began at `leased_at`.
  void Add(std::vector<OutboxRow> rows, SteadyTime leased_at);

  // One of the claim that won't be sent; its outcome is to be marked.
  void SetAside(const OutboxRow& row) { ++unmarked_[row.lock_token]; }

  // The next request, under way from now on; its number is for Answered. `max_requests`: at most so
  // many that count are under way.
  std::optional<int64_t> Send(SteadyTime now, const ShapeOf& shape_of, int max_requests);
  const KeyQueues::Request& entries(int64_t request) const {
    return under_way_.at(request).entries;
  }
  // No longer under way. Nothing where that request is unknown.
  std::optional<Request> Answered(int64_t request);

  // The row's outcome is in the outbox, or its lease was lost: the claim rule need not know it.
  void Marked(const OutboxRow& row);
  // Rows of that lease that are not marked; 0 for one that is not known.
  int Unmarked(const std::string& lease) const;

  // Renews what is a third of its time old, and looks for it every sixth of it. What was left too
  // long is dropped: it may be another's. Answers waiting rows whose lease another took.
  absl::StatusOr<std::vector<KeyQueues::Entry>> Renew(OutboxStore& store, Millis lock_ttl,
                                                      SteadyTime now);

  KeyQueues& queues() { return queues_; }
  size_t requests() const { return under_way_.size(); }
  size_t rows() const { return queues_.waiting() + rows_under_way_; }
  std::set<std::string> Topics() const;  // of rows that wait or are under way
  bool AnyUnderWay(const std::function<bool(const OutboxRow&)>& pick) const;
  std::vector<std::string> live_tokens() const;

 private:
  KeyQueues queues_;
  std::map<int64_t, Request> under_way_;
  int64_t next_request_ = 1;
  size_t rows_under_way_ = 0;
  int counted_ = 0;                      // requests under way that count
  std::map<std::string, int> unmarked_;  // rows of each lease
  SteadyTime last_look_;                 // for leases to renew
};

}  // namespace lockstep::publisher
