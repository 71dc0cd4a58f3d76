#include "tests/chaos/system/witness.h"

#include <map>
#include <mutex>
#include <thread>
#include <unordered_set>
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
        tokens.push_back(delivery.token);  // a duplicate's too: it takes a place until it is acked
        // The emulator counts its messages, so the ids tell their order; the clock does not.
        const auto number = std::stoull(delivery.message_id.value());
        const auto& attributes = delivery.message.attributes;
        Witnessed seen{.event_id = attributes.at("event_id"), .key = delivery.message.ordering_key};
        if (attributes.contains("lockstep_kind")) {
          seen.backfill = std::stoi(attributes.at("schema_version"));
        } else {
          events_.insert(seen.event_id);
        }
        if (messages_.try_emplace(number, std::move(seen)).second) ++news_;
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
  size_t events() const {
    std::scoped_lock lock(mu_);
    return events_.size();
  }
  std::vector<Witnessed> InOrder() const {
    std::scoped_lock lock(mu_);
    std::vector<Witnessed> all;
    all.reserve(messages_.size());
    for (const auto& [number, seen] : messages_) all.push_back(seen);
    return all;
  }

  std::unique_ptr<pubsub::Receiver> receiver;

 private:
  mutable std::mutex mu_;
  std::map<unsigned long long, Witnessed> messages_;
  std::unordered_set<std::string> events_;
  int news_ = 0;
};

}  // namespace

std::vector<Witnessed> ReadWitness(pubsub::Transport& transport, const std::string& subscription,
                                   size_t events) {
  Notes notes;
  // A message whose ack was lost counts as outstanding until its lease ends.
  notes.receiver = transport.NewReceiver({.subscription = subscription,
                                          .max_outstanding_messages = 20'000,
                                          .max_outstanding_bytes = int64_t{1} << 30,
                                          .ack_deadline = Millis(10'000)},
                                         notes);
  notes.receiver->Start().IgnoreError();  // the checks find that nothing came
  int quiet = 0;                          // seconds
  while (quiet < 3 || (quiet < 60 && notes.events() < events)) {
    std::this_thread::sleep_for(Millis(1'000));
    quiet = notes.TakeNews() > 0 ? 0 : quiet + 1;
  }
  notes.receiver->Stop();
  return notes.InOrder();
}

}  // namespace lockstep::chaos
