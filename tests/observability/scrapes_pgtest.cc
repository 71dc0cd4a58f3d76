// What a scrape costs: no query, and little time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/observability/pair.h"

namespace lockstep::observability {
namespace {

class ScrapesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    pair_.StartPublisher();
    pair_.StartRunner();
  }
  bool Await(const std::function<bool()>& condition, const char* what) {
    return pair_.Await(condition, what);
  }

  Pair pair_;
};

TEST_F(ScrapesTest, AScrapeAsksNoDatabase) {
  pair_.Enqueue(1, 1);
  ASSERT_TRUE(Await([&] { return pair_.Version(1) == 1; }, "the first event"));
  // Sessions report what they did a second late: the page's two readers have each been round again.
  const auto read_again = [&] {
    for (const std::string& url : {pair_.runner_url, pair_.publisher_url}) {
      for (int round = 0; round < 2; ++round) {
        const auto before = pair_.Status(url)["database"]["as_of"];
        Await([&] { return pair_.Status(url)["database"]["as_of"] != before; }, "a reading");
      }
    }
  };
  const auto transactions = [&] {
    return pair_.source.QueryInt(fmt::format(
        "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database WHERE datname IN "
        "('{}', '{}')",
        pair_.source.name(), pair_.feed.name()));
  };
  read_again();
  const int64_t before = transactions();
  constexpr int kScrapes = 1'000;
  for (int i = 0; i < kScrapes; ++i) {
    ASSERT_EQ(Get(pair_.runner_url + "/metrics").status, 200);
    ASSERT_EQ(Get(pair_.publisher_url + "/metrics").status, 200);
  }
  read_again();
  EXPECT_LT(transactions() - before, kScrapes) << "two each would be more than twice that";
}

// How long a scrape takes while the pair works: printed, for a machine's speed proves nothing.
TEST_F(ScrapesTest, HowLongAScrapeTakesUnderLoad) {
  const char* wanted = std::getenv("LOCKSTEP_SCRAPE_EVENTS");
  const int events = wanted == nullptr ? 2'000 : std::atoi(wanted);
  pair_.source.Run(fmt::format(
      "SELECT count(lockstep.enqueue('catalog.video_outbox', 'catalog.video.changed.v1', 'video', "
      "'00000000-0000-4000-8000-' || lpad(i::text, 12, '0'), 'video.events.VideoCreated', 1, "
      "convert_to('{{\"video_id\":\"00000000-0000-4000-8000-' || lpad(i::text, 12, '0') || "
      "'\",\"title\":\"a\"}}', 'UTF8'), content_type => 'application/json')) "
      "FROM generate_series(1, {}) i",
      events));
  std::vector<double> took;
  const std::string applied = R"(runner_events_total{group="feed",result="applied"})";
  double done = 0;
  EXPECT_TRUE(Await(
      [&] {
        for (const std::string& url : {pair_.publisher_url, pair_.runner_url}) {
          const auto began = std::chrono::steady_clock::now();
          const auto samples = ParseMetrics(Get(url + "/metrics").body);
          took.push_back(
              std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began)
                  .count());
          if (const auto found = samples.find(applied); found != samples.end())
            done = found->second;
        }
        return done >= events;
      },
      "all of them"));
  std::sort(took.begin(), took.end());
  std::printf("[ SCRAPES ] %zu while %d events passed: p50 %.1f ms, p99 %.1f ms, longest %.1f ms\n",
              took.size(), events, took[took.size() / 2], took[took.size() * 99 / 100],
              took.back());
}

}  // namespace
}  // namespace lockstep::observability
