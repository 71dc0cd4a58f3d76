#pragma once

#include "absl/status/status.h"

namespace lockstep {

// Something that runs in the background. Start is called once at most; Stop is synchronous,
// idempotent and legal before Start, from any thread. tests/support/service_stress.h holds every
// implementation to it.
class Service {
 public:
  virtual ~Service() = default;
  virtual absl::Status Start() = 0;
  virtual void Stop() = 0;
};

}  // namespace lockstep
