#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "google/cloud/pubsub/publisher.h"
#include "pubsub/google_cloud/library.h"
#include "pubsub/google_cloud/worker.h"
#include "pubsub/publish_calls.h"
#include "pubsub/publisher.h"

namespace lockstep::pubsub::google_cloud {

// The port's Publisher: PublishCalls over the library's publishers, one pair per topic. The library
// never mixes keys in a request, retries what may pass, and corks a key after a failure; we uncork
// it before the failure is reported.
class CloudPublisher : public Publisher {
 public:
  CloudPublisher(const PublisherOptions& options, std::shared_ptr<Library> library);
  ~CloudPublisher() override;

  void Publish(const std::string& topic, std::vector<Message> messages, Done done) override {
    publishes_.Publish(topic, std::move(messages), std::move(done));
  }
  void SetMaxRequests(int requests) override { publishes_.SetMaxRequests(requests); }

 private:
  // The library keeps an object per ordering key for as long as a connection lives: a connection
  // is replaced when it has seen many. What it has under way keeps the old one alive meanwhile.
  struct Connection {
    google::cloud::pubsub::Publisher publisher;
    std::unordered_set<std::string> keys;
  };
  struct Topic {
    std::shared_ptr<Connection> keyed;
    std::shared_ptr<Connection> plain;
  };
  struct Sent;  // a request under way

  void Send(const PublishCalls::Request& request, PublishCalls::Answer answer);
  static bool Failed(const Sent& sent);
  static void Conclude(Sent& sent);
  absl::StatusOr<std::shared_ptr<Connection>> FindConnection(const std::string& topic,
                                                             const std::string& key);
  std::shared_ptr<Connection> Connect(const google::cloud::pubsub::Topic& topic, bool ordered);

  const PublisherOptions options_;
  const std::shared_ptr<Library> library_;
  // One thread: with two, ResumePublish could overtake the failure that it is meant for.
  Worker worker_{1};
  PublishCalls publishes_;

  std::mutex mu_;
  std::map<std::string, Topic> topics_;
};

}  // namespace lockstep::pubsub::google_cloud
