#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "postgres/connection.h"

namespace lockstep::examples {

// The example's source service: it owns videos, and tells what it did to them. Every change and its
// event are one transaction, so there is no event without its change and no change without its
// event. Owned by one thread.
class CatalogService {
 public:
  CatalogService(postgres::Connection& connection, uint64_t seed);

  absl::Status CreateVideo();
  absl::Status UpdateVideo();  // one that exists, chosen at random
  absl::Status DeleteVideo();

  int64_t changes() const { return changes_; }
  size_t videos() const { return videos_.size(); }

 private:
  struct Video {
    std::string id;
    int64_t version = 0;
  };

  // Puts the event beside the change, in its transaction.
  absl::Status Enqueue(postgres::Transaction& transaction, const Video& video,
                       const std::string& event_type, const std::string& payload);
  std::string Uuid();
  size_t Pick();

  postgres::Connection& connection_;
  std::mt19937_64 random_;
  std::vector<Video> videos_;  // those not deleted
  int64_t changes_ = 0;
};

}  // namespace lockstep::examples
