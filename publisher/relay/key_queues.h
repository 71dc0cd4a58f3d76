#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/clock.h"
#include "publisher/outbox/outbox_row.h"

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
  };

  // Rows of one claim. Of one aggregate, they come behind those that are here already.
  void Add(std::vector<OutboxRow> rows, SteadyTime leased_at);

  // The next request, or nothing when every key with rows has one under way. Its keys are under way
  // until each is finished by one of the two calls below.
  std::optional<Request> Next(const Limits& limits);

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

}  // namespace lockstep::publisher
