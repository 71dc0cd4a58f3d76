#include "emulator/core/filter.h"

#include <gtest/gtest.h>

#include <string>

#include "google/pubsub/v1/pubsub.pb.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

bool Matches(const std::string& text) {
  google::pubsub::v1::PubsubMessage message;
  (*message.mutable_attributes())["domain"] = "com";
  (*message.mutable_attributes())["name"] = "com.example";
  (*message.mutable_attributes())["iana.org/language_tag"] = "en";
  (*message.mutable_attributes())["みんな"] = "all";
  const auto filter = Filter::Parse(text);
  EXPECT_TRUE(filter.ok()) << text << ": " << MessageOf(filter.status());
  return filter.ok() && filter->Matches(message);
}

TEST(Filter, KnowsWhetherAnAttributeIsThere) {
  EXPECT_TRUE(Matches("attributes:domain"));
  EXPECT_FALSE(Matches("attributes:dom"));
  EXPECT_TRUE(Matches(R"(attributes:"iana.org/language_tag")"));
  EXPECT_TRUE(Matches(R"(attributes:"\u307F\u3093\u306A")"));
}

TEST(Filter, ComparesValues) {
  EXPECT_TRUE(Matches(R"(attributes.domain = "com")"));
  EXPECT_TRUE(Matches(R"(attributes.domain="com")"));
  EXPECT_FALSE(Matches(R"(attributes.domain = "co")"));
  EXPECT_FALSE(Matches(R"(attributes.domain != "com")"));
  EXPECT_TRUE(Matches(R"(attributes.domain != "org")"));
  EXPECT_TRUE(Matches(R"(attributes.missing != "org")"));
  EXPECT_FALSE(Matches(R"(attributes.missing = "")"));
  EXPECT_TRUE(Matches(R"(attributes."iana.org/language_tag" = "en")"));
}

TEST(Filter, KnowsPrefixes) {
  EXPECT_TRUE(Matches(R"(hasPrefix(attributes.name, "com."))"));
  EXPECT_TRUE(Matches(R"(hasPrefix(attributes.name, ""))"));
  EXPECT_FALSE(Matches(R"(hasPrefix(attributes.name, "example"))"));
  EXPECT_FALSE(Matches(R"(hasPrefix(attributes.missing, ""))"));
}

TEST(Filter, CombinesWithAndOrNot) {
  EXPECT_TRUE(Matches("attributes:domain AND attributes:name"));
  EXPECT_FALSE(Matches("attributes:domain AND attributes:missing"));
  EXPECT_TRUE(Matches("attributes:missing OR attributes:name OR attributes:x"));
  EXPECT_FALSE(Matches("NOT attributes:domain"));
  EXPECT_TRUE(Matches("-attributes:missing"));
  EXPECT_TRUE(Matches("attributes:domain AND (attributes:x OR NOT attributes:y)"));
  EXPECT_FALSE(Matches("NOT (attributes:domain OR attributes:x)"));
  EXPECT_TRUE(Matches("attributes:domain AND NOT attributes:x"));
}

TEST(Filter, ValuesMayHoldWhatIsEscaped) {
  google::pubsub::v1::PubsubMessage message;
  (*message.mutable_attributes())["q"] = "say \"hi\" \\ now";
  const auto filter = Filter::Parse(R"(attributes.q = "say \"hi\" \\ now")");
  ASSERT_TRUE(filter.ok());
  EXPECT_TRUE(filter->Matches(message));
}

TEST(Filter, RefusesWhatItCantRead) {
  for (const char* text : {"attributes",
                           "attributes.",
                           "attributes:",
                           "attributes.a",
                           "attributes.a =",
                           "attributes.a = b",
                           R"(attributes.a = "b)",
                           R"(attributes.a > "b")",
                           "labels:a",
                           "attributes:a AND",
                           "attributes:a attributes:b",
                           "(attributes:a",
                           "attributes:a)",
                           "attributes:a AND attributes:b OR attributes:c",
                           R"(hasPrefix(attributes.a "b"))",
                           R"(hasSuffix(attributes.a, "b"))",
                           R"(attributes.a = "\x")",
                           R"(attributes:"\u12")",
                           "attributes:a and attributes:b",
                           "NOT",
                           "()"}) {
    const auto filter = Filter::Parse(text);
    EXPECT_EQ(filter.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Filter, RefusesMoreThan256Bytes) {
  EXPECT_TRUE(Filter::Parse("attributes:" + std::string(245, 'a')).ok());
  EXPECT_FALSE(Filter::Parse("attributes:" + std::string(246, 'a')).ok());
}

TEST(Filter, SaysWhereTheMistakeIs) {
  const auto filter = Filter::Parse("attributes:a AND labels:b");
  EXPECT_NE(MessageOf(filter.status()).find("at character 18"), std::string_view::npos)
      << MessageOf(filter.status());
}

TEST(Filter, SurvivesDeepNesting) { EXPECT_FALSE(Filter::Parse(std::string(250, '(')).ok()); }

}  // namespace
}  // namespace lockstep::emulator
