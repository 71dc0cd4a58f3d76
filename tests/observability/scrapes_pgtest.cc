// What a scrape costs: no query, and little time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/observability/pair.h"
#include "tests/observability/road.h"

namespace lockstep::observability {
namespace {

class ScrapesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Change(pair_.directory + "/publisher.yaml", pair_.source.UrlAs(kPublisherRole), source_.url());
    Change(pair_.directory + "/runner.yaml", pair_.feed.UrlAs(kRunnerRole), feed_.url());
    pair_.StartPublisher();
    pair_.StartRunner();
  }
  bool Await(const std::function<bool()>& condition, const char* what) {
    return pair_.Await(condition, what);
  }
  int64_t Asked() const { return source_.asked() + feed_.asked(); }

  Pair pair_;
  Road source_{pair_.source.UrlAs(kPublisherRole)};
  Road feed_{pair_.feed.UrlAs(kRunnerRole)};
};

// Counted on the way: the server's own count of transactions has in it what the NOTIFYs of other
// databases wake. While the road is held a session has one query on it, and now and then somebody
// tries a new session; a scrape that asked would add one each, and wait for it.
TEST_F(ScrapesTest, AScrapeAsksNoDatabaseAndWaitsForNone) {
  pair_.Enqueue(1, 1);
  ASSERT_TRUE(Await([&] { return pair_.Version(1) == 1; }, "the first event"));
  source_.Hold();
  feed_.Hold();
  constexpr int kScrapes = 100;
  const int64_t before = Asked();
  for (int i = 0; i < kScrapes; ++i) {
    for (const std::string& url : {pair_.runner_url, pair_.publisher_url}) {
      ASSERT_EQ(Get(url + "/metrics").status, 200);
    }
  }
  EXPECT_GT(before, 0) << "they go this way";
  EXPECT_LT(Asked() - before, kScrapes);
}

double TimeOf(const std::string& url, std::string* body = nullptr) {
  const auto began = std::chrono::steady_clock::now();
  const HttpAnswer answer = Get(url);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  EXPECT_EQ(answer.status, 200) << url;
  if (body != nullptr) *body = answer.body;
  return took.count();
}

void Print(const char* what, std::vector<double> took) {
  std::sort(took.begin(), took.end());
  std::printf("[ SCRAPES ] %s, %zu times: p50 %.1f ms, p99 %.1f ms, longest %.1f ms\n", what,
              took.size(), took[took.size() / 2], took[took.size() * 99 / 100], took.back());
}

// How long a scrape takes while the pair works as fast as it can: printed, for a machine's speed
// proves nothing. /healthz, which does nothing, says how much of it is the machine.
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
  std::vector<double> scrapes, nothing;
  const std::string applied = R"(runner_events_total{group="feed",result="applied"})";
  double done = 0;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(Await(
      [&] {
        std::string body;
        for (const std::string& url : {pair_.publisher_url, pair_.runner_url}) {
          nothing.push_back(TimeOf(url + "/healthz"));
          scrapes.push_back(TimeOf(url + "/metrics", &body));
        }
        const auto samples = ParseMetrics(body);
        if (const auto found = samples.find(applied); found != samples.end()) done = found->second;
        return done >= events;
      },
      "all of them"));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("[ SCRAPES ] while %d events passed in %.1f s\n", events, took.count());
  Print("/metrics", scrapes);
  Print("/healthz", nothing);
}

}  // namespace
}  // namespace lockstep::observability
