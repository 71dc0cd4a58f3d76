// scripts/bench emulator: one client, ours, against our emulator and Google's in one run:
// publishing and pulling 1 KB messages, ordered and not, and what share of a bare gRPC stream ours
// reaches.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/bare_stream.h"
#include "bench/child.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/names.h"
#include "pubsub/transport.h"
#include "tests/support/google_emulator.h"

namespace lockstep::bench {
namespace {

using Seconds = std::chrono::duration<double>;

struct Options {
  int publish = 100'000;    // messages per measurement
  int pull = 100'000;       // from ours
  int google_pull = 8'000;  // from Google's, which is slow
  int bytes = 1'000;        // of data
  int keys = 200;           // ordered: so many
  int call = 500;           // messages per Publish call
  int streams = 1;
  int rounds = 3;  // of each measurement; the median counts
};

// What one server does in a second.
struct Rates {
  double publish = 0;
  double publish_ordered = 0;
  double pull = 0;
  double pull_ordered = 0;
};

// Publishes and acks that failed: then the figures mean nothing.
std::atomic<int64_t> failures = 0;

void CountFailure(const char* what, const absl::Status& status) {
  log::Error(what, {{"error", status}});
  ++failures;
}

pubsub::Message MakeMessage(const Options& options, int number, bool ordered) {
  pubsub::Message message;
  message.data = std::string(static_cast<size_t>(options.bytes), 'x');
  if (ordered) message.ordering_key = fmt::format("key-{}", number % options.keys);
  return message;
}

// Publishes so many messages and waits for the last result; the seconds that took.
double Publish(pubsub::Publisher& publisher, const std::string& topic, const Options& options,
               int count, bool ordered) {
  std::mutex mu;
  std::condition_variable changed;
  int left = count;
  int queued = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int next = 0; next < count;) {
    std::vector<pubsub::Message> messages;
    for (; next < count && static_cast<int>(messages.size()) < options.call; ++next) {
      messages.push_back(MakeMessage(options, next, ordered));
    }
    const int size = static_cast<int>(messages.size());
    {
      // Without keys, as much ahead as keeps every slot full; a key has one call at a time.
      std::unique_lock lock(mu);
      changed.wait(lock, [&] { return ordered ? queued == 0 : queued < 20'000; });
      queued += size;
    }
    publisher.Publish(topic, std::move(messages), [&, size](const auto& results) {
      for (const auto& result : results) {
        if (!result.ok()) CountFailure("publish failed", result.status());
      }
      std::scoped_lock lock(mu);
      left -= size;
      queued -= size;
      changed.notify_all();
    });
  }
  std::unique_lock lock(mu);
  changed.wait(lock, [&] { return left == 0; });
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

// Acknowledges what it gets, in the batches in which it comes.
class AckingSink : public pubsub::DeliverySink {
 public:
  explicit AckingSink(int expected) : left_(expected) {}
  void OnDeliveries(std::vector<pubsub::Delivery> deliveries) override {
    std::vector<pubsub::AckToken> tokens;
    tokens.reserve(deliveries.size());
    for (auto& delivery : deliveries) tokens.push_back(std::move(delivery.token));
    const auto count = static_cast<int>(tokens.size());
    receiver->Acknowledge(std::move(tokens), [this, count](const auto& results) {
      for (const absl::Status& result : results) {
        if (!result.ok()) CountFailure("ack failed", result);
      }
      std::scoped_lock lock(mu_);
      left_ -= count;
      if (left_ <= 0) done_.notify_all();
    });
  }
  void OnLeaseLost(std::vector<pubsub::AckToken>) override {}
  void OnStreamState(const absl::Status&) override {}
  void Wait() {
    std::unique_lock lock(mu_);
    done_.wait(lock, [this] { return left_ <= 0; });
  }
  pubsub::Receiver* receiver = nullptr;

 private:
  std::mutex mu_;
  std::condition_variable done_;
  int left_;
};

double Pull(pubsub::Transport& transport, const std::string& subscription, const Options& options,
            int count) {
  AckingSink sink(count);
  pubsub::ReceiverOptions receiver_options;
  receiver_options.subscription = subscription;
  receiver_options.max_outstanding_messages = 10'000;
  receiver_options.streams = options.streams;
  const auto receiver = transport.NewReceiver(receiver_options, sink);
  sink.receiver = receiver.get();
  const auto start = std::chrono::steady_clock::now();
  if (!receiver->Start().ok()) return 0;
  sink.Wait();
  const double seconds = Seconds(std::chrono::steady_clock::now() - start).count();
  receiver->Stop();
  return seconds;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Measurement {
 public:
  Measurement(const Options& options, const std::string& address, int pull)
      : options_(options), pull_(pull) {
    pubsub::TransportOptions transport_options;
    transport_options.emulator_host = address;
    transport_ = *pubsub::MakeTransport(transport_options);
    publisher_ = transport_->NewPublisher({});
  }

  Rates Run() {
    PublishRate(false);  // to warm it up: Google's runs on a JVM
    Rates rates;
    rates.publish = PublishRate(false);
    rates.publish_ordered = PublishRate(true);
    rates.pull = PullRate(false);
    rates.pull_ordered = PullRate(true);
    return rates;
  }

 private:
  std::string MakeTopic() {
    pubsub::Topic topic;
    topic.name = pubsub::TopicName("bench", fmt::format("topic-{}", ++made_));
    const auto made = transport_->admin().CreateTopic(topic);
    if (!made.ok()) CountFailure("no topic", made.status());
    return topic.name;
  }

  // A topic with one subscription, both new: a topic without any would throw all away.
  pubsub::Subscription MakeSubscription(bool ordered) {
    pubsub::Subscription subscription;
    subscription.topic = MakeTopic();
    subscription.name = pubsub::SubscriptionName("bench", fmt::format("sub-{}", made_));
    subscription.ordering = ordered;
    const auto made = transport_->admin().CreateSubscription(subscription);
    if (!made.ok()) CountFailure("no subscription", made.status());
    return subscription;
  }
  void Drop(const pubsub::Subscription& subscription) {
    static_cast<void>(transport_->admin().DeleteSubscription(subscription.name));
    static_cast<void>(transport_->admin().DeleteTopic(subscription.topic));
  }

  double PublishRate(bool ordered) {
    std::vector<double> rates;
    for (int i = 0; i < options_.rounds; ++i) {
      const auto subscription = MakeSubscription(ordered);
      rates.push_back(options_.publish / Publish(*publisher_, subscription.topic, options_,
                                                 options_.publish, ordered));
      Drop(subscription);
    }
    return Median(rates);
  }

  // A backlog, then from opening the stream to the last ack.
  double PullRate(bool ordered) {
    std::vector<double> rates;
    for (int i = 0; i < options_.rounds; ++i) {
      const auto subscription = MakeSubscription(ordered);
      Publish(*publisher_, subscription.topic, options_, pull_, ordered);
      rates.push_back(pull_ / Pull(*transport_, subscription.name, options_, pull_));
      Drop(subscription);
    }
    return Median(rates);
  }

  const Options& options_;
  const int pull_;
  int made_ = 0;
  std::unique_ptr<pubsub::Transport> transport_;
  std::unique_ptr<pubsub::Publisher> publisher_;
};

// Messages per second of a stream that carries the same bytes: responses of 1,000 messages.
double BareRate(const Options& options) {
  const Child server({ProgramFolder() + "/emulator_bench", "--serve-bare", "--bytes",
                      std::to_string(options.bytes), "--pull", std::to_string(options.pull)});
  std::vector<double> rates;
  for (int i = 0; i < options.rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    ReadBareStream(server.address());
    rates.push_back(options.pull / Seconds(std::chrono::steady_clock::now() - start).count());
  }
  return Median(rates);
}

int ServeBare(const Options& options) {
  // A message of 1,000 bytes has about 1,100 on the wire: ids, times, framing.
  const BareServer server(std::string(static_cast<size_t>(options.bytes + 100) * 1'000, 'x'),
                          options.pull / 1'000);
  std::printf("listening on %s\n", server.address().c_str());
  std::fflush(stdout);
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

nlohmann::json ToJson(const Rates& rates) {
  return {{"publish", rates.publish},
          {"publish_ordered", rates.publish_ordered},
          {"pull", rates.pull},
          {"pull_ordered", rates.pull_ordered}};
}

void PrintTable(const Rates& ours, const Rates* google, double bare) {
  const auto row = [&](const char* name, double Rates::*member, const char* target) {
    if (google == nullptr) {
      fmt::print("{:<18}{:>14.0f}{:>14}{:>10}  {}\n", name, ours.*member, "-", "-", target);
    } else {
      fmt::print("{:<18}{:>14.0f}{:>14.0f}{:>9.1f}x  {}\n", name, ours.*member, google->*member,
                 ours.*member / (google->*member), target);
    }
  };
  fmt::print("{:<18}{:>14}{:>14}{:>10}\n", "messages/s", "lockstep", "Google's", "ratio");
  row("publish", &Rates::publish, "(target 2x)");
  row("publish, ordered", &Rates::publish_ordered, "(target 2x)");
  row("pull", &Rates::pull, "(target 20x)");
  row("pull, ordered", &Rates::pull_ordered, "(target 20x)");
  fmt::print("{:<18}{:>14.0f}   pull reaches {:.0f} % of it, ordered {:.0f} %\n",
             "bare gRPC stream", bare, 100 * ours.pull / bare, 100 * ours.pull_ordered / bare);
}

int Run(const Options& options, bool json) {
  nlohmann::json result = {{"benchmark", "emulator"},
                           {"bytes", options.bytes},
                           {"streams", options.streams},
                           {"rounds", options.rounds}};
  const Child emulator({ProgramFolder() + "/lockstep-emulator", "--port", "0"});
  if (emulator.address().empty()) {
    fmt::print(stderr, "lockstep-emulator did not start\n");
    return 1;
  }
  const Rates ours = Measurement(options, emulator.address(), options.pull).Run();
  result["lockstep"] = ToJson(ours);
  const double bare = BareRate(options);
  result["bare_stream"] = bare;
  result["share_of_bare_stream"] = {{"pull", ours.pull / bare},
                                    {"pull_ordered", ours.pull_ordered / bare}};
  const auto address = testing::GoogleEmulatorAddress();
  Rates google;
  if (address.ok()) {
    google = Measurement(options, *address, options.google_pull).Run();
    result["google"] = ToJson(google);
    result["ratio"] = {{"publish", ours.publish / google.publish},
                       {"publish_ordered", ours.publish_ordered / google.publish_ordered},
                       {"pull", ours.pull / google.pull},
                       {"pull_ordered", ours.pull_ordered / google.pull_ordered}};
  } else {
    fmt::print(stderr, "{}\n", MessageOf(address.status()));
    result["google"] = nullptr;
  }
  if (json) {
    fmt::print("{}\n", result.dump(2));
  } else {
    PrintTable(ours, address.ok() ? &google : nullptr, bare);
  }
  if (failures > 0) {
    fmt::print(stderr, "{} calls failed: the figures mean nothing\n", failures.load());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Options options;
  bool json = false;
  bool serve_bare = false;
  CLI::App app(
      "Our client against our emulator and Google's in one run: messages a second published\n"
      "and pulled, ordered and not, their ratios, and what share of a bare gRPC stream of the\n"
      "same bytes ours reaches. Without Google's emulator (google-cloud-cli-pubsub-emulator\n"
      "and java) ours alone.",
      "emulator_bench");
  app.add_flag("--json", json, "one JSON object");
  app.add_option("--publish", options.publish, "messages per publishing measurement")
      ->capture_default_str();
  app.add_option("--pull", options.pull, "messages pulled from ours")->capture_default_str();
  app.add_option("--google-pull", options.google_pull, "messages pulled from Google's")
      ->capture_default_str();
  app.add_option("--bytes", options.bytes, "of data per message")->capture_default_str();
  app.add_option("--keys", options.keys, "ordering keys")->capture_default_str();
  app.add_option("--streams", options.streams, "StreamingPull streams")->capture_default_str();
  app.add_option("--rounds", options.rounds, "of each measurement; the median counts")
      ->capture_default_str();
  app.add_flag("--serve-bare", serve_bare)->group("");
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kError});
  return serve_bare ? lockstep::bench::ServeBare(options) : lockstep::bench::Run(options, json);
}
