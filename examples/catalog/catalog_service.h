#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "postgres/connection.h"

namespace lockstep::examples {

// The example's source service: it owns videos, and tells what it did to them. Every change and its
// event are one transaction, so there is no event without its change and no change without its
// event. Owned by one thread.
class CatalogService {
 public:
  CatalogService(postgres::Connection& connection, uint64_t seed)
      : connection_(connection), random_(seed) {}

  absl::Status CreateVideo();
  absl::Status UpdateVideo();  // one that exists, chosen at random
  absl::Status DeleteVideo();

 private:
  struct Video {
    std::string id;
    int64_t version = 0;
  };

  // The change, and the event beside it.
  absl::Status Write(const postgres::Statement& change, const postgres::Params& params,
                     const Video& video, const google::protobuf::Message& event);
  std::string Uuid();
  size_t Pick();

  postgres::Connection& connection_;
  std::mt19937_64 random_;
  std::vector<Video> videos_;  // those not deleted
};

}  // namespace lockstep::examples
