#include "web/console/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::web {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const WallTime kNow = WallTime(std::chrono::seconds(1'800'000'000));

json Publisher(const std::string& name, double rate) {
  return {{"role", "publisher"},
          {"instance", name},
          {"version", "0.1.0"},
          {"ready", true},
          {"database", {{"address", "postgresql://p@h/shop"}}},
          {"config", {{{"key", "pubsub.project"}, {"value", "prod"}}}},
          {"outboxes",
           {{{"table", "shop.outbox"},
             {"state", "relaying"},
             {"pending", 7},
             {"rate", rate},
             {"topics",
              {{{"topic", "order.changed.v1"},
                {"published", 10},
                {"routes", {{{"route", "bus:orders"}}, {{"route", "https://hook.example/x"}}}}},
               {{"topic", "plain"}, {"published", 1}, {"routes", json::array()}}}}}}}};
}

json Runner(const std::string& name, int lag) {
  return {{"role", "runner"},
          {"instance", name},
          {"ready", true},
          {"database", {{"address", "postgresql://r@h/feed"}, {"schema", "feed_state"}}},
          {"groups",
           {{{"name", "feed"},
             {"topic", "projects/prod/topics/orders"},
             {"state", lag > 100 ? "stuck" : "running"},
             {"lag_ms", lag},
             {"lag_alert_ms", 300'000},
             {"rate", 5},
             {"parked_keys_total", 2}}}},
          {"attention", {{{"severity", "warning"}, {"title", "Key a of group feed is parked"}}}}};
}

Asked Answered(const json& document) {
  const Instance instance{.address = "http://10.0.0.1:9102"};
  return {.instance = instance,
          .answers = true,
          .since = kNow,
          .answered_at = kNow,
          .told = *TellOf(document.dump(), instance)};
}

std::vector<std::string> Of(const json& list, const char* name) {
  std::vector<std::string> values;
  for (const json& part : list) values.push_back(part[name].dump());
  return values;
}

TEST(Picture, JoinsSourcesTopicsAndGroupsOfAllInstances) {
  const json picture = Picture({Answered(Publisher("p1", 3)), Answered(Publisher("p2", 4)),
                                Answered(Runner("r1", 20)), Answered(Runner("r2", 9'000))},
                               kNow);
  ASSERT_EQ(picture["sources"].size(), 1U) << picture.dump(1);
  const json& source = picture["sources"][0];
  EXPECT_EQ(source["rate"], 7.0) << "each publisher sends a part";
  EXPECT_EQ(source["pending"], 7) << "both count the same rows";
  EXPECT_EQ(source["publishers"], 2);
  EXPECT_THAT(source["to"], ElementsAre("projects/prod/topics/orders", "https://hook.example/x",
                                        "projects/prod/topics/plain"));
  EXPECT_THAT(Of(picture["topics"], "name"),
              ElementsAre("\"https://hook.example/x\"", "\"orders\"", "\"plain\""));
  EXPECT_EQ(picture["topics"][1]["published"], 20.0);
  ASSERT_EQ(picture["groups"].size(), 1U);
  const json& group = picture["groups"][0];
  EXPECT_EQ(group["topic"], "projects/prod/topics/orders");
  EXPECT_EQ(group["lag_ms"], 9'000) << "the greatest";
  EXPECT_EQ(group["state"], "stuck") << "the worst";
  EXPECT_EQ(group["rate"], 10.0);
  EXPECT_EQ(group["parked"], 2);
  EXPECT_EQ(picture["attention"].size(), 1U) << "both tell of the same key";
}

TEST(Picture, OneThatDoesNotAnswerIsShownSinceWhenAndItsNumbersAreNot) {
  Asked silent = Answered(Runner("r1", 20));
  silent.answers = false;
  silent.fault = "connection refused";
  silent.since = kNow - std::chrono::minutes(3);
  const json picture = Picture({silent, Answered(Publisher("p1", 3))}, kNow);
  EXPECT_TRUE(picture["groups"].empty()) << "what it said last may be wrong by now";
  const json& first = picture["instances"][0];
  EXPECT_EQ(first["instance"], "r1");
  EXPECT_EQ(first["answers"], false);
  EXPECT_EQ(first["ready"], nullptr);
  EXPECT_EQ(first["fault"], "connection refused");
  EXPECT_EQ(first["since"], "2027-01-15T07:57:00.000000Z");
}

TEST(Picture, AGroupWhoseTopicNobodyPublishesToHasItsTopicAllTheSame) {
  json runner = Runner("r1", 20);
  const json picture = Picture({Answered(runner)}, kNow);
  EXPECT_THAT(Of(picture["topics"], "published"), ElementsAre("null"));
  runner["groups"][0]["topic"] = nullptr;
  EXPECT_TRUE(Picture({Answered(runner)}, kNow)["topics"].empty());
}

TEST(Picture, OnlyAnAddressOfHttpMayBecomeALink) {
  for (const auto& [address, good] : std::map<std::string, bool>{
           {"http://h:1", true}, {"javascript:alert(1)", false}, {"http://a b", false}}) {
    Asked asked{.instance = {.address = address}};
    EXPECT_EQ(Picture({asked}, kNow)["instances"][0]["reachable_address"], good) << address;
  }
}

TEST(TellOf, RefusesWhoIsNotMeant) {
  const std::string runner = Runner("r1", 1).dump();
  EXPECT_TRUE(TellOf(runner, {.role = "runner", .name = "r1"}).ok());
  EXPECT_THAT(TellOf(runner, {.role = "publisher"}).status().message(),
              HasSubstr("is a runner, not a publisher"));
  EXPECT_THAT(TellOf(runner, {.name = "r2"}).status().message(),
              HasSubstr("another instance answers there (r1)"));
  for (const char* body : {"", "<html>", "[]", "{}", "{\"role\":7}", "\xff"}) {
    EXPECT_THAT(TellOf(body, {}).status().message(), HasSubstr("no Lockstep")) << body;
  }
}

TEST(TellOf, KeepsLittleOfAGreatAnswerAndNoConfiguration) {
  json runner = Runner("r1", 1);
  runner["config"] = {{{"key", "database"}, {"value", "postgresql://secret"}}};
  runner["history"] = json::array({1, 2, 3});
  for (int i = 0; i < 2'000; ++i) runner["groups"].push_back({{"name", std::string(9'000, 'g')}});
  runner["groups"].push_back(7);
  const json told = *TellOf(runner.dump(), {});
  EXPECT_EQ(told["groups"].size(), 500U);
  EXPECT_LT(told.dump().size(), 500U * 800U);
  EXPECT_FALSE(told.contains("config"));
  EXPECT_FALSE(told.contains("history"));
}

}  // namespace
}  // namespace lockstep::web
