#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "absl/status/status.h"

namespace lockstep::publisher {

// For those who wait until a relay has drained its outbox: the relay notes what its rounds come to,
// and they wait for the right ones. Safe from any thread. GiveUp, when the relay ends, lets go of
// all who wait.
class Draining {
 public:
  explicit Draining(std::string table) : table_(std::move(table)) {}

  // Until two rounds found nothing; not OK when two could not go on, or after GiveUp. `wake` is
  // called once the relay can see that somebody waits.
  absl::Status Wait(const std::function<void()>& wake);

  // Somebody waits for more rounds that find nothing.
  bool Awaited() const;

  void FoundRows();
  void FoundNothing();
  // Nothing goes on until something that is out of reach comes back.
  void Stuck(absl::Status why);
  void GiveUp();

 private:
  const std::string table_;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  bool empty_ = false;  // by the last look
  int64_t empty_rounds_ = 0;
  int64_t awaited_rounds_ = 0;
  int64_t stuck_rounds_ = 0;
  absl::Status stuck_;
  bool gave_up_ = false;
};

}  // namespace lockstep::publisher
