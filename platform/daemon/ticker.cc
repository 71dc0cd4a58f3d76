#include "platform/daemon/ticker.h"

#include <exception>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep {

Ticker::Ticker(Millis every, std::function<void()> round)
    : every_(every), round_(std::move(round)) {}

Ticker::~Ticker() { Stop(); }

absl::Status Ticker::Start() {
  const std::scoped_lock lock(life_mu_, mu_);
  if (started_ || stopping_) return FailedPrecondition("it was started or stopped before");
  started_ = true;
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Ticker::Stop() {
  const std::scoped_lock one(life_mu_);
  {
    const std::scoped_lock lock(mu_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Ticker::Wait() {
  std::unique_lock lock(mu_);
  return stopped_.wait_for(lock, every_, [this] { return stopping_; });
}

void Ticker::Run() {
  do {
    try {
      round_();
    } catch (const std::exception& e) {
      log::Warning("a round failed; the next one is tried", {{"error", e.what()}});
    }
  } while (!Wait());
}

}  // namespace lockstep
