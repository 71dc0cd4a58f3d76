// What the port does not show: the generated stubs, on each server.
#include <grpcpp/grpcpp.h>

#include <mutex>
#include <utility>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "tests/conformance/suite.h"
#include "tests/support/pg_relay.h"

namespace lockstep::conformance {
namespace {

namespace pb = google::pubsub::v1;

class Raw : public Bus {
 protected:
  std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel(server().address(), grpc::InsecureChannelCredentials());
  }
};

TEST_P(Raw, APullSubscriptionHasAnEmptyPushConfig) {
  MakeTopic();
  const auto stub = pb::Subscriber::NewStub(channel());
  pb::Subscription wanted;
  wanted.set_name(SubscriptionNamed("sub"));
  wanted.set_topic(TopicNamed("topic"));
  pb::Subscription made;
  grpc::ClientContext create;
  ASSERT_TRUE(stub->CreateSubscription(&create, wanted, &made).ok());
  pb::GetSubscriptionRequest request;
  request.set_subscription(wanted.name());
  pb::Subscription got;
  grpc::ClientContext get;
  ASSERT_TRUE(stub->GetSubscription(&get, request, &got).ok());
  for (const auto& subscription : {made, got}) {
    EXPECT_TRUE(subscription.has_push_config());
    EXPECT_EQ(subscription.push_config().ByteSizeLong(), 0u);
  }
}

TEST_P(Raw, RefusesAttributesThatBeginWithGoog) {
  NEEDS(reserves_goog);
  const auto stub = pb::Publisher::NewStub(channel());
  const auto publish = [&, topic = MakeTopic()](const std::string& attribute) {
    pb::PublishRequest request;
    request.set_topic(topic);
    (*request.add_messages()->mutable_attributes())[attribute] = "x";
    pb::PublishResponse response;
    grpc::ClientContext context;
    return stub->Publish(&context, request, &response).error_code();
  };
  EXPECT_EQ(publish("googclient_traceparent"), grpc::StatusCode::OK);
  for (const char* reserved : {"goog", "google", "googclient", "googclientx"}) {
    EXPECT_EQ(publish(reserved), grpc::StatusCode::INVALID_ARGUMENT) << reserved;
  }
}

// Stands before a server and keeps what that says.
class Recorder {
 public:
  explicit Recorder(const std::string& server)
      : relay_("postgresql://any@" + server + "/any", [this](int client) { Serve(client); }) {}

  std::string address() const {
    const std::string& url = relay_.url();
    const size_t begin = url.find('@') + 1;
    return url.substr(begin, url.rfind('/') - begin);
  }
  std::string Take() {
    std::scoped_lock lock(mu_);
    return std::exchange(said_, {});
  }

 private:
  void Serve(int client) {
    const int server = relay_.Connect();
    relay_.Spawn([=] {
      for (auto bytes = testing::ReceiveSome(client); !bytes.empty();
           bytes = testing::ReceiveSome(client)) {
        testing::SendAll(server, bytes);
      }
      testing::Hang(client, server);
    });
    for (auto bytes = testing::ReceiveSome(server); !bytes.empty();
         bytes = testing::ReceiveSome(server)) {
      {
        std::scoped_lock lock(mu_);
        said_ += bytes;
      }
      testing::SendAll(client, bytes);
    }
    testing::Hang(client, server);
  }

  std::mutex mu_;
  std::string said_;
  testing::PgRelay relay_;
};

// On the wire: what a client's threads make of the order is theirs.
TEST_P(Raw, AnswersAPublishBeforeItsDeliveryAsARule) {
  const std::string topic = MakeTopic();
  const std::string subscription = MakeSubscription();
  Recorder recorder(server().address());
  const auto both = grpc::CreateChannel(recorder.address(), grpc::InsecureChannelCredentials());
  const auto publisher = pb::Publisher::NewStub(both);
  const auto subscriber = pb::Subscriber::NewStub(both);
  grpc::ClientContext stream_context;
  const auto stream = subscriber->StreamingPull(&stream_context);
  pb::StreamingPullRequest first;
  first.set_subscription(subscription);
  first.set_stream_ack_deadline_seconds(60);
  ASSERT_TRUE(stream->Write(first));
  int answered_first = 0;
  constexpr int kCount = 50;
  for (int i = 0; i < kCount; ++i) {
    pb::PublishRequest request;
    request.set_topic(topic);
    request.add_messages()->set_data("needle");
    pb::PublishResponse answer;
    grpc::ClientContext context;
    ASSERT_TRUE(publisher->Publish(&context, request, &answer).ok());
    pb::StreamingPullResponse delivery;
    ASSERT_TRUE(stream->Read(&delivery));
    const std::string said = recorder.Take();
    if (said.find(answer.SerializeAsString()) < said.find("needle")) ++answered_first;
  }
  EXPECT_GT(answered_first, kCount / 2);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

INSTANTIATE_TEST_SUITE_P(All, Raw, ::testing::ValuesIn(Setups()),
                         [](const auto& setup) { return setup.param.name; });

}  // namespace
}  // namespace lockstep::conformance
