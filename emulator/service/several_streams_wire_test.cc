// Several clients on one subscription, each with a connection of its own.
#include <gmock/gmock.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "emulator/testing/wire_fixture.h"

namespace lockstep::emulator {
namespace {

using ::testing::SizeIs;

// What the clients of one case have received. Safe from any thread.
class Received {
 public:
  struct Item {
    int client;
    pb::ReceivedMessage message;
  };

  void Add(int client, const pb::StreamingPullResponse& response) {
    std::scoped_lock lock(mu_);
    for (const auto& message : response.received_messages()) items_.push_back({client, message});
    changed_.notify_all();
  }
  // So many in all, 20 s at most.
  std::vector<Item> Await(size_t count) {
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return items_.size() >= count; });
    return items_;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Item> items_;
};

// A client with a connection and a stream, and a thread that reads it.
class Client {
 public:
  Client(int number, const std::string& address, const pb::StreamingPullRequest& first,
         Received* received) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = pb::Subscriber::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    stream_ = stub_->StreamingPull(&context_);
    stream_->Write(first);
    reader_ = std::thread([this, number, received] {
      pb::StreamingPullResponse response;
      while (stream_->Read(&response)) received->Add(number, response);
    });
  }
  ~Client() {
    stream_->WritesDone();
    reader_.join();
    stream_->Finish();
  }
  void Ack(const std::string& id) {
    pb::StreamingPullRequest request;
    request.add_ack_ids(id);
    EXPECT_TRUE(stream_->Write(request));
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<pb::Subscriber::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<pb::StreamingPullRequest, pb::StreamingPullResponse>>
      stream_;
  std::thread reader_;
};

class SeveralStreamsWire : public WireTest {
 protected:
  void Subscribe(bool ordered) {
    ASSERT_TRUE(CreateTopic().ok());
    ASSERT_TRUE(CreateSubscription([&](auto* s) { s->set_enable_message_ordering(ordered); }).ok());
  }
  void Connect(int count) {
    for (int i = 0; i < count; ++i) {
      pb::StreamingPullRequest first;
      first.set_subscription(kSubscription);
      first.set_stream_ack_deadline_seconds(60);
      first.set_client_id("client-" + std::to_string(i));
      clients_.push_back(std::make_unique<Client>(i, server_->address(), first, &received_));
    }
    // Open is a stream once the server knows what it asks for.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto open = [this] {
      const auto streams = server_->faults().Streams();
      return std::count_if(streams.begin(), streams.end(),
                           [](const StreamInfo& each) { return !each.client_id.empty(); });
    };
    while (open() < count && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    ASSERT_EQ(open(), count);
  }
  void PublishAll(const std::vector<std::pair<std::string, std::string>>& messages) {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    for (const auto& [data, key] : messages) {
      auto* message = request.add_messages();
      message->set_data(data);
      message->set_ordering_key(key);
    }
    ASSERT_TRUE(TryPublish(request).ok());
  }

  Received received_;  // outlives the clients
  std::vector<std::unique_ptr<Client>> clients_;
};

TEST_F(SeveralStreamsWire, TheLoadIsSpread) {
  Subscribe(false);
  Connect(3);
  // A busy machine may let one stream ask long before the others: then it takes a round alone.
  constexpr size_t kRound = 300;
  std::map<int, int> per_client;
  std::set<std::string> distinct;
  for (size_t round = 0; round < 20 && per_client.size() < 3; ++round) {
    std::vector<std::pair<std::string, std::string>> messages;
    for (size_t i = 0; i < kRound; ++i)
      messages.emplace_back(std::to_string(round * kRound + i), "");
    PublishAll(messages);
    const auto items = received_.Await((round + 1) * kRound);
    ASSERT_THAT(items, SizeIs((round + 1) * kRound));
    for (size_t i = round * kRound; i < items.size(); ++i) {
      ++per_client[items[i].client];
      EXPECT_TRUE(distinct.insert(items[i].message.message().data()).second);  // to one of them
    }
  }
  EXPECT_THAT(per_client, SizeIs(3));
}

TEST_F(SeveralStreamsWire, AKeyIsOnOneStreamAtATimeAndMayMoveOnceItIsAcked) {
  Subscribe(true);
  Connect(2);
  constexpr int kKeys = 40;
  constexpr int kRounds = 5;
  // Nothing is acked: whatever comes of a key must come where its first message went.
  std::map<std::string, int> owner;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::pair<std::string, std::string>> messages;
    for (int key = 0; key < kKeys; ++key) {
      messages.emplace_back(std::to_string(round), "key-" + std::to_string(key));
    }
    PublishAll(messages);
    const auto so_far = static_cast<size_t>(kKeys * (round + 1));
    ASSERT_GE(received_.Await(so_far).size(), so_far);
  }
  const auto items = received_.Await(kKeys * kRounds);
  std::map<std::string, std::vector<std::string>> data;
  for (const auto& item : items) {
    const std::string& key = item.message.message().ordering_key();
    const auto first = owner.emplace(key, item.client).first;
    EXPECT_EQ(first->second, item.client) << key << " moved while it was outstanding";
    data[key].push_back(item.message.message().data());
  }
  for (const auto& [key, values] : data) {
    EXPECT_THAT(values, ::testing::ElementsAre("0", "1", "2", "3", "4")) << key;
  }
  // A client that has keys leaves and acks what it holds by unary calls: its keys go on with the
  // other.
  const int leaver = owner.at("key-0");
  std::vector<std::string> held;
  for (const auto& item : items) {
    if (item.client == leaver) held.push_back(item.message.ack_id());
  }
  clients_[static_cast<size_t>(leaver)].reset();
  ASSERT_TRUE(Acknowledge(held).ok());
  std::vector<std::pair<std::string, std::string>> more;
  for (int key = 0; key < kKeys; ++key) more.emplace_back("5", "key-" + std::to_string(key));
  PublishAll(more);
  const auto all = received_.Await(kKeys * (kRounds + 1));
  ASSERT_THAT(all, SizeIs(kKeys * (kRounds + 1)));
  for (size_t i = items.size(); i < all.size(); ++i) EXPECT_EQ(all[i].client, 1 - leaver);
}

}  // namespace
}  // namespace lockstep::emulator
