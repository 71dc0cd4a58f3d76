#include "publisher/testing/publishers.h"

#include <chrono>
#include <set>
#include <thread>

namespace lockstep::publisher {
namespace {

constexpr char kTopic[] = "projects/p/topics/shop.events";
constexpr char kSubscription[] = "projects/p/subscriptions/shop.events.test";

void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

}  // namespace

PublishersTest::PublishersTest(bool partitioned) : OutboxTest(partitioned) {
  Must(server_.Start());
  auto transport = pubsub::MakeTransport({.emulator_host = server_.address()});
  Must(transport.status());
  transport_ = *std::move(transport);
  pubsub::Topic topic;
  topic.name = kTopic;
  Must(transport_->admin().CreateTopic(topic).status());
  pubsub::Subscription subscription;
  subscription.name = kSubscription;
  subscription.topic = kTopic;
  subscription.ordering = true;
  Must(transport_->admin().CreateSubscription(subscription).status());
  pubsub::ReceiverOptions options;
  options.subscription = kSubscription;
  options.max_outstanding_messages = 100'000;
  receiver_ = transport_->NewReceiver(options, sink_);
  sink_.on_batch = [this](const std::vector<pubsub::Delivery>& deliveries) {
    std::vector<pubsub::AckToken> tokens;
    for (const auto& delivery : deliveries) tokens.push_back(delivery.token);
    receiver_->Acknowledge(std::move(tokens), [](const std::vector<absl::Status>&) {});
  };
  Must(receiver_->Start());
}

PublishersTest::~PublishersTest() { receiver_->Stop(); }

std::unique_ptr<testing::Process> PublishersTest::StartPublisher(
    std::vector<std::string> arguments) {
  std::vector<std::string> all = {"--database=" + db_.url(),
                                  "--relay.tables=shop.outbox",
                                  "--pubsub.project=p",
                                  "--pubsub.emulator_host=" + server_.address(),
                                  "--relay.ping_interval=200ms",
                                  "--http.enabled=false",
                                  "--topics=shop.events=shop.events,no.such.topic=no.such.topic"};
  for (std::string& argument : arguments) {
    // A later one takes the place of ours.
    const std::string name = argument.substr(0, argument.find('='));
    std::erase_if(all, [&](const std::string& ours) { return ours.starts_with(name + "="); });
    all.push_back(std::move(argument));
  }
  return std::make_unique<testing::Process>("lockstep-publisher", all);
}

bool PublishersTest::AwaitRows(const std::string& where, int64_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  // Another process changes the rows: there is no signal to wait on.
  while (std::chrono::steady_clock::now() < end) {
    if (Count(where) >= count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

std::map<std::string, std::vector<int64_t>> PublishersTest::FirstDeliveries() const {
  std::map<std::string, std::vector<int64_t>> versions;
  std::map<std::string, std::set<int64_t>> seen;
  for (const auto& delivery : sink_.deliveries()) {
    const std::string& key = delivery.message.ordering_key;
    const int64_t version = std::stoll(delivery.message.attributes.at("version"));
    if (seen[key].insert(version).second) versions[key].push_back(version);
  }
  return versions;
}

}  // namespace lockstep::publisher
