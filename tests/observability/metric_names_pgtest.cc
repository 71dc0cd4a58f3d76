// Metrics, their documentation, the dashboard and the alerts know the same names.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
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

// What an orchestrator shows that has run a saga, beside the outbox.
std::string OfOrchestrator(Pair& pair) {
  const std::string file = pair.directory + "/saga.yaml";
  WriteFile(file, "saga: seen\nversion: 1\nsteps: [{name: look, action: sql:public.look}]\n");
  pair.source.Run("CREATE FUNCTION public.look(request jsonb) RETURNS jsonb RETURN request");
  const std::vector<std::vector<std::string>> commands = {
      {"migrate", "up", "--set", "saga"},
      {"saga", "register", file},
      {"saga", "start", "seen", "--tenant", "acme", "--key", Pair::VideoId(7)}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.begin(), {"--database", pair.source.url()});
    const Ran ran = pair.Ctl(command);
    EXPECT_EQ(ran.status, 0) << ran.output;
  }
  std::string url;
  const auto orchestrator = pair.Start(
      {"lockstep-orchestrator", "--database", pair.source.url(), "--http.port", "0"}, {}, url);
  EXPECT_TRUE(
      pair.Await([&] { return pair.Metric(url, R"(tx_saga_completed_total{def="seen"})") == 1; },
                 "a saga that is completed"));
  return Get(url + "/metrics").body;
}

TEST(MetricNamesTest, NamesAreDocumentedLabelsAreFewAndPromtoolHasOneRemark) {
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
  const std::string of_orchestrator = OfOrchestrator(pair);
  std::set<std::string> exported = Exported(of_runner);
  exported.merge(Exported(of_orchestrator));
  exported.merge(Exported(of_publisher));
  const std::set<std::string> documented = DocumentedMetrics();
  EXPECT_THAT(Without(exported, documented), IsEmpty()) << "exported, not in docs/metrics.md";
  // Of a group with HTTP handlers, which this one has not.
  exported.insert({"runner_handler_calls_total", "runner_handler_seconds"});
  EXPECT_THAT(Without(documented, exported), IsEmpty()) << "in docs/metrics.md, not exported";
  for (const std::string& text : {of_runner, of_publisher, of_orchestrator}) {
    EXPECT_THAT(text, Not(HasSubstr(Pair::VideoId(7)))) << "a key in a label";
    EXPECT_THAT(text, Not(HasSubstr("acme"))) << "a tenant in a label";
    EXPECT_THAT(Labels(text),
                ::testing::IsSubsetOf({"table", "topic", "result", "code", "group", "stage", "kind",
                                       "class", "role", "route", "le", "def", "step", "state",
                                       // of lockstep_build_info
                                       "version", "commit", "transports"}));
  }
  const auto promtool = [&](const std::string& text) {
    WriteFile(pair.directory + "/metrics.txt", text);
    return RunProgram(
        {"/bin/sh", "-c", "promtool check metrics <" + pair.directory + "/metrics.txt"},
        pair.directory + "/promtool.log");
  };
  const Ran publisher = promtool(of_publisher);
  if (publisher.status == 127) GTEST_SKIP() << "promtool is not installed (Debian: prometheus)";
  EXPECT_EQ(publisher.status, 0) << publisher.output;
  EXPECT_EQ(publisher.output, "");
  EXPECT_EQ(promtool(of_orchestrator).output, "");
  // The contract's name is what it remarks on, and that alone (docs/adr/0008).
  const Ran runner = promtool(of_runner);
  EXPECT_EQ(runner.status, 3) << runner.output;
  EXPECT_THAT(runner.output, ::testing::MatchesRegex("offset_lag_ms [^\n]*abbreviated units\n"));
}

TEST(DashboardTest, EveryQueryAsksForMetricsThatExist) {
  const std::vector<std::string> queries = DashboardQueries();
  EXPECT_GT(queries.size(), 30U);
  for (const std::string& query : queries) {
    EXPECT_THAT(UnknownMetrics(query), IsEmpty()) << query;
    EXPECT_THAT(UnknownLabels(query), IsEmpty()) << query;
  }
}

TEST(DashboardTest, EveryQueryIsPromQl) {
  std::string rules = "groups: [{name: dashboard, rules: [";
  for (std::string query : DashboardQueries()) {
    if (query.starts_with("label_values")) continue;  // Grafana's own
    for (size_t at = 0; (at = query.find("$__rate_interval")) != std::string::npos;)
      query.replace(at, 16, "5m");
    rules += "\n  {record: 'dashboard:query', expr: '" + query + "'},";
  }
  const std::string file = fmt::format("{}dashboard-rules.{}", ::testing::TempDir(), getpid());
  WriteFile(file, rules + "]}]\n");
  const Ran check =
      RunProgram({"/bin/sh", "-c", "promtool check rules --lint=none " + file}, file + ".log");
  for (const char* suffix : {"", ".log"}) std::filesystem::remove(file + suffix);
  if (check.status == 127) GTEST_SKIP() << "promtool is not installed (Debian: prometheus)";
  EXPECT_EQ(check.status, 0) << check.output;
}

TEST(AlertsTest, EveryRuleAsksForMetricsThatExistAndHasARunbookEntry) {
  const std::string runbook = ReadFile(LOCKSTEP_SOURCE "/docs/runbook.md");
  const std::vector<AlertRule> rules = AlertRules();
  EXPECT_GE(rules.size(), 12U);
  for (const AlertRule& rule : rules) {
    EXPECT_THAT(UnknownMetrics(rule.expression), IsEmpty()) << rule.name;
    EXPECT_THAT(UnknownLabels(rule.expression), IsEmpty()) << rule.name;
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
  EXPECT_THAT(UnknownLabels("sum by (group, stage) (runner_lag_seconds{table=\"a\"})"),
              ::testing::UnorderedElementsAre("stage", "table"));
  EXPECT_THAT(UnknownLabels("sum by (group, le) (runner_transaction_seconds_bucket{group=\"a\"})"),
              IsEmpty());
}

}  // namespace
}  // namespace lockstep::observability
