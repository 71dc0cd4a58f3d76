// Topics and subscriptions: create, get, list, update, delete, detach.
#include <gmock/gmock.h>

#include "emulator/testing/wire_fixture.h"
#include "emulator/wire/names.h"
#include "emulator/wire/proto_time.h"

namespace lockstep::emulator {
namespace {

using grpc::StatusCode;
using std::chrono::hours;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class AdminWire : public WireTest {
 protected:
  grpc::Status GetTopic(pb::Topic* topic, const std::string& name = kTopic) {
    pb::GetTopicRequest request;
    request.set_topic(name);
    return Call(publisher_.get(), &pb::Publisher::Stub::GetTopic, request, topic);
  }
  grpc::Status GetSubscription(pb::Subscription* subscription) {
    pb::GetSubscriptionRequest request;
    request.set_subscription(kSubscription);
    return Call(subscriber_.get(), &pb::Subscriber::Stub::GetSubscription, request, subscription);
  }
  grpc::Status DeleteTopic(const std::string& name = kTopic) {
    pb::DeleteTopicRequest request;
    request.set_topic(name);
    google::protobuf::Empty response;
    return Call(publisher_.get(), &pb::Publisher::Stub::DeleteTopic, request, &response);
  }
  grpc::Status Detach() {
    pb::DetachSubscriptionRequest request;
    request.set_subscription(kSubscription);
    pb::DetachSubscriptionResponse response;
    return Call(publisher_.get(), &pb::Publisher::Stub::DetachSubscription, request, &response);
  }
  grpc::Status Update(const std::function<void(pb::Subscription*)>& change,
                      const std::vector<std::string>& paths, pb::Subscription* response) {
    pb::UpdateSubscriptionRequest request;
    request.mutable_subscription()->set_name(kSubscription);
    change(request.mutable_subscription());
    for (const auto& path : paths) request.mutable_update_mask()->add_paths(path);
    return Call(subscriber_.get(), &pb::Subscriber::Stub::UpdateSubscription, request, response);
  }
  StatusCode CodeOfCreate(const std::function<void(pb::Subscription*)>& change) {
    return CreateSubscription(change).error_code();
  }
};

TEST_F(AdminWire, ATopicIsCreatedOnceAndDeletedOnce) {
  EXPECT_EQ(DeleteTopic().error_code(), StatusCode::NOT_FOUND);
  EXPECT_TRUE(CreateTopic().ok());
  EXPECT_EQ(CreateTopic().error_code(), StatusCode::ALREADY_EXISTS);
  pb::Topic topic;
  EXPECT_TRUE(GetTopic(&topic).ok());
  EXPECT_EQ(topic.name(), kTopic);
  EXPECT_TRUE(DeleteTopic().ok());
  EXPECT_EQ(GetTopic(&topic).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(AdminWire, MalformedNamesAreInvalid) {
  for (const std::string name : {"", "events", "projects/p/topics/ab", "projects/p/topics/googlet",
                                 "projects/p/subscriptions/abc"}) {
    EXPECT_EQ(CreateTopic(name).error_code(), StatusCode::INVALID_ARGUMENT) << name;
    pb::Topic topic;
    EXPECT_EQ(GetTopic(&topic, name).error_code(), StatusCode::INVALID_ARGUMENT) << name;
  }
}

TEST_F(AdminWire, ASubscriptionGetsTheServicesDefaults) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  pb::Subscription subscription;
  ASSERT_TRUE(GetSubscription(&subscription).ok());
  EXPECT_EQ(subscription.ack_deadline_seconds(), 10);
  EXPECT_EQ(FromProto(subscription.message_retention_duration()), hours(7 * 24));
  EXPECT_EQ(FromProto(subscription.expiration_policy().ttl()), hours(31 * 24));
  EXPECT_EQ(subscription.state(), pb::Subscription::ACTIVE);
  EXPECT_EQ(CodeOfCreate({}), StatusCode::ALREADY_EXISTS);
}

TEST_F(AdminWire, ASubscriptionNeedsItsTopics) {
  EXPECT_EQ(CodeOfCreate({}), StatusCode::NOT_FOUND);
  ASSERT_TRUE(CreateTopic().ok());
  EXPECT_EQ(CodeOfCreate([](auto* request) {
              request->mutable_dead_letter_policy()->set_dead_letter_topic(
                  "projects/test/topics/missing");
            }),
            StatusCode::NOT_FOUND);
}

TEST_F(AdminWire, BoundsAreChecked) {
  ASSERT_TRUE(CreateTopic().ok());
  const auto is_invalid = [this](const std::function<void(pb::Subscription*)>& change) {
    return CodeOfCreate(change) == StatusCode::INVALID_ARGUMENT;
  };
  EXPECT_TRUE(is_invalid([](auto* s) { s->set_ack_deadline_seconds(9); }));
  EXPECT_TRUE(is_invalid([](auto* s) { s->set_ack_deadline_seconds(601); }));
  EXPECT_TRUE(is_invalid([](auto* s) { s->set_ack_deadline_seconds(-1); }));
  EXPECT_TRUE(is_invalid([](auto* s) {
    *s->mutable_message_retention_duration() = ToProto(std::chrono::minutes(9));
  }));
  EXPECT_TRUE(is_invalid(
      [](auto* s) { *s->mutable_message_retention_duration() = ToProto(hours(31 * 24 + 1)); }));
  EXPECT_TRUE(is_invalid(
      [](auto* s) { *s->mutable_expiration_policy()->mutable_ttl() = ToProto(hours(23)); }));
  EXPECT_TRUE(is_invalid([](auto* s) { s->set_filter("nonsense"); }));
  EXPECT_TRUE(is_invalid([](auto* s) {
    s->mutable_dead_letter_policy()->set_dead_letter_topic(kTopic);
    s->mutable_dead_letter_policy()->set_max_delivery_attempts(4);
  }));
  EXPECT_TRUE(is_invalid([](auto* s) {
    *s->mutable_retry_policy()->mutable_minimum_backoff() = ToProto(std::chrono::seconds(601));
  }));
  EXPECT_TRUE(is_invalid([](auto* s) {
    *s->mutable_retry_policy()->mutable_minimum_backoff() = ToProto(std::chrono::seconds(20));
    *s->mutable_retry_policy()->mutable_maximum_backoff() = ToProto(std::chrono::seconds(10));
  }));
}

TEST_F(AdminWire, WhatItDoesNotDoIsUnimplementedAndNotIgnored) {
  ASSERT_TRUE(CreateTopic().ok());
  const auto is_refused = [this](const std::function<void(pb::Subscription*)>& change) {
    return CodeOfCreate(change) == StatusCode::UNIMPLEMENTED;
  };
  EXPECT_TRUE(
      is_refused([](auto* s) { s->mutable_push_config()->set_push_endpoint("https://x"); }));
  EXPECT_TRUE(is_refused([](auto* s) { s->mutable_bigquery_config()->set_table("t"); }));
  EXPECT_TRUE(is_refused([](auto* s) { s->mutable_cloud_storage_config()->set_bucket("b"); }));
  EXPECT_TRUE(is_refused([](auto* s) {
    s->GetReflection()->MutableUnknownFields(s)->AddVarint(999, 1);  // of a newer API
  }));
  pb::Topic topic;
  topic.set_name("projects/test/topics/other");
  topic.set_kms_key_name("key");
  pb::Topic response;
  EXPECT_EQ(
      Call(publisher_.get(), &pb::Publisher::Stub::CreateTopic, topic, &response).error_code(),
      StatusCode::UNIMPLEMENTED);

  ASSERT_TRUE(CreateSubscription([](auto* s) { s->mutable_push_config(); }).ok());  // empty = pull
  pb::ModifyPushConfigRequest push;
  push.set_subscription(kSubscription);
  google::protobuf::Empty empty;
  EXPECT_TRUE(Call(subscriber_.get(), &pb::Subscriber::Stub::ModifyPushConfig, push, &empty).ok());
  push.mutable_push_config()->set_push_endpoint("https://x");
  EXPECT_EQ(
      Call(subscriber_.get(), &pb::Subscriber::Stub::ModifyPushConfig, push, &empty).error_code(),
      StatusCode::UNIMPLEMENTED);
}

TEST_F(AdminWire, AnUpdateChangesWhatItsMaskNamesAndNothingElse) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) { (*s->mutable_labels())["a"] = "1"; }).ok());
  pb::Subscription changed;
  const auto change = [](pb::Subscription* s) {
    s->set_ack_deadline_seconds(30);
    s->set_retain_acked_messages(true);
  };
  ASSERT_TRUE(Update(change, {"ack_deadline_seconds"}, &changed).ok());
  EXPECT_EQ(changed.ack_deadline_seconds(), 30);
  EXPECT_FALSE(changed.retain_acked_messages());
  EXPECT_EQ(changed.labels().at("a"), "1");
  ASSERT_TRUE(Update([](auto*) {}, {"labels"}, &changed).ok());
  EXPECT_THAT(changed.labels(), IsEmpty());
}

