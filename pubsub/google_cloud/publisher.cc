#include "pubsub/google_cloud/publisher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "google/cloud/grpc_options.h"
#include "google/cloud/pubsub/options.h"
#include "google/cloud/pubsub/publisher_connection.h"
#include "platform/status.h"

namespace lockstep::pubsub::google_cloud {
namespace {

namespace gc = ::google::cloud;

// Each key costs the library some 10 KB, and each Flush a look at every key.
constexpr size_t kMaxKeysPerConnection = 500;

gc::pubsub::Message ToCloud(Message message) {
  gc::pubsub::MessageBuilder builder;
  builder.SetData(std::move(message.data));
  for (auto& [key, value] : message.attributes) builder.SetAttribute(key, std::move(value));
  if (!message.ordering_key.empty()) builder.SetOrderingKey(std::move(message.ordering_key));
  return std::move(builder).Build();
}

}  // namespace

struct CloudPublisher::Sent {
  PublishCalls::Results results;
  std::atomic<size_t> open = 0;
  std::string key;
  std::shared_ptr<Connection> connection;
  PublishCalls::Answer answer;
};

CloudPublisher::CloudPublisher(const PublisherOptions& options, std::shared_ptr<Library> library)
    : options_(options),
      library_(std::move(library)),
      publishes_(
          options, PublishCalls::Keys::kApart,
          [this](const std::shared_ptr<const PublishCalls::Request>& request,
                 PublishCalls::Answer answer) { Send(*request, std::move(answer)); },
          [this](std::function<void()> job) { worker_.Post(std::move(job)); }) {}

CloudPublisher::~CloudPublisher() {
  publishes_.Close();
  // Between two tries of a request there is nothing to cancel for a moment: again, until it is
  // over.
  while (!publishes_.Idle()) {
    worker_.cq().CancelAll();
    std::this_thread::sleep_for(Millis(2));
  }
  worker_.Stop();
}

std::shared_ptr<CloudPublisher::Connection> CloudPublisher::Connect(const gc::pubsub::Topic& topic,
                                                                    bool ordered) {
  gc::Options options = library_->options;
  options.set<gc::GrpcCompletionQueueOption>(worker_.cq())
      .set<gc::pubsub::MessageOrderingOption>(ordered)
      .set<gc::pubsub::MaxBatchMessagesOption>(kMaxPublishMessages)
      // A request of ours fits in one of its; by its own count the library would cut it too early.
      .set<gc::pubsub::MaxBatchBytesOption>(2 * kMaxPublishBytes)
      .set<gc::pubsub::MaxHoldTimeOption>(std::chrono::milliseconds(20))
      .set<gc::pubsub::FullPublisherActionOption>(gc::pubsub::FullPublisherAction::kIgnored)
      .set<gc::pubsub::RetryPolicyOption>(PatientRetryPolicy(options_.timeout));
  return std::make_shared<Connection>(Connection{
      gc::pubsub::Publisher(gc::pubsub::MakePublisherConnection(topic, std::move(options))), {}});
}

absl::StatusOr<std::shared_ptr<CloudPublisher::Connection>> CloudPublisher::FindConnection(
    const std::string& topic, const std::string& key) {
  ASSIGN_OR_RETURN(const gc::pubsub::Topic name, ParseTopic(topic));
  std::scoped_lock lock(mu_);
  Topic& state = topics_[topic];
  if (key.empty()) {
    if (state.plain == nullptr) state.plain = Connect(name, false);
    return state.plain;
  }
  const bool full = state.keyed != nullptr && !state.keyed->keys.contains(key) &&
                    state.keyed->keys.size() >= kMaxKeysPerConnection;
  if (state.keyed == nullptr || full) state.keyed = Connect(name, true);
  state.keyed->keys.insert(key);
  return state.keyed;
}

void CloudPublisher::Send(const PublishCalls::Request& request, PublishCalls::Answer answer) {
  const std::string& key = request.messages.front().ordering_key;  // of all of them
  auto connection = FindConnection(request.topic, key);
  const size_t count = request.messages.size();
  if (!connection.ok()) {
    worker_.Post([count, status = connection.status(), answer = std::move(answer)] {
      answer(PublishCalls::Results(count, status));
    });
    return;
  }
  auto sent = std::make_shared<Sent>();  // shared by the messages' continuations
  sent->results.resize(count);
  sent->open = count;
  sent->key = key;
  sent->connection = *connection;
  sent->answer = std::move(answer);
  // The library's object is not for two threads at once; copies are.
  gc::pubsub::Publisher publisher = (*connection)->publisher;
  for (size_t i = 0; i < count; ++i) {
    publisher.Publish(ToCloud(request.messages[i]))
        .then([this, sent, i](gc::future<gc::StatusOr<std::string>> future) {
          auto id = future.get();
          if (id.ok()) {
            sent->results[i] = MessageId(*std::move(id));
          } else {
            sent->results[i] = FromCloud(id.status());
          }
          if (--sent->open > 0) return;
          // The library corks the key only after these continuations.
          const auto conclude = [this, sent] { worker_.Post([sent] { Conclude(*sent); }); };
          if (Failed(*sent)) {
            worker_.cq().RunAsync(conclude);
          } else {
            conclude();
          }
        });
  }
  publisher.Flush();
}

bool CloudPublisher::Failed(const Sent& sent) {
  return std::any_of(sent.results.begin(), sent.results.end(),
                     [](const auto& result) { return !result.ok(); });
}

void CloudPublisher::Conclude(Sent& sent) {
  if (Failed(sent) && !sent.key.empty()) {
    gc::pubsub::Publisher(sent.connection->publisher).ResumePublish(sent.key);
  }
  sent.answer(std::move(sent.results));
}

}  // namespace lockstep::pubsub::google_cloud
