// GET /api/trace beside a group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "platform/log/masking.h"
#include "runner/status/event_tracer.h"
#include "runner/testing/test_group.h"
#include "tests/support/http_get.h"

namespace lockstep::runner {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class TraceApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    group_ = world_.NewGroup();
    world_.Publish({{.version = 1, .event_id = Uuid(1)},
                    {.version = 2, .payload = R"({"ignore":true})", .event_id = Uuid(2)},
                    {.version = 3, .payload = R"({"refuse":"k1 is odd"})", .event_id = Uuid(3)},
                    {.version = 4, .event_id = Uuid(4)}});
    ASSERT_TRUE(world_.AwaitDrained());
    tracer_ = std::make_unique<EventTracer>(EventTracer::Options{.database = world_.database.url(),
                                                                 .state_schema = "feed_state",
                                                                 .groups = {"feed", "new"}},
                                            http_);
    ASSERT_TRUE(http_.Start().ok());
    ASSERT_TRUE(tracer_->Start().ok());
  }
  void TearDown() override {
    tracer_->Stop();
    http_.Stop();
    MaskKeys(false);
  }
  std::string Get(const std::string& query) {
    return testing::HttpGet(http_.url() + "/api/trace?" + query);
  }
  json Trace(const std::string& query) {
    const std::string answer = Get(query);
    EXPECT_THAT(answer, StartsWith("200"));
    return json::parse(answer.substr(answer.find(' ')), nullptr, false);
  }

  GroupWorld world_;
  std::unique_ptr<Group> group_;
  HttpServer http_{HttpOptions{}};
  std::unique_ptr<EventTracer> tracer_;
};

TEST_F(TraceApiTest, SaysWhatBecameOfAnEvent) {
  for (const auto& [number, fate] :
       std::vector<std::pair<int, const char*>>{{1, "applied"}, {2, "ignored"}}) {
    const json trace = Trace("event=" + Uuid(number));
    EXPECT_EQ(trace["event_id"], Uuid(number));
    ASSERT_EQ(trace["groups"].size(), 1u) << "a group that never started knows nothing: " << trace;
    EXPECT_EQ(trace["groups"][0]["group"], "feed");
    EXPECT_EQ(trace["groups"][0]["fate"], fate);
    EXPECT_TRUE(trace["groups"][0]["received_at"].is_string()) << trace;
  }
  const json dead = Trace("event=" + Uuid(3));
  EXPECT_EQ(dead["aggregate"], "item/k1");
  EXPECT_EQ(dead["version"], 3);
  EXPECT_EQ(dead["groups"][0]["fate"], "dead");
  EXPECT_EQ(dead["groups"][0]["dead_letter"], 1);
  EXPECT_EQ(dead["groups"][0]["reason"], "k1 is odd");
  const json parked = Trace("event=" + Uuid(4));
  EXPECT_EQ(parked["groups"][0]["fate"], "parked");
  EXPECT_EQ(parked["groups"][0]["verdict"], "parked: version 3 is a dead letter");
  EXPECT_EQ(Trace("message=" + std::string(parked["message_id"]))["event_id"], Uuid(4));
  EXPECT_EQ(Trace("event=" + Uuid(9))["groups"][0]["fate"], nullptr);
}

TEST_F(TraceApiTest, SaysWhatIsKnownOfAKeyByAggregateOrOrderingKey) {
  for (const char* key : {"item/k1", "k1"}) {
    const json trace = Trace(std::string("key=") + key);
    EXPECT_EQ(trace["key"], key);
    ASSERT_EQ(trace["groups"].size(), 1u) << trace;
    const json& group = trace["groups"][0];
    ASSERT_EQ(group["keys"].size(), 1u) << trace;
    EXPECT_EQ(group["keys"][0]["aggregate"], "item/k1");
    EXPECT_EQ(group["keys"][0]["settled_version"], 2);
    ASSERT_EQ(group["parked"].size(), 1u);
    EXPECT_EQ(group["parked"][0]["event_id"], Uuid(4));
    EXPECT_EQ(group["parked"][0]["reason"], "poison");
    EXPECT_TRUE(group["parked"][0]["parked_at"].is_string());
    ASSERT_EQ(group["dead"].size(), 1u);
    EXPECT_EQ(group["dead"][0]["version"], 3);
    EXPECT_EQ(group["dead"][0]["reason"], "k1 is odd");
    EXPECT_EQ(group["dead"][0]["resolved_at"], nullptr);
    EXPECT_THAT(trace.dump(), Not(HasSubstr("refuse"))) << "never a payload";
  }
  const json other = Trace("key=item/other");
  EXPECT_TRUE(other["groups"][0]["keys"].empty());
  EXPECT_TRUE(other["groups"][0]["dead"].empty());
  MaskKeys(true);
  EXPECT_THAT(Trace("key=k1").dump(), Not(HasSubstr("k1")));
}

TEST_F(TraceApiTest, MasksKeysAndWhatMayQuoteThem) {
  MaskKeys(true);
  const json dead = Trace("event=" + Uuid(3));
  EXPECT_EQ(dead["aggregate"], "***");
  EXPECT_EQ(dead["groups"][0]["reason"], "***");
  EXPECT_THAT(dead.dump(), Not(HasSubstr("k1")));
}

TEST_F(TraceApiTest, SaysWhatIsWrongWithTheQuestion) {
  EXPECT_THAT(Get(""), AllOf(StartsWith("400"), HasSubstr("/api/trace?event=")));
  EXPECT_THAT(Get("event=" + Uuid(1) + "&message=1"), StartsWith("400"));
  EXPECT_THAT(Get("event=nonsense"),
              AllOf(StartsWith("400"), HasSubstr("'nonsense' is not an event id")));
  EXPECT_THAT(Get("event=%ff"), StartsWith("400"));
  EXPECT_THAT(Get("message=a%00b"), StartsWith("400"));
  EXPECT_THAT(Get("key=a%00b"), StartsWith("400"));
  EXPECT_THAT(Get("key=a&message=1"), StartsWith("400"));
  world_.database.Run("ALTER TABLE feed_state.inbox RENAME TO hidden");
  EXPECT_THAT(Get("event=" + Uuid(1)), StartsWith("503"));
  world_.database.Run("ALTER TABLE feed_state.hidden RENAME TO inbox");
  EXPECT_THAT(Get("event=" + Uuid(1)), StartsWith("200"));
  tracer_->Stop();
  EXPECT_THAT(Get("event=" + Uuid(1)), StartsWith("503"));
}

}  // namespace
}  // namespace lockstep::runner
