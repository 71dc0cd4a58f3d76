#pragma once

#include "absl/synchronization/mutex.h"

namespace lockstep {

// Debian's abseil looks for deadlocks: every lock that gRPC takes is entered into a graph of all
// locks. That is for debugging, and it costs gRPC's threads a part of their time. For the mains of
// programs that are ours alone: the setting is the whole process's.
inline void LeaveMutexesUnchecked() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace lockstep
