#include "web/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep::web {
namespace {

using nlohmann::json;

class HistoryTest : public ::testing::Test {
 protected:
  void Add(int second, double lag, double applied) {
    history_.Add(WallTime(std::chrono::seconds(1'000'000 + second)), {{"feed", applied, lag}});
  }
  History::Outlook outlook() const { return history_.Of("feed"); }
  json document() const { return history_.ToJson("groups", "lag_ms"); }

  History history_;
};

TEST_F(HistoryTest, KnowsNoRateFromOnePoint) {
  Add(0, 10, 5);
  EXPECT_FALSE(outlook().rate);
  EXPECT_FALSE(outlook().eta_seconds);
}

TEST_F(HistoryTest, AveragesTheRateOverItsWindow) {
  for (int s = 0; s <= 20; s += 2) Add(s, 0, s * 50.0);
  EXPECT_DOUBLE_EQ(*outlook().rate, 50);
  for (int s = 22; s <= 40; s += 2) Add(s, 0, 1000);
  EXPECT_DOUBLE_EQ(*outlook().rate, 0) << "what is older than the window is forgotten";
}

TEST_F(HistoryTest, EstimatesTheTimeToCatchUpFromHowFastTheLagShrinks) {
  for (int s = 0; s <= 10; s += 2) Add(s, 60'000 - s * 3'000, 0);  // 3 s of lag lost per second
  EXPECT_DOUBLE_EQ(*outlook().eta_seconds, 10);
}

TEST_F(HistoryTest, PromisesNothingWhileTheLagGrows) {
  for (int s = 0; s <= 10; s += 2) Add(s, 1'000 + s * 1'000, 0);
  EXPECT_FALSE(outlook().eta_seconds);
}

TEST_F(HistoryTest, KeepsAnHourInABoundedNumberOfPoints) {
  for (int s = 0; s <= 9'000; ++s) Add(s, 0, s);
  const json history = document();
  const json& at = history["at"];
  EXPECT_EQ(history["span_ms"], 3'600'000);
  EXPECT_GE(at.size(), 150U + 220U - 3U) << "five minutes of 2 s, the rest of 15 s";
  EXPECT_LE(at.size(), 150U + 220U + 5U);
  EXPECT_EQ(at.back().get<int64_t>(), 1'009'000'000);
  EXPECT_NEAR(static_cast<double>(at.front().get<int64_t>()), 1'005'400'000, 15'000);
  EXPECT_TRUE(std::is_sorted(at.begin(), at.end()));
  EXPECT_EQ(history["groups"]["feed"]["lag_ms"].size(), at.size());
}

TEST_F(HistoryTest, APeakStaysAsHighAsItWasWhenItsMinutesHavePassed) {
  for (int s = 0; s <= 3'000; ++s) Add(s, s == 1'000 ? 77'000 : 5, s);
  const json history = document();
  const json& lag = history["groups"]["feed"]["lag_ms"];
  const auto peak = std::max_element(lag.begin(), lag.end());
  EXPECT_EQ(*peak, 77'000.0);
  EXPECT_NEAR(history["at"][static_cast<size_t>(peak - lag.begin())].get<double>(), 1'001'000'000,
              15'000);
  EXPECT_EQ(std::count(lag.begin(), lag.end(), 77'000.0), 1);
}

TEST_F(HistoryTest, ShowsRatesOfTheirTimeAndNothingWhereNothingIsKnown) {
  Add(0, 8, 0);
  Add(2, 4, 100);
  history_.Add(WallTime(std::chrono::seconds(1'000'004)), {{"feed", std::nullopt, std::nullopt}});
  EXPECT_EQ(document()["groups"]["feed"]["lag_ms"], json({8.0, 4.0, nullptr}));
  EXPECT_EQ(document()["groups"]["feed"]["rate"], json({nullptr, 50.0, nullptr}));
}

TEST_F(HistoryTest, NeverShowsANegativeRateAfterARestartOfTheCounter) {
  for (int s = 0; s <= 10; s += 2) Add(s, 0, 1000);
  Add(12, 0, 3);
  EXPECT_DOUBLE_EQ(*outlook().rate, 0);
}

TEST_F(HistoryTest, StartsAnewWhenTheClockIsSetBack) {
  Add(100, 0, 1);
  Add(50, 0, 2);
  EXPECT_EQ(document()["at"].size(), 1U);
}

}  // namespace
}  // namespace lockstep::web