TEST_F(AdminWire, AnUpdateCanNameAPartOfAPolicy) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription([](auto* s) {
                s->mutable_dead_letter_policy()->set_dead_letter_topic(kTopic);
              }).ok());
  pb::Subscription changed;
  ASSERT_TRUE(Update([](auto* s) { s->mutable_dead_letter_policy()->set_max_delivery_attempts(7); },
                     {"dead_letter_policy.max_delivery_attempts"}, &changed)
                  .ok());
  EXPECT_EQ(changed.dead_letter_policy().max_delivery_attempts(), 7);
  EXPECT_EQ(changed.dead_letter_policy().dead_letter_topic(), kTopic);
  ASSERT_TRUE(Update([](auto*) {}, {"dead_letter_policy"}, &changed).ok());
  EXPECT_FALSE(changed.has_dead_letter_policy());
  EXPECT_EQ(Update([](auto* s) { s->mutable_push_config()->set_push_endpoint("https://x"); },
                   {"push_config"}, &changed)
                .error_code(),
            StatusCode::UNIMPLEMENTED);
}

TEST_F(AdminWire, MaskPathsThatDoNotExistOrMayNotChangeAreInvalid) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  pb::Subscription changed;
  for (const std::string path : {"nonsense", "topic", "name", "filter", "enable_message_ordering",
                                 "ack_deadline_seconds.x", ""}) {
    EXPECT_EQ(Update([](auto*) {}, {path}, &changed).error_code(), StatusCode::INVALID_ARGUMENT)
        << path;
  }
  EXPECT_EQ(Update([](auto*) {}, {}, &changed).error_code(), StatusCode::INVALID_ARGUMENT);

  pb::UpdateTopicRequest request;
  request.mutable_topic()->set_name(kTopic);
  request.mutable_update_mask()->add_paths("nonsense");
  pb::Topic topic;
  EXPECT_EQ(Call(publisher_.get(), &pb::Publisher::Stub::UpdateTopic, request, &topic).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

TEST_F(AdminWire, ADeletedTopicLeavesItsSubscriptionsWithTheirMessages) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  Publish("last");
  ASSERT_TRUE(DeleteTopic().ok());
  pb::Subscription subscription;
  ASSERT_TRUE(GetSubscription(&subscription).ok());
  EXPECT_EQ(subscription.topic(), kDeletedTopic);
  ASSERT_TRUE(CreateTopic().ok());
  Publish("of a new topic with the old name");
  EXPECT_THAT(DataOf(PullNow()), ElementsAre("last"));
}

