#include "publisher/routes/route_dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Answers at once, as it is told.
class Scripted : public Dispatcher {
 public:
  void Dispatch(const std::string&, const std::string&, std::vector<RowPtr> rows,
                Done done) override {
    std::vector<DispatchResult> results;
    for (const RowPtr& row : rows) {
      seen.push_back(row->version);
      const auto bad = faults.find(row->version);
      results.push_back(bad == faults.end()
                            ? DispatchResult{.message_id = prefix + std::to_string(row->version)}
                            : bad->second);
    }
    done(std::move(results));
  }
  std::string prefix;
  std::vector<int64_t> seen;
  std::map<int64_t, DispatchResult> faults;
};

RowPtr RowOf(int64_t version, std::map<std::string, std::string> taken_by = {}) {
  OutboxRow row;
  row.aggregate_id = "k";
  row.version = version;
  row.taken_by = std::move(taken_by);
  return std::make_shared<const OutboxRow>(row);
}

class RouteDispatcherTest : public ::testing::Test {
 protected:
  void Open(const Routes& routes) {
    PublisherConfig config;
    config.topics["t"] = routes;
    config.tables.emplace_back().table = "shop.outbox";
    routes_ = std::make_unique<RouteDispatcher>(config, bus_, metrics_);
    routes_->Add("a", a_);
    routes_->Add("b", b_);
    ASSERT_TRUE(routes_->Open().ok());
  }
  std::vector<DispatchResult> Send(std::vector<RowPtr> rows, const std::string& topic = "t") {
    std::vector<DispatchResult> answer;
    routes_->Dispatch("shop.outbox", topic, std::move(rows),
                      [&](std::vector<DispatchResult> results) { answer = std::move(results); });
    return answer;
  }

  MetricsRegistry metrics_;
  Scripted bus_;
  Scripted a_;
  Scripted b_;
  std::unique_ptr<RouteDispatcher> routes_;
};

TEST_F(RouteDispatcherTest, ARowPassesWhenAllRoutesHaveIt) {
  bus_.prefix = "m";
  Open({"events", "custom:a", "custom:b"});
  const auto results = Send({RowOf(1), RowOf(2)});
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_EQ(results[1].message_id, "m2");
  EXPECT_THAT(bus_.seen, ElementsAre(1, 2));
  EXPECT_THAT(a_.seen, ElementsAre(1, 2));
  EXPECT_THAT(b_.seen, ElementsAre(1, 2));
}

TEST_F(RouteDispatcherTest, ARowThatFailedSaysWhichRoutesHaveIt) {
  Open({"custom:a", "custom:b"});
  b_.faults[2] = {.status = absl::UnavailableError("away")};
  b_.faults[3] = {.status = absl::AbortedError("behind")};
  const auto results = Send({RowOf(1), RowOf(2), RowOf(3)});
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_TRUE(absl::IsUnavailable(results[1].status));
  EXPECT_TRUE(results[1].taken_by.contains("custom:a"));
  EXPECT_FALSE(results[1].taken_by.contains("custom:b"));
  EXPECT_TRUE(absl::IsAborted(results[2].status));
  EXPECT_TRUE(results[2].taken_by.contains("custom:a"));
}

TEST_F(RouteDispatcherTest, ANextTryLeavesOutWhoHasIt) {
  Open({"custom:a", "custom:b"});
  const auto results = Send({RowOf(2, {{"custom:a", "first"}}), RowOf(3)});
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_EQ(results[0].message_id, "first");
  EXPECT_THAT(a_.seen, ElementsAre(3));
  EXPECT_THAT(b_.seen, ElementsAre(2, 3));
}

TEST_F(RouteDispatcherTest, ARouteThatIsGoneHoldsNobodyUp) {
  Open("custom:b");
  EXPECT_TRUE(Send({RowOf(2, {{"custom:a", ""}})})[0].status.ok());
  EXPECT_TRUE(Send({RowOf(3, {{"custom:b", "x"}})})[0].status.ok());
  EXPECT_THAT(b_.seen, ElementsAre(2));
}

TEST_F(RouteDispatcherTest, AnOutageCountsBeforeARefusal) {
  Open({"custom:a", "custom:b"});
  a_.faults[1] = {.status = absl::InvalidArgumentError("no"), .code = "X"};
  b_.faults[1] = {.status = absl::UnavailableError("away"), .retry_after = Millis(5)};
  const auto result = Send({RowOf(1)})[0];
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_EQ(result.retry_after, Millis(5));
  EXPECT_THAT(result.taken_by, IsEmpty());
}

TEST_F(RouteDispatcherTest, SaysWhichRouteIsOutOfReach) {
  Open({"custom:a", "custom:b"});
  b_.faults[1] = {.status = absl::UnavailableError("away")};
  Send({RowOf(1)});
  auto status = routes_->Status("t");
  ASSERT_EQ(status.size(), 2U);
  EXPECT_EQ(status[0].outage, "");
  EXPECT_EQ(status[0].taken, 1);
  EXPECT_EQ(status[1].route, "custom:b");
  EXPECT_EQ(status[1].outage, "away");
  Send({RowOf(2)});
  EXPECT_EQ(routes_->Status("t")[1].outage, "");
  EXPECT_THAT(
      RenderMetrics(metrics_),
      HasSubstr(
          R"(outbox_route_total{result="failure",route="custom:b",table="shop.outbox",topic="t"} 1)"));
}

TEST_F(RouteDispatcherTest, ATopicThatIsNotNamedIsTheBussAffair) {
  Open("custom:a");
  Send({RowOf(1)}, "other");
  EXPECT_THAT(bus_.seen, ElementsAre(1));
}

TEST_F(RouteDispatcherTest, ADispatcherThatNobodyRegisteredIsRefused) {
  PublisherConfig config;
  config.topics["t"] = "custom:nobody";
  RouteDispatcher routes(config, bus_, metrics_);
  const absl::Status opened = routes.Open();
  EXPECT_FALSE(opened.ok());
  EXPECT_THAT(std::string(MessageOf(opened)), HasSubstr("nobody"));
}

}  // namespace
}  // namespace lockstep::publisher
