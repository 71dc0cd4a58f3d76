#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "platform/clock.h"
#include "platform/pace.h"

namespace lockstep::web {

// The last hour of the groups or outboxes on a page: for each, what is left to do (its lag, its
// pending rows), how fast it works (events applied, rows published) and how long that will take.
// Minutes that have passed are kept coarsely, so an hour of one part is some 350 points, whatever
// happens: a peak stays, as high as it was. Owned by one thread.
class History {
 public:
  // One group or outbox at one moment; none = not known.
  struct Part {
    std::string name;
    std::optional<double> done;  // since the start
    std::optional<double> left;
  };
  struct Outlook {
    std::optional<double> rate;         // per second
    std::optional<double> eta_seconds;  // until nothing is left; none = not in sight
  };
  void Add(WallTime at, const std::vector<Part>& parts);
  Outlook Of(const std::string& name) const;

  // The document's `history`. `list`: what the parts are, `left`: what is left of them.
  nlohmann::json ToJson(const char* list, const char* left) const;

 private:
  struct Paces {
    Part newest;
    Pace done, left;
  };
  struct Point {
    std::optional<double> left, rate;
  };
  struct Sample {
    int64_t at_ms = 0;
    std::map<std::string, Point> points;
  };
  void Thin();

  std::map<std::string, Paces> paces_;
  std::deque<Sample> samples_;  // first `coarse_` ones of the past, then those of the last minutes
  size_t coarse_ = 0;
};

// Two decimals: a page needs no more, and an hour of them stays small. None = null.
nlohmann::json Rounded(const std::optional<double>& value);

}  // namespace lockstep::web
