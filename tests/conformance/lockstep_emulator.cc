#include <atomic>

#include "emulator/service/server.h"
#include "platform/status.h"
#include "tests/conformance/server.h"

namespace lockstep::conformance {
namespace {

// The machine's clock, moved forward by the test.
class MovableClock : public Clock {
 public:
  WallTime Now() const override { return Clock::System().Now() + Millis(moved_); }
  SteadyTime Steady() const override { return Clock::System().Steady() + Millis(moved_); }
  void Advance(Millis by) { moved_ += by.count(); }

 private:
  std::atomic<int64_t> moved_ = 0;
};

class LockstepServer : public Server {
 public:
  LockstepServer() : server_({.clock = &clock_}) {}

  absl::Status Start() { return server_.Start(); }
  std::string address() const override { return server_.address(); }
  Features features() const override { return {}; }
  void Advance(Millis by) override { clock_.Advance(by); }
  emulator::Faults* faults() override { return &server_.faults(); }

 private:
  MovableClock clock_;
  emulator::Server server_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Server>> LockstepEmulator() {
  auto server = std::make_shared<LockstepServer>();
  RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace lockstep::conformance
