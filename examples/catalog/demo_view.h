#pragma once

#include <cstdint>

#include "platform/clock.h"

namespace lockstep::examples {

struct DemoState {
  int64_t target = 0;     // changes that the source will make
  int64_t written = 0;    // changes that it has committed
  int64_t published = 0;  // outbox rows that Pub/Sub has
  int64_t applied = 0;    // events in the runner's inbox
  int64_t videos = 0;     // rows in the source
  int64_t rows = 0;       // rows in the read model
  Millis elapsed{0};
};

// Shows the demo's state: redrawn in place on a terminal, a plain line now and then elsewhere.
class DemoView {
 public:
  explicit DemoView(bool terminal) : terminal_(terminal) {}
  void Show(const DemoState& state);
  void Finish();  // leaves the last picture standing

 private:
  bool terminal_;
  bool drawn_ = false;
  Millis last_line_{-10'000};
  DemoState last_;
};

}  // namespace lockstep::examples
