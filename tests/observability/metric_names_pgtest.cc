// Metrics, their documentation, the dashboard and the alerts know the same names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/observability/metric_names.h"
#include "tests/observability/pair.h"
#include "tests/observability/scrape.h"

namespace lockstep::observability {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::set<std::string> Without(const std::set<std::string>& all, const std::set<std::string>& some) {
  std::set<std::string> rest;
  std::set_difference(all.begin(), all.end(), some.begin(), some.end(),
                      std::inserter(rest, rest.end()));
  return rest;
}

TEST(MetricNamesTest, NamesAreDocumentedLabelsAreFewAndPromtoolIsContent) {
  Pair pair;
  pair.StartPublisher();
  pair.StartRunner();
  pair.EnqueueRaw(7, 1, "video.events.VideoCreated", R"({"video_id":"no uuid"})",
                  ", tenant_id => 'acme'");
  ASSERT_TRUE(pair.Await(
      [&] {
        return pair.Metric(pair.runner_url, R"(runner_dead_letters_total{group="feed"})") == 1;
      },
      "a dead letter"));
  const std::string of_runner = Get(pair.runner_url + "/metrics").body;
  const std::string of_publisher = Get(pair.publisher_url + "/metrics").body;
  std::set<std::string> exported = Exported(of_runner);
  exported.merge(Exported(of_publisher));
  const std::set<std::string> documented = DocumentedMetrics();
  EXPECT_THAT(Without(exported, documented), IsEmpty()) << "exported, not in docs/metrics.md";
  // Series that only a fault brings forth.
  EXPECT_THAT(Without(documented, exported), ::testing::IsSubsetOf({"outbox_retry_total"}))
      << "in docs/metrics.md, not exported";
  for (const std::string& text : {of_runner, of_publisher}) {
    EXPECT_THAT(text, Not(HasSubstr(Pair::VideoId(7)))) << "a key in a label";
    EXPECT_THAT(text, Not(HasSubstr("acme"))) << "a tenant in a label";
    EXPECT_THAT(Labels(text), ::testing::IsSubsetOf({"table", "topic", "result", "code", "group",
                                                     "stage", "kind", "role", "le"}));
    WriteFile(pair.directory + "/metrics.txt", text);
    const auto promtool = [&](const std::string& filter) {
      return RunProgram(
          {"/bin/sh", "-c", filter + pair.directory + "/metrics.txt | promtool check metrics"},
          pair.directory + "/promtool.log");
    };
    const Ran check = promtool("grep -v offset_lag_ms ");
    if (check.status == 127)
      continue;  // no promtool here; tests/observability/CMakeLists.txt says so
    EXPECT_EQ(check.status, 0) << check.output;
    // The contract's name is what it remarks on, and that alone (docs/metrics.md).
    const std::string remark = promtool("cat ").output;
    EXPECT_TRUE(remark.empty() ||
                remark == "offset_lag_ms metric names should not contain abbreviated units\n")
        << remark;
  }
}

TEST(DashboardTest, EveryQueryAsksForMetricsThatExist) {
  const std::vector<std::string> queries = DashboardQueries();
  EXPECT_GT(queries.size(), 30U);
  for (const std::string& query : queries) EXPECT_THAT(UnknownMetrics(query), IsEmpty()) << query;
}

TEST(AlertsTest, EveryRuleAsksForMetricsThatExistAndHasARunbookEntry) {
  const std::string runbook = ReadFile(LOCKSTEP_SOURCE "/docs/runbook.md");
  const std::vector<AlertRule> rules = AlertRules();
  EXPECT_GE(rules.size(), 12U);
  for (const AlertRule& rule : rules) {
    EXPECT_THAT(UnknownMetrics(rule.expression), IsEmpty()) << rule.name;
    EXPECT_THAT(runbook, HasSubstr("\n## " + rule.name + "\n"));
  }
}

TEST(MetricNamesTest, ANameThatDoesNotExistIsFound) {
  EXPECT_THAT(UnknownMetrics("sum by (group) (rate(runner_lagg_seconds{group=\"a\"}[5m])) > 3"),
              ::testing::ElementsAre("runner_lagg_seconds"));
  EXPECT_THAT(
      UnknownMetrics(
          "histogram_quantile(0.9, sum by (le) (rate(runner_transaction_seconds_bucket[5m])))"),
      IsEmpty());
  EXPECT_THAT(UnknownMetrics("runner_lag_seconds_bucket"), Not(IsEmpty()))
      << "a gauge has no buckets";
}

}  // namespace
}  // namespace lockstep::observability