TEST_F(AdminWire, ADetachedSubscriptionIsAFailedPrecondition) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  auto stream = Open();
  Publish("a");
  ASSERT_THAT(stream->Read(1), SizeIs(1));
  ASSERT_TRUE(Detach().ok());
  EXPECT_EQ(stream->AwaitEnd().error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Open()->Finish().error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Acknowledge({"x"}).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(SeekToTime({}).error_code(), StatusCode::FAILED_PRECONDITION);
  pb::Subscription subscription;
  ASSERT_TRUE(GetSubscription(&subscription).ok());
  EXPECT_TRUE(subscription.detached());
}

TEST_F(AdminWire, DeletingASubscriptionEndsItsStreams) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  auto stream = Open();
  Publish("a");
  stream->Read(1);
  pb::DeleteSubscriptionRequest request;
  request.set_subscription(kSubscription);
  google::protobuf::Empty response;
  ASSERT_TRUE(
      Call(subscriber_.get(), &pb::Subscriber::Stub::DeleteSubscription, request, &response).ok());
  EXPECT_EQ(stream->AwaitEnd().error_code(), StatusCode::NOT_FOUND);
  EXPECT_TRUE(CreateSubscription().ok());
  EXPECT_THAT(PullNow(), IsEmpty());
}

TEST_F(AdminWire, ListsInPages) {
  ASSERT_TRUE(CreateTopic("projects/another/topics/x12").ok());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(CreateTopic("projects/test/topics/topic" + std::to_string(i)).ok());
  }
  std::vector<std::string> names;
  std::vector<int> sizes;
  pb::ListTopicsRequest request;
  request.set_project("projects/test");
  request.set_page_size(2);
  do {
    pb::ListTopicsResponse response;
    ASSERT_TRUE(Call(publisher_.get(), &pb::Publisher::Stub::ListTopics, request, &response).ok());
    sizes.push_back(response.topics_size());
    for (const auto& topic : response.topics()) names.push_back(topic.name());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(sizes, ElementsAre(2, 2, 1));
  EXPECT_THAT(names, SizeIs(5));
  EXPECT_EQ(names.back(), "projects/test/topics/topic4");

  pb::ListTopicsResponse response;
  request.set_page_token("nonsense");
  EXPECT_EQ(
      Call(publisher_.get(), &pb::Publisher::Stub::ListTopics, request, &response).error_code(),
      StatusCode::INVALID_ARGUMENT);
  request.set_project("test");
  EXPECT_EQ(
      Call(publisher_.get(), &pb::Publisher::Stub::ListTopics, request, &response).error_code(),
      StatusCode::INVALID_ARGUMENT);
}

