#pragma once

#include <span>
#include <string>
#include <vector>

#include "projections/model/projection.h"

namespace lockstep::examples {

// A projection that no mapping can say: a score per video that fades with time. Each like adds to
// what is left of the score, which halves every day; so a write depends on when the last one was.
// It runs its own SQL, one statement for the whole batch, in the batch's transaction; the inbox
// makes sure that no event is scored twice.
//
//   CREATE TABLE engagement_read.trending
//     (video_id text PRIMARY KEY, score double precision NOT NULL, scored_at timestamptz NOT NULL)
//
// Registered beside the declared projections of a group, as examples/embedded_runner does it:
//   extensions.projections["engagement"].push_back(std::make_shared<Trending>());
class Trending : public projections::Projection {
 public:
  std::string Name() const override { return "trending"; }
  bool Wants(const projections::Event& event) const override;
  std::vector<std::string> OwnTables() const override { return {"engagement_read.trending"}; }
  bool Writes() const override { return true; }
  absl::Status Write(postgres::Transaction& transaction,
                     std::span<const projections::Event* const> events,
                     const std::string& suffix) const override;
};

}  // namespace lockstep::examples
