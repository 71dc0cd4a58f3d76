#include "google/cloud/pubsub/publisher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "google/cloud/grpc_options.h"
#include "google/cloud/pubsub/options.h"
#include "google/cloud/pubsub/publisher_connection.h"
#include "platform/status.h"
#include "pubsub/google_cloud/library.h"
#include "pubsub/google_cloud/worker.h"
#include "pubsub/publish_calls.h"

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

// PublishCalls over the library's publishers, one pair per topic. The library never mixes keys in a
// request, retries what may pass, and corks a key after a failure; we uncork it before the failure
// is reported.
class CloudPublisher : public PublishCalls {
 public:
  CloudPublisher(const PublisherOptions& options, std::shared_ptr<Library> library)
      : PublishCalls(
            options, Keys::kApart,
            [this](const std::shared_ptr<const Request>& request, Answer answer) {
              SendRequest(*request, std::move(answer));
            },
            [this](std::function<void()> job) { worker_.Post(std::move(job)); }),
        options_(options),
        library_(std::move(library)) {}

  ~CloudPublisher() override {
    Close();
    // Between two tries of a request there is nothing to cancel for a moment: again, until it is
    // over.
    while (!Idle()) {
      worker_.cq().CancelAll();
      std::this_thread::sleep_for(Millis(2));
    }
    worker_.Stop();
  }

 private:
  // The library keeps an object per ordering key for as long as a connection lives: a connection
  // is replaced when it has seen many. What it has under way keeps the old one alive meanwhile.
  struct Connection {
    gc::pubsub::Publisher publisher;
    std::unordered_set<std::string> keys;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;
  struct Topic {
    ConnectionPtr keyed;
    ConnectionPtr plain;
  };
  // A request under way.
  struct Sent {
    Sent(const Request& request, ConnectionPtr over, Answer callback)
        : results(request.messages.size()),
          open(request.messages.size()),
          key(request.messages.front().ordering_key),  // of all of them
          connection(std::move(over)),
          answer(std::move(callback)) {}

    bool Failed() const {
      return std::any_of(results.begin(), results.end(),
                         [](const auto& result) { return !result.ok(); });
    }

    Results results;
    std::atomic<size_t> open;
    const std::string key;
    const ConnectionPtr connection;
    const Answer answer;
  };

  void SendRequest(const Request& request, Answer answer) {
    const size_t count = request.messages.size();
    auto connection = FindConnection(request.topic, request.messages.front().ordering_key);
    if (!connection.ok()) {
      worker_.Post([count, status = connection.status(), answer = std::move(answer)] {
        answer(Results(count, status));
      });
      return;
    }
    // Shared by the messages' continuations.
    auto sent = std::make_shared<Sent>(request, *connection, std::move(answer));
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
            if (sent->Failed()) {
              worker_.cq().RunAsync(conclude);
            } else {
              conclude();
            }
          });
    }
    publisher.Flush();
  }

  static void Conclude(Sent& sent) {
    if (sent.Failed() && !sent.key.empty()) {
      gc::pubsub::Publisher(sent.connection->publisher).ResumePublish(sent.key);
    }
    sent.answer(std::move(sent.results));
  }

  absl::StatusOr<ConnectionPtr> FindConnection(const std::string& topic, const std::string& key) {
    ASSIGN_OR_RETURN(const auto name, ParseName<gc::pubsub::Topic>(topic, "topic"));
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

  ConnectionPtr Connect(const gc::pubsub::Topic& topic, bool ordered) {
    gc::Options options = library_->options;
    options.set<gc::GrpcCompletionQueueOption>(worker_.cq())
        .set<gc::pubsub::MessageOrderingOption>(ordered)
        .set<gc::pubsub::MaxBatchMessagesOption>(kMaxPublishMessages)
        // A request of ours fits in one of its; by its own count the library would cut it too
        // early.
        .set<gc::pubsub::MaxBatchBytesOption>(2 * kMaxPublishBytes)
        .set<gc::pubsub::MaxHoldTimeOption>(std::chrono::milliseconds(20))
        .set<gc::pubsub::FullPublisherActionOption>(gc::pubsub::FullPublisherAction::kIgnored)
        .set<gc::pubsub::RetryPolicyOption>(PatientRetryPolicy(options_.timeout));
    return std::make_shared<Connection>(Connection{
        gc::pubsub::Publisher(gc::pubsub::MakePublisherConnection(topic, std::move(options))), {}});
  }

  const PublisherOptions options_;
  const std::shared_ptr<Library> library_;
  // One thread: with two, ResumePublish could overtake the failure that it is meant for.
  Worker worker_{1};

  std::mutex mu_;
  std::map<std::string, Topic> topics_;
};

}  // namespace

std::unique_ptr<Publisher> MakePublisher(const PublisherOptions& options,
                                         std::shared_ptr<Library> library) {
  return std::make_unique<CloudPublisher>(options, std::move(library));
}

}  // namespace lockstep::pubsub::google_cloud
