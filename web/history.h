#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "platform/clock.h"

namespace lockstep::web {

// The last minutes of what a status document says: per group its lag and applied events, per outbox
// its pending and published rows. Rates and times to catch up are read off here. Owned by one
// thread.
class History {
 public:
  struct Options {
    Millis span{600'000};        // how far back
    Millis step{2'000};          // between two points; closer samples replace the newest
    Millis rate_window{10'000};  // what a rate is averaged over
  };
  History();
  explicit History(Options options);

  void Add(WallTime at, const nlohmann::json& document);

  // Adds `rate` and `eta_seconds` to the document's groups and outboxes, and `history`.
  void Decorate(nlohmann::json& document) const;

 private:
  struct Sample {
    int64_t at_ms = 0;
    std::map<std::string, double> values;
  };

  std::optional<double> ValueAt(size_t sample, const std::string& name) const;
  // Change per second of `name` over the rate window that ends at `sample`; none while unknown.
  std::optional<double> Slope(size_t sample, const std::string& name) const;
  // Seconds until a number that shrinks at its present pace is at zero; none when it does not.
  std::optional<double> TimeToZero(const std::string& name) const;
  nlohmann::json Values(const std::string& name) const;
  nlohmann::json Rates(const std::string& name) const;

  Options options_;
  std::deque<Sample> samples_;
};

}  // namespace lockstep::web
