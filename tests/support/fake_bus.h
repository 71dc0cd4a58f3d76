#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "pubsub/transport.h"

namespace lockstep::testing {

// The bus in memory, for tests of what stands on the port: topics and subscriptions, ordering keys
// with the redelivery cascade, Seek, snapshots, and faults by script. One thread of its own plays
// the transport's: every callback comes from there. Safe from any thread. Parts that it made must
// be gone before it is.
class FakeBus : public pubsub::Transport {
 public:
  struct Published {
    std::string topic;
    pubsub::Message message;
    MessageId message_id;
    WallTime time;
  };
  // The answer for one message; OK publishes it. Called on the bus's thread.
  using PublishScript =
      std::function<absl::Status(const std::string& topic, const pubsub::Message&)>;
  // The answer for one ack or release; OK takes it.
  using AckScript = std::function<absl::Status(const pubsub::AckToken&)>;

  FakeBus();
  ~FakeBus() override;

  std::unique_ptr<pubsub::Publisher> NewPublisher(const pubsub::PublisherOptions& options) override;
  std::unique_ptr<pubsub::Receiver> NewReceiver(const pubsub::ReceiverOptions& options,
                                                pubsub::DeliverySink& sink) override;
  pubsub::Admin& admin() override;

  // --- the script ---
  void OnPublish(PublishScript script);  // null = all is well
  void OnAck(AckScript script);
  void SetClockAhead(Millis ahead);  // of ours, in what is published from now on
  void HoldPublishes(bool hold);     // while held, publishes get no answer
  void HoldAcks(bool hold);
  // Every receiver of it hears OnLeaseLost for what it has in hand, or for this message alone, and
  // gets it again.
  void LoseLeases(const std::string& subscription, const MessageId& message = {});
  void SetStreamState(const std::string& subscription, const absl::Status& state);

  // --- what happened ---
  std::vector<Published> published() const;
  std::vector<pubsub::AckToken> acked() const;  // in the order of the acks
  std::vector<pubsub::AckToken> released() const;
  int64_t Outstanding(const std::string& subscription) const;  // delivered, neither acked nor back
  int64_t Backlog(const std::string& subscription) const;      // not acked
  std::vector<std::string> seeks() const;  // "subscription time" or "subscription snapshot"

  // Waits until `condition` holds, looking whenever something happened; false after 20 s. The
  // condition may call everything above.
  bool Await(const std::function<bool()>& condition) const;

 private:
  friend class FakeBusPublisher;
  friend class FakeBusReceiver;
  friend class FakeBusAdmin;

  struct Entry {
    std::shared_ptr<const Published> message;
    bool acked = false;
    std::string token;  // of the delivery under way; empty = none
    class FakeBusReceiver* holder = nullptr;
    int attempts = 0;
  };
  struct Sub {
    pubsub::Subscription settings;
    std::deque<Entry> entries;  // in publish order; all that is retained
  };

  void Run();
  void Post(std::function<void()> task);
  void DeliverLocked(std::unique_lock<std::mutex>& lock);
  absl::Status TakeAck(const pubsub::AckToken& token, bool ack);
  void ReleaseEntry(Sub& sub, size_t index);

  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  std::map<std::string, pubsub::Topic> topics_;
  std::map<std::string, Sub> subscriptions_;
  std::map<std::string, std::pair<pubsub::Snapshot, std::set<std::string>>> snapshots_;
  std::map<std::string, pubsub::Schema> schemas_;
  std::vector<class FakeBusReceiver*> receivers_;
  std::vector<std::shared_ptr<const Published>> published_;
  std::vector<pubsub::AckToken> acked_;
  std::vector<pubsub::AckToken> released_;
  std::vector<std::string> seeks_;
  PublishScript on_publish_;
  AckScript on_ack_;
  std::deque<std::function<void()>> tasks_;
  std::deque<std::function<void()>> held_publishes_;
  std::deque<std::function<void()>> held_acks_;
  Millis clock_ahead_{0};
  bool hold_publishes_ = false;
  bool hold_acks_ = false;
  int64_t next_id_ = 1;
  bool stopping_ = false;

  std::unique_ptr<pubsub::Admin> admin_;
  std::thread thread_;
};

}  // namespace lockstep::testing
