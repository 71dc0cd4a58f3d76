#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::publisher {

// The shards that a relay is to relay: a ShardOwner sets them, the relay follows at its next turn,
// and the owner gives a shard away once no row of it is in the relay's hands. None at first.
class ShardAssignment {
 public:
  // --- from any thread ---
  // The shards from now on, of `count`. Answers a number for LeftBehind.
  int64_t Set(std::vector<int> shards, int count) {
    std::scoped_lock lock(mu_);
    fresh_ = {std::move(shards), count};
    return ++changes_;
  }
  // True once the relay has followed that Set and has no row of another shard in hand.
  bool LeftBehind(int64_t change) const {
    std::scoped_lock lock(mu_);
    return followed_ >= change && !leaving_;
  }
  bool has_first() const { return has_first_; }

  // --- on the relay's thread alone ---
  // Takes over what was set; false when nothing was since the last time. Rows of other shards count
  // as in hand until NoneLeft.
  bool Follow() {
    std::scoped_lock lock(mu_);
    if (!fresh_.has_value()) return false;
    std::tie(shards_, count_) = *std::exchange(fresh_, std::nullopt);
    has_first_ = Has(0);
    followed_ = changes_;
    leaving_ = true;
    return true;
  }
  bool leaving() const { return leaving_; }
  void NoneLeft() { leaving_ = false; }

  const std::vector<int>& shards() const { return shards_; }
  int count() const { return count_; }
  bool Has(int shard) const {
    return std::find(shards_.begin(), shards_.end(), shard) != shards_.end();
  }

 private:
  std::vector<int> shards_;
  int count_ = 1;
  std::atomic<bool> has_first_ = false;
  std::atomic<bool> leaving_ = false;

  mutable std::mutex mu_;
  std::optional<std::pair<std::vector<int>, int>> fresh_;
  int64_t changes_ = 0;   // calls of Set
  int64_t followed_ = 0;  // the last one that the relay has followed
};

}  // namespace lockstep::publisher
