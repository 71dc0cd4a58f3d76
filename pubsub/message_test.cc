#include "pubsub/message.h"

#include <gtest/gtest.h>

#include "platform/status.h"
#include "pubsub/config.h"
#include "pubsub/names.h"
#include "pubsub/transport.h"

namespace lockstep::pubsub {
namespace {

Message Valid() {
  Message message;
  message.data = "x";
  return message;
}

TEST(Limits, LetThroughWhatPubSubTakes) {
  Message message = Valid();
  message.ordering_key = std::string(kMaxOrderingKeyBytes, 'k');
  for (int i = 0; i < kMaxAttributes - 1; ++i) message.attributes["a" + std::to_string(i)] = "ü€😀";
  message.attributes.erase("a0");
  message.attributes["googclient_traceparent"] = "00-1-2-01";
  message.attributes[std::string(kMaxAttributeKeyBytes, 'k')] =
      std::string(kMaxAttributeValueBytes, 'v');
  EXPECT_TRUE(CheckLimits(message).ok()) << CheckLimits(message);
}

TEST(Limits, RefuseWhatPubSubWouldRefuse) {
  std::vector<Message> bad(8, Valid());
  bad[0].data.clear();
  bad[1].data = std::string(kMaxMessageBytes + 1, 'x');
  bad[2].ordering_key = std::string(kMaxOrderingKeyBytes + 1, 'k');
  for (int i = 0; i <= kMaxAttributes; ++i) bad[3].attributes[std::to_string(i)] = "";
  bad[4].attributes[std::string(kMaxAttributeKeyBytes + 1, 'k')] = "";
  bad[5].attributes["k"] = std::string(kMaxAttributeValueBytes + 1, 'v');
  bad[6].attributes["googclient"] = "";
  bad[7].attributes["k"] = "\xC3\x28";
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(CheckLimits(bad[i]).code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

TEST(Names, ExpandShortOnesAndKeepFullOnes) {
  EXPECT_EQ(TopicName("p", "t"), "projects/p/topics/t");
  EXPECT_EQ(TopicName("p", "projects/q/topics/t"), "projects/q/topics/t");
  EXPECT_EQ(SubscriptionName("p", "s"), "projects/p/subscriptions/s");
  EXPECT_EQ(SnapshotName("p", "s"), "projects/p/snapshots/s");
  EXPECT_EQ(SchemaName("p", "s"), "projects/p/schemas/s");
  EXPECT_EQ(ShortName("projects/p/topics/t"), "t");
}

TEST(PubsubConfig, ReadsItsKeysAndTheEmulatorsEnvironment) {
  PubsubOptions options;
  Config::Sources sources;
  sources.flags = {{"pubsub.project", "shop"}, {"pubsub.channels", "3"}};
  sources.env = [](const std::string& name) -> std::optional<std::string> {
    if (name == "PUBSUB_EMULATOR_HOST") return "127.0.0.1:8085";
    return std::nullopt;
  };
  const absl::Status read = Config::Read(sources, [&](ConfigSection& config) {
    config.Section("pubsub", [&](ConfigSection& section) { Bind(section, options); });
  });
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(options.project, "shop");
  EXPECT_EQ(options.transport.channels, 3);
  EXPECT_EQ(options.transport.emulator_host, "127.0.0.1:8085");
}

#ifndef LOCKSTEP_WITH_GOOGLE_CLOUD
TEST(MakeTransport, SaysWhenThisBuildLacksGoogleCloudCpp) {
  TransportOptions options;
  options.kind = TransportKind::kGoogleCloudCpp;
  const auto transport = MakeTransport(options);
  EXPECT_EQ(transport.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(transport.status()).find("google-cloud-cpp"), std::string_view::npos);
}
#endif

TEST(GrpcTransport, NamesTheAddressThatCannotBeReached) {
  TransportOptions options;
  options.emulator_host = "127.0.0.1:1";
  auto transport = MakeTransport(options);
  ASSERT_TRUE(transport.ok());
  Topic topic;
  topic.name = TopicName("p", "t");
  const auto made = (*transport)->admin().CreateTopic(topic);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(MessageOf(made.status()).find("127.0.0.1:1"), std::string_view::npos) << made.status();
}

}  // namespace
}  // namespace lockstep::pubsub
