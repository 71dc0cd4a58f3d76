// scripts/bench transport: every transport of this build against our emulator, in one run:
// publishing and receiving 1 KB messages, ordered and not. One line per transport and measurement,
// or one JSON object.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>

#include "emulator/service/server.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/names.h"
#include "pubsub/transport.h"

namespace lockstep::bench {
namespace {

struct Options {
  int messages = 20'000;  // per measurement
  int bytes = 1'000;
  int call = 500;  // messages per Publish call
  int rounds = 3;  // the median counts
  std::vector<int> streams = {1};
  int channels = 1;
  std::string address;  // of a server that runs; empty = our emulator in this process
};

// Counts down from any thread.
class Latch {
 public:
  explicit Latch(int count) : left_(count) {}
  void CountDown(int by) {
    std::scoped_lock lock(mu_);
    left_ -= by;
    if (left_ <= 0) done_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mu_);
    done_.wait(lock, [this] { return left_ <= 0; });
  }

 private:
  std::mutex mu_;
  std::condition_variable done_;
  int left_;
};

class AckingSink : public pubsub::DeliverySink {
 public:
  explicit AckingSink(int expected) : latch(expected) {}
  void OnDeliveries(std::vector<pubsub::Delivery> deliveries) override {
    std::vector<pubsub::AckToken> tokens;
    tokens.reserve(deliveries.size());
    for (auto& delivery : deliveries) tokens.push_back(std::move(delivery.token));
    const auto count = static_cast<int>(tokens.size());
    receiver->Acknowledge(std::move(tokens), [this, count](const std::vector<absl::Status>&) {
      latch.CountDown(count);
    });
  }
  void OnLeaseLost(std::vector<pubsub::AckToken>) override {}
  void OnStreamState(const absl::Status&) override {}

  pubsub::Receiver* receiver = nullptr;
  Latch latch;
};

class Measurement {
 public:
  Measurement(const Options& options, pubsub::TransportKind kind, int streams,
              const std::string& address)
      : options_(options), streams_(streams) {
    pubsub::TransportOptions transport_options;
    transport_options.kind = kind;
    transport_options.emulator_host = address;
    transport_options.channels = options.channels;
    transport_ = *pubsub::MakeTransport(transport_options);
  }

  // One round; keys 0 = unordered. Messages per second: published, and from the stream's start to
  // the last ack.
  void Run(int keys) {
    pubsub::Topic topic;
    // One server may see many runs.
    topic.name = pubsub::TopicName("bench", fmt::format("topic-{}-{}", run_, ++made_));
    pubsub::Subscription subscription;
    subscription.topic = topic.name;
    subscription.name = pubsub::SubscriptionName("bench", fmt::format("sub-{}-{}", run_, made_));
    subscription.ordering = keys > 0;
    if (!transport_->admin().CreateTopic(topic).ok() ||
        !transport_->admin().CreateSubscription(subscription).ok()) {
      log::Error("no topic or subscription");
    }
    published_.push_back(options_.messages / Seconds([&] { Publish(topic.name, keys); }));
    received_.push_back(options_.messages / Seconds([&] { Receive(subscription.name); }));
    static_cast<void>(transport_->admin().DeleteSubscription(subscription.name));
  }

  double published() const { return Median(published_); }
  double received() const { return Median(received_); }