TEST_F(AdminWire, ListsTheSubscriptionsOfATopic) {
  ASSERT_TRUE(CreateTopic().ok());
  ASSERT_TRUE(CreateSubscription().ok());
  ASSERT_TRUE(
      CreateSubscription([](auto* s) { s->set_name("projects/test/subscriptions/another"); }).ok());
  pb::ListTopicSubscriptionsRequest request;
  request.set_topic(kTopic);
  pb::ListTopicSubscriptionsResponse response;
  ASSERT_TRUE(
      Call(publisher_.get(), &pb::Publisher::Stub::ListTopicSubscriptions, request, &response)
          .ok());
  EXPECT_THAT(response.subscriptions(),
              ElementsAre("projects/test/subscriptions/another", kSubscription));
}

TEST_F(AdminWire, TenThousandSubscriptionsLive) {
  ASSERT_TRUE(CreateTopic().ok());
  pb::Subscription request;
  request.set_topic(kTopic);
  pb::Subscription response;
  for (int i = 0; i < 10'000; ++i) {
    request.set_name("projects/test/subscriptions/many" + std::to_string(i));
    ASSERT_TRUE(
        Call(subscriber_.get(), &pb::Subscriber::Stub::CreateSubscription, request, &response)
            .ok());
  }
  Publish("to all of them");
  EXPECT_THAT(PullNow(1, "projects/test/subscriptions/many0"), SizeIs(1));
  EXPECT_THAT(PullNow(1, "projects/test/subscriptions/many9999"), SizeIs(1));
}

}  // namespace
}  // namespace lockstep::emulator
