#include <map>
#include <mutex>
#include <random>
#include <set>

#include "tests/conformance/suite.h"

namespace lockstep::conformance {
namespace {

using pubsub::AckToken;
using pubsub::Delivery;

// Does what the runner does, without a database: applies a key's messages in the order in which
// they come, now and then gives a key's whole queue back, and drops what it has lost. Notes when
// a message is applied before its predecessor.
class Applier : public pubsub::DeliverySink {
 public:
  // `give_back` says whether a message is given back instead of applied.
  explicit Applier(std::function<bool(const Delivery&)> give_back)
      : give_back_(std::move(give_back)) {}

  void OnDeliveries(std::vector<Delivery> deliveries) override {
    std::vector<AckToken> acks;
    std::vector<AckToken> releases;
    {
      std::scoped_lock lock(mu_);
      std::set<std::string> given_back;  // in this batch: their later messages go back too
      for (const Delivery& delivery : deliveries) {
        const std::string& key = delivery.message.ordering_key;
        if (given_back.contains(key) || give_back_(delivery)) {
          given_back.insert(key);
          releases.push_back(delivery.token);
          continue;
        }
        const int number = std::stoi(delivery.message.data);
        int& next = next_[key];
        if (number > next) disorder_.push_back(key + " got " + delivery.message.data + " early");
        if (number == next) {
          ++next;
          ++applied_;
        }
        acks.push_back(delivery.token);
      }
      changed_.notify_all();
    }
    const auto ignore = [](const std::vector<absl::Status>&) {};
    if (!releases.empty()) receiver->Release(std::move(releases), ignore);
    if (!acks.empty()) receiver->Acknowledge(std::move(acks), ignore);
  }
  void OnLeaseLost(std::vector<AckToken>) override {}
  void OnStreamState(const absl::Status&) override {}

  bool AwaitApplied(int count) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return applied_ >= count; });
  }
  std::vector<std::string> disorder() {
    std::scoped_lock lock(mu_);
    return disorder_;
  }

  pubsub::Receiver* receiver = nullptr;

 private:
  const std::function<bool(const Delivery&)> give_back_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::string, int> next_;
  int applied_ = 0;
  std::vector<std::string> disorder_;
};

class ReleaseTest : public Bus {
 protected:
  void Run(int keys, int each, std::function<bool(const Delivery&)> give_back) {
    // Who has several of a key in hand gives them all back, and relies on the server to send them
    // in order again.
    if (features().several_per_key) NEEDS(cascade_on_nack);
    const std::string topic = MakeTopic();
    pubsub::Subscription settings;
    settings.ordering = true;
    const std::string subscription = MakeSubscription(settings);
    Applier applier(std::move(give_back));
    pubsub::ReceiverOptions options;
    options.subscription = subscription;
    const auto receiver = transport().NewReceiver(options, applier);
    applier.receiver = receiver.get();
    PublishAll(topic, Sequences(keys, each));  // first, so that a key's queue is a long one
    ASSERT_TRUE(receiver->Start().ok());
    EXPECT_TRUE(applier.AwaitApplied(keys * each));
    EXPECT_EQ(applier.disorder(), std::vector<std::string>{});
    receiver->Stop();
  }
};

TEST_P(ReleaseTest, NothingOfAKeyIsHandedOverBeforeAReleasedMessageIsBack) {
  bool released = false;
  Run(1, 20, [&](const Delivery& delivery) {
    return delivery.message.data == "3" && !std::exchange(released, true);
  });
}

TEST_P(ReleaseTest, KeepsTheOrderOfEveryKeyWhileMessagesAreReleasedAtRandom) {
  std::mt19937 random(20231107);
  std::map<std::pair<std::string, std::string>, int> releases;
  Run(10, 30, [&](const Delivery& delivery) {
    int& times = releases[{delivery.message.ordering_key, delivery.message.data}];
    return random() % 8 == 0 && times++ < 2;
  });
}

INSTANTIATE_TEST_SUITE_P(All, ReleaseTest, ::testing::ValuesIn(Setups()),
                         [](const auto& setup) { return setup.param.name; });

}  // namespace
}  // namespace lockstep::conformance