 private:
  template <typename Function>
  static double Seconds(const Function& function) {
    const auto start = std::chrono::steady_clock::now();
    function();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  static double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  void Publish(const std::string& topic, int keys) {
    const auto publisher = transport_->NewPublisher({});
    // A key has one call at a time: with keys, so many messages at once as have no key twice, or a
    // call's.
    const int wave = keys > 0 ? std::max(keys, options_.call) : options_.messages;
    for (int next = 0; next < options_.messages;) {
      const int end = std::min(next + wave, options_.messages);
      Latch latch(end - next);
      while (next < end) {
        std::vector<pubsub::Message> messages;
        for (; next < end && static_cast<int>(messages.size()) < options_.call; ++next) {
          pubsub::Message& message = messages.emplace_back();
          message.data = std::string(static_cast<size_t>(options_.bytes), 'x');
          if (keys > 0) message.ordering_key = fmt::format("key-{}", next % keys);
        }
        publisher->Publish(topic, std::move(messages), [&latch](const auto& results) {
          for (const auto& result : results) {
            if (!result.ok()) log::Error("publish failed", {{"error", result.status()}});
          }
          latch.CountDown(static_cast<int>(results.size()));
        });
      }
      latch.Wait();
    }
  }

  void Receive(const std::string& subscription) {
    AckingSink sink(options_.messages);
    pubsub::ReceiverOptions receiver_options;
    receiver_options.subscription = subscription;
    receiver_options.max_outstanding_messages = 10'000;
    receiver_options.streams = streams_;
    const auto receiver = transport_->NewReceiver(receiver_options, sink);
    sink.receiver = receiver.get();
    if (!receiver->Start().ok()) return;
    sink.latch.Wait();
  }

  const Options& options_;
  const int streams_;
  const int64_t run_ = std::chrono::system_clock::now().time_since_epoch().count();
  int made_ = 0;
  std::vector<double> published_;
  std::vector<double> received_;
  std::unique_ptr<pubsub::Transport> transport_;
};

struct Case {
  std::string transport;
  pubsub::TransportKind kind;
  int streams;
};

std::vector<Case> Cases(const Options& options) {
  std::vector<Case> cases;
  for (const int streams : options.streams) {
    cases.push_back({"grpc", pubsub::TransportKind::kGrpc, streams});
#ifdef LOCKSTEP_WITH_GOOGLE_CLOUD
    cases.push_back({"google-cloud-cpp", pubsub::TransportKind::kGoogleCloudCpp, streams});
#endif
  }
  return cases;
}

int Run(const Options& options, bool json) {
  nlohmann::json result = {{"benchmark", "transport"},
                           {"bytes", options.bytes},
                           {"rounds", options.rounds},
                           {"channels", options.channels}};
  if (!json) {
    fmt::print("{:<18}{:>8}{:>9}{:>14}{:>14}\n", "messages/s", "keys", "streams", "published",
               "received");
  }
  for (const int keys : {0, 1'000, 100, 1}) {
    emulator::Server server;
    if (const absl::Status started = server.Start(); !started.ok()) {
      fmt::print(stderr, "{}\n", MessageOf(started));
      return 1;
    }
    const std::string& address = options.address.empty() ? server.address() : options.address;
    const std::vector<Case> cases = Cases(options);
    std::vector<std::unique_ptr<Measurement>> measurements;
    for (const Case& each : cases) {
      measurements.push_back(
          std::make_unique<Measurement>(options, each.kind, each.streams, address));
    }
    // In turn, so that what else the machine does meets all of them alike.
    for (int round = 0; round < options.rounds; ++round) {
      for (const auto& measurement : measurements) measurement->Run(keys);
    }
    for (size_t i = 0; i < cases.size(); ++i) {
      const double published = measurements[i]->published();
      const double received = measurements[i]->received();
      result[cases[i].transport][std::to_string(keys)][std::to_string(cases[i].streams)] = {
          {"published", published}, {"received", received}};
      if (json) continue;
      fmt::print("{:<18}{:>8}{:>9}{:>14.0f}{:>14.0f}\n", cases[i].transport, keys, cases[i].streams,
                 published, received);
    }
  }
  if (json) fmt::print("{}\n", result.dump(2));
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  bool json = false;
  CLI::App app("The transports of this build against our emulator, in one run.", "transport_bench");
  app.add_flag("--json", json, "one JSON object");
  app.add_option("--messages", options.messages, "per measurement")->capture_default_str();
  app.add_option("--bytes", options.bytes, "of data per message")->capture_default_str();
  app.add_option("--rounds", options.rounds, "of each measurement; the median counts")
      ->capture_default_str();
  app.add_option("--streams", options.streams, "per receiver; several values are compared")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--channels", options.channels, "connections to the server")
      ->capture_default_str();
  app.add_option("--address", options.address,
                 "host:port of an emulator that runs; without it, one in this process");
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kError});
  return lockstep::bench::Run(options, json);
}
