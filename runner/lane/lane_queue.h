#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "pubsub/message.h"
#include "runner/options/group_options.h"
#include "runner/status/group_status.h"

namespace lockstep::runner {

// How long a batch may grow, and to how many messages, before a lane takes it.
struct Gathering {
  Millis linger{0};
  int64_t enough = 0;

  // Without a configured linger a lane takes what there is. But one lane can come to hold nearly
  // all that flow control allows; the others get single messages then, and their many small
  // transactions take from it the CPU that it needs to catch up: a state that lasts. So while
  // nearly everything allowed is in hand, a lane with a small batch lets it grow for a moment.
  static Gathering For(const GroupOptions& options, int64_t in_hand);
};

// What one lane has still to do: filled by transport threads, emptied by the lane's. Bounded by the
// receiver's flow control. Safe from any thread.
class LaneQueue {
 public:
  struct Waiting {
    pubsub::Delivery delivery;
    WallTime received_at;
    int64_t bytes = 0;
  };

  // Answers what it does not take: everything, once it was abandoned.
  std::vector<pubsub::AckToken> Push(std::vector<Waiting> waiting);
  // Aggregates with parked events that are due, to be worked off before what waits.
  void Release(std::vector<std::string> keys);

  // Waits for something to take. False once it is closed and there is nothing more.
  bool Await();
  std::vector<std::string> TakeDue();
  // Takes what has queued, within the limits, and lets it gather before. Empty when there is
  // nothing, or no longer: leases may be lost while it gathers.
  std::vector<Waiting> Take(int max_messages, int64_t max_bytes, const Gathering& gathering);
  // What was taken, messages or keys, is worked off.
  void Done();

  // Takes out every waiting message of the keys that these tokens belong to, to be given back. The
  // lost ones too: for the server their leases may run a moment longer, and what is behind them
  // would come again first.
  std::vector<pubsub::AckToken> DropKeysOf(const std::vector<pubsub::AckToken>& lost);

  // Nothing more will come.
  void Close();
  // Takes out everything that waits, closes, and takes nothing any more.
  std::vector<pubsub::AckToken> Abandon();

  // No message waits, and more may come.
  bool idle() const;
  int64_t in_hand() const;  // messages that wait or were taken
  bool releasing() const;   // the same of keys
  // What waits, what was taken, and when the oldest of it was published and received.
  void Fill(LaneStatus& status) const;

 private:
  struct Times {
    WallTime published, received;
  };
  Times OldestWaiting() const;

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  std::vector<std::string> due_;
  bool due_taken_ = false;
  int64_t taken_ = 0;   // messages of the batch under way …
  Times taken_oldest_;  // … and of its first one
  bool closed_ = false;
  bool abandoned_ = false;
};

}  // namespace lockstep::runner
