#include "web/api_views.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::web {
namespace {

using nlohmann::json;

const json kDocument = {
    {"now", "2026-01-01T00:00:00Z"},
    {"role", "runner"},
    {"instance", "a"},
    {"groups",
     {{{"name", "feed"},
       {"lag_ms", 5},
       {"lane_offsets", {{{"instance", "a"}, {"lane", 0}, {"message_id", "7"}}}},
       {"dead_letters",
        {{{"id", 1}, {"key", "video/1"}, {"ordering_key", "1"}},
         {{"id", 2}, {"key", nullptr}, {"ordering_key", "2"}}}}},
      {{"name", "other"},
       {"dead_letters", {{{"id", 3}, {"key", "video/1"}, {"ordering_key", "1"}}}}}}}};

TEST(LagView, HasEveryFieldForEveryGroup) {
  const json view = LagView(kDocument);
  EXPECT_EQ(view["groups"][0]["lag_ms"], 5);
  EXPECT_TRUE(view["groups"][1].contains("lag_ms"));
  EXPECT_TRUE(view["groups"][1]["lag_ms"].is_null());
  EXPECT_EQ(view["groups"][0].size(), view["groups"][1].size());
}

TEST(OffsetsExport, ListsLanesFlat) {
  const json view = OffsetsExport(kDocument);
  ASSERT_EQ(view["offsets"].size(), 1U);
  EXPECT_EQ(view["offsets"][0]["group"], "feed");
  EXPECT_EQ(view["offsets"][0]["message_id"], "7");
}

TEST(DeadLettersView, SelectsByGroupAndKey) {
  EXPECT_EQ(DeadLettersView(kDocument, {})["dead_letters"].size(), 3U);
  EXPECT_EQ(DeadLettersView(kDocument, {{"group", "feed"}})["dead_letters"].size(), 2U);
  EXPECT_EQ(DeadLettersView(kDocument, {{"key", "video/1"}})["dead_letters"].size(), 2U);
  EXPECT_EQ(DeadLettersView(kDocument, {{"key", "2"}, {"group", "feed"}})["dead_letters"][0]["id"],
            2);
  EXPECT_TRUE(DeadLettersView(kDocument, {{"group", "none"}})["dead_letters"].empty());
}

}  // namespace
}  // namespace lockstep::web
