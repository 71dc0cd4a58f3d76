#include "publisher/relay/shard_assignment.h"

#include <algorithm>

namespace lockstep::publisher {

int64_t ShardAssignment::Set(std::vector<int> shards, int count) {
  std::scoped_lock lock(mu_);
  fresh_ = {std::move(shards), count};
  return ++changes_;
}

bool ShardAssignment::LeftBehind(int64_t change) const {
  std::scoped_lock lock(mu_);
  return followed_ >= change && !leaving_;
}

bool ShardAssignment::Follow() {
  std::scoped_lock lock(mu_);
  if (!fresh_.has_value()) return false;
  std::tie(shards_, count_) = *std::exchange(fresh_, std::nullopt);
  has_first_ = Has(0);
  followed_ = changes_;
  leaving_ = true;
  return true;
}

void ShardAssignment::NoneLeft() { leaving_ = false; }

bool ShardAssignment::Has(int shard) const {
  return std::find(shards_.begin(), shards_.end(), shard) != shards_.end();
}

}  // namespace lockstep::publisher
