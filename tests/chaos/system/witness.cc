#include "tests/chaos/system/witness.h"

#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "platform/status.h"

namespace lockstep::chaos {
namespace {

class Notes : public pubsub::DeliverySink {
 public:
  void OnDeliveries(std::vector<pubsub::Delivery> deliveries) override {
    std::vector<pubsub::AckToken> tokens;
    {
      std::scoped_lock lock(mu_);
      for (const pubsub::Delivery& delivery : deliveries) {
        // The emulator counts its messages, so the ids tell their order; the clock does not.
        const auto number = std::stoull(delivery.message_id.value());
        const std::string& event = delivery.message.attributes.at("event_id");
        if (events_.try_emplace(number, event).second) ++news_;
        tokens.push_back(delivery.token);
      }
    }
    receiver->Acknowledge(std::move(tokens), [](const std::vector<absl::Status>&) {});
  }
  void OnLeaseLost(std::vector<pubsub::AckToken>) override {}
  void OnStreamState(const absl::Status&) override {}

  // How many messages have come since the last call that had not come before.
  int TakeNews() {
    std::scoped_lock lock(mu_);
    return std::exchange(news_, 0);
  }
  std::vector<std::string> InOrder() const {
    std::scoped_lock lock(mu_);
    std::vector<std::string> ids;
    ids.reserve(events_.size());
    for (const auto& [number, event] : events_) ids.push_back(event);
    return ids;
  }

  std::unique_ptr<pubsub::Receiver> receiver;

 private:
  mutable std::mutex mu_;
  std::map<unsigned long long, std::string> events_;
  int news_ = 0;
};

}  // namespace

std::vector<std::string> ReadWitness(pubsub::Transport& transport, const std::string& subscription,
                                     Millis quiet) {
  Notes notes;
  notes.receiver = transport.NewReceiver({.subscription = subscription}, notes);
  notes.receiver->Start().IgnoreError();  // the checks find that nothing came
  do {
    std::this_thread::sleep_for(quiet);
  } while (notes.TakeNews() > 0);
  notes.receiver->Stop();
  return notes.InOrder();
}

}  // namespace lockstep::chaos
