#include "platform/daemon/ticker.h"

#include <exception>

#include "platform/log/log.h"

namespace lockstep {

void Ticker::Run() {
  do {
    try {
      round_();
    } catch (const std::exception& e) {
      log::Warning("a round failed; the next one is tried", {{"error", e.what()}});
    }
  } while (!SleepUnlessStopped(thread_.stop_token(), every_));
}

}  // namespace lockstep
