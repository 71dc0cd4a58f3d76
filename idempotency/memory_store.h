#pragma once

#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "idempotency/store.h"

namespace lockstep::idempotency {

// Keys in this process: for tests, and for services whose requests need not survive it. Each call
// stands at once. Safe from any thread.
class MemoryStore : public IdempotencyStore {
 public:
  explicit MemoryStore(const Clock& clock = Clock::System()) : clock_(clock) {}

  absl::StatusOr<Answer> CheckAndPut(const Request& request) override;
  absl::Status Finish(const Held& held, const std::optional<std::string>& digest) override;
  absl::Status Fail(const Held& held, const std::string& error) override;
  absl::Status Renew(const Held& held, Millis lease) override;

  // Forgets what has expired; answers how many.
  size_t Clean();
  size_t size() const;

 private:
  enum class State { kInFlight, kSucceeded, kFailed };
  struct Entry {
    std::string hash, token;
    State state = State::kInFlight;
    Millis lease{0}, ttl{0};
    WallTime lease_until, expires_at;
    std::optional<std::string> digest;
    std::string error;
  };
  using Key = std::pair<std::optional<std::string>, std::string>;

  Answer Take(const Request& request, WallTime now);
  // The entry that `held` may change, or null.
  Entry* Find(const Held& held);
  absl::Status End(const Held& held, State state, const std::optional<std::string>& digest,
                   const std::string& error);
  std::string NewToken();

  const Clock& clock_;
  mutable std::mutex mu_;
  std::map<Key, Entry> entries_;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace lockstep::idempotency
