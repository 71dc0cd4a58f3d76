#include "tests/support/google_emulator.h"

#include "platform/status.h"
#include "tests/conformance/server.h"

namespace lockstep::conformance {
namespace {

class GoogleServer : public Server {
 public:
  explicit GoogleServer(std::string address) : address_(std::move(address)) {}

  std::string address() const override { return address_; }
  Features features() const override {
    Features features;  // as tried with 0.8.20
    features.seek_to_time_ordered = false;
    features.dead_letter = false;
    features.filters = false;
    features.schemas = false;
    features.reserves_goog = false;
    features.assigns_snapshot_names = false;
    features.detach = false;
    features.topic_label_updates = false;
    features.cascade_on_nack = false;
    features.max_outstanding = false;
    features.faults = false;
    features.clock_moves = false;
    features.forgets_cancelled_streams = false;
    return features;
  }

 private:
  const std::string address_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Server>> GoogleEmulator() {
  ASSIGN_OR_RETURN(auto address, testing::GoogleEmulatorAddress());
  return std::make_shared<GoogleServer>(std::move(address));
}

}  // namespace lockstep::conformance
