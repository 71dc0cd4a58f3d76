#include "web/history.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::web {
namespace {

using nlohmann::json;

class HistoryTest : public ::testing::Test {
 protected:
  void Add(int second, double lag, double applied) {
    document_ = {
        {"groups", {{{"name", "feed"}, {"lag_ms", lag}, {"counters", {{"applied", applied}}}}}}};
    history_.Add(WallTime(std::chrono::seconds(1'000'000 + second)), document_);
    history_.Decorate(document_);
  }
  const json& group() const { return document_["groups"][0]; }

  History history_;
  json document_;
};

TEST_F(HistoryTest, KnowsNoRateFromOnePoint) {
  Add(0, 10, 5);
  EXPECT_TRUE(group()["rate"].is_null());
  EXPECT_TRUE(group()["eta_seconds"].is_null());
}

TEST_F(HistoryTest, AveragesTheRateOverItsWindow) {
  for (int s = 0; s <= 20; s += 2) Add(s, 0, s * 50.0);
  EXPECT_DOUBLE_EQ(group()["rate"].get<double>(), 50);
  for (int s = 22; s <= 40; s += 2) Add(s, 0, 1000);
  EXPECT_DOUBLE_EQ(group()["rate"].get<double>(), 0)
      << "what is older than the window is forgotten";
}

TEST_F(HistoryTest, EstimatesTheTimeToCatchUpFromHowFastTheLagShrinks) {
  for (int s = 0; s <= 10; s += 2) Add(s, 60'000 - s * 3'000, 0);  // 3 s of lag lost per second
  EXPECT_DOUBLE_EQ(group()["eta_seconds"].get<double>(), 10);
}

TEST_F(HistoryTest, PromisesNothingWhileTheLagGrows) {
  for (int s = 0; s <= 10; s += 2) Add(s, 1'000 + s * 1'000, 0);
  EXPECT_TRUE(group()["eta_seconds"].is_null());
}

TEST_F(HistoryTest, KeepsTheConfiguredSpanAndStep) {
  for (int s = 0; s <= 2'000; ++s) Add(s, 0, s);
  const json& at = document_["history"]["at"];
  EXPECT_LE(at.size(), 302U);
  EXPECT_GE(at.size(), 299U);
  EXPECT_EQ(at.back().get<int64_t>(), 1'002'000'000);
  EXPECT_EQ(document_["history"]["groups"]["feed"]["lag_ms"].size(), at.size());
}

TEST_F(HistoryTest, NeverShowsANegativeRateAfterARestartOfTheCounter) {
  for (int s = 0; s <= 10; s += 2) Add(s, 0, 1000);
  Add(12, 0, 3);
  EXPECT_DOUBLE_EQ(group()["rate"].get<double>(), 0);
}

TEST_F(HistoryTest, StartsAnewWhenTheClockIsSetBack) {
  Add(100, 0, 1);
  Add(50, 0, 2);
  EXPECT_EQ(document_["history"]["at"].size(), 1U);
}

}  // namespace
}  // namespace lockstep::web
