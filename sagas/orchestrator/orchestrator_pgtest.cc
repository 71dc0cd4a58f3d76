// A whole orchestrator in this process: what it counts, shows, cleans, follows; and what it costs
// at rest.
#include <algorithm>

#include "platform/daemon/http_server.h"
#include "sagas/orchestrator/orchestrator.h"
#include "sagas/orchestrator/saga_watch.h"
#include "sagas/orchestrator/status_reporter.h"
#include "sagas/testing/engine_test.h"
#include "tests/support/http_get.h"
#include "tests/support/service_stress.h"
#include "tests/support/statement_log.h"

namespace lockstep::sagas {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the fixture's words
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class OrchestratorTest : public EngineTest {
 protected:
  OrchestratorOptions Config() {
    OrchestratorOptions options;
    options.engine = Options();
    options.instance = "o";
    options.backlog_interval = Millis(50);
    options.retention.interval = Millis(50);
    return options;
  }
  SagaOrchestrator& Begin(const OrchestratorOptions& options) {
    running_ = std::make_unique<SagaOrchestrator>(options, metrics_);
    const absl::Status started = running_->Start();
    EXPECT_TRUE(started.ok()) << started;
    return *running_;
  }
  double Metric(const std::string& line) {
    const std::string text = RenderMetrics(metrics_);
    const size_t at = text.find("\n" + line + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size() + 2));
  }
  MetricsRegistry metrics_;
  std::unique_ptr<SagaOrchestrator> running_;
};

TEST_F(OrchestratorTest, CountsWhatBecomesOfSagas) {
  RegisterSteps(SqlStep("reserve") + "," + SqlStep("ship"));
  Begin(Config());
  ASSERT_TRUE(Becomes(Start(), SagaState::kCompleted));
  ASSERT_TRUE(Becomes(Start({{"ship", "refuse"}}), SagaState::kFailed));
  const std::string dead = Start({{"ship", "refuse"}, {"unreserve", "refuse"}});
  ASSERT_TRUE(Becomes(dead, SagaState::kFailed));
  EXPECT_EQ(Metric(R"(tx_saga_started_total{def="order"})"), 3);
  EXPECT_EQ(Metric(R"(tx_saga_completed_total{def="order"})"), 1);
  EXPECT_EQ(Metric(R"(tx_saga_failed_total{def="order"})"), 2);
  EXPECT_EQ(Metric(R"(tx_saga_compensate_total{def="order"})"), 2);
  EXPECT_EQ(Metric(R"(tx_saga_step_latency_seconds_count{def="order",step="ship"})"), 3);
  EXPECT_TRUE(Eventually([&] { return Metric(R"(tx_saga_dead{def="order"})") == 1; }));
  ASSERT_TRUE(ReplaySaga(*connection_, By(dead), ReplayInto::kCompensation).ok());
  EXPECT_TRUE(Eventually([&] { return Metric(R"(tx_replay_total{kind="saga"})") == 1; }));
  EXPECT_THAT(RenderMetrics(metrics_), Not(HasSubstr("tenant")));
}

TEST_F(OrchestratorTest, IsNotReadyWhileAStepCannotBeRun) {
  RegisterSteps(
      R"({"name": "reserve", "action": "sql:shop.missing", "retry": {"cap": "20ms", "base": "10ms"}})");
  SagaOrchestrator& orchestrator = Begin(Config());
  EXPECT_THAT(orchestrator.NotReady(), IsEmpty());
  const std::string id = Start({{"what", "late"}});
  ASSERT_TRUE(Eventually([&] { return !orchestrator.NotReady().empty(); }));
  EXPECT_THAT(orchestrator.NotReady(),
              ElementsAre(HasSubstr("step reserve of order can't be run")));
  db_.Run("ALTER FUNCTION shop.note RENAME TO missing");
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  // It is told of after it is saved.
  EXPECT_TRUE(Eventually([&] { return orchestrator.NotReady().empty(); }));
}

TEST_F(OrchestratorTest, RefusesADatabaseWithoutSagas) {
  const TestDatabase empty;
  OrchestratorOptions options = Config();
  options.engine.database = empty.url();
  const absl::Status started = SagaOrchestrator(options, metrics_).Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(started));
  EXPECT_THAT(std::string(started.message()), HasSubstr("lockstepctl migrate up --set saga"));
}

TEST_F(OrchestratorTest, DeletesWhatEndedLongAgoAndFollowsItsConfiguration) {
  RegisterSteps(SqlStep("reserve"));
  OrchestratorOptions options = Config();
  SagaOrchestrator& orchestrator = Begin(options);
  const std::string id = Start();
  ASSERT_TRUE(Becomes(id, SagaState::kCompleted));
  options.retention.retention = Millis(1);
  orchestrator.Reload(options);
  EXPECT_TRUE(Eventually([&] { return db_.QueryInt("SELECT count(*) FROM lockstep.sagas") == 0; }));
}

TEST_F(OrchestratorTest, FollowsItsLimits) {
  RegisterSteps(HttpStep("pay", true, R"(, "concurrency_tag": "pay")"));
  OrchestratorOptions options = Config();
  options.engine.limits.definitions["order"] = 1;
  SagaOrchestrator& orchestrator = Begin(options);
  Tell("pay", {HttpTestServer::kHang});
  const std::string first = Start();
  ASSERT_TRUE(Eventually([&] { return Asked() == "pay"; }));
  const std::string second = Start();
  ASSERT_TRUE(Eventually([&] { return orchestrator.in_hand() == 1; }));
  EXPECT_EQ(StepOf(second, "pay").state, StepState::kReady);
  options.engine.limits.definitions["order"] = 2;
  orchestrator.Reload(options);
  EXPECT_TRUE(Becomes(second, SagaState::kCompleted));
}

TEST_F(OrchestratorTest, ShowsSagasAndTheirSteps) {
  RegisterSteps(SqlStep("reserve") + "," + WaitStep("approve"));
  SagaOrchestrator& orchestrator = Begin(Config());
  HttpServer http({});
  StatusReporter reporter(orchestrator, {}, metrics_, http);
  ASSERT_TRUE(reporter.Start().ok());
  ASSERT_TRUE(ServePages(
                  http, [](const HttpRequest&) { return HttpResponse{}; }, metrics_, "/metrics")
                  .ok());
  const std::string id = Start({{"secret", "s3cr3t"}});
  ASSERT_TRUE(StepBecomes(id, "approve", StepState::kInFlight));
  const auto get = [&](const std::string& path) {
    return lockstep::testing::HttpGet(http.url() + path);  // "200 body"
  };
  const std::string list = get("/api/sagas");
  EXPECT_THAT(list, StartsWith("200 "));
  EXPECT_EQ(Json::parse(list.substr(4))["sagas"][0]["id"], id);
  const std::string one = get("/api/sagas?id=" + id);
  EXPECT_THAT(one, StartsWith("200 "));
  const Json saga = Json::parse(one.substr(4));
  EXPECT_EQ(saga["steps"][1]["state"], "InFlight");
  EXPECT_TRUE(saga["steps"][0]["completed_at"].is_string());
  EXPECT_FALSE(saga["audit"].empty());
  EXPECT_THAT(list + one, Not(HasSubstr("s3cr3t")));
  EXPECT_THAT(get("/api/sagas?id=nothing"), StartsWith("400 "));
  EXPECT_THAT(get("/api/sagas?state=Nothing"), StartsWith("400 "));
  EXPECT_THAT(get("/api/sagas?id=00000000-0000-0000-0000-000000000000"), StartsWith("404 "));
  EXPECT_THAT(get("/healthz"), StartsWith("200 "));
  http.Stop();
}

TEST_F(OrchestratorTest, ThePageTellsOfSagasThatWaitForAPersonAndHowToHelpThem) {
  RegisterSteps(SqlStep("reserve") + "," + SqlStep("ship") + "," + WaitStep("approve"));
  OrchestratorOptions options = Config();
  options.backlog_interval = Millis(60'000);  // somebody looks: it is counted sooner
  SagaOrchestrator& orchestrator = Begin(options);
  HttpServer http({});
  StatusReporter reporter(orchestrator, {}, metrics_, http);
  ASSERT_TRUE(reporter.Start().ok());
  ASSERT_TRUE(http.Start().ok());
  const auto get = [&](const std::string& path) {
    return lockstep::testing::HttpGet(http.url() + path);
  };
  const auto document = [&] {
    const std::string answer = get("/api/status");
    return answer.starts_with("200 ") ? Json::parse(answer.substr(4)) : Json::object();
  };
  EXPECT_THAT(get("/"), HasSubstr("status.js"));
  const std::string dead = Start({{"ship", "refuse"}, {"unreserve", "refuse"}, {"x", "s3cr3t"}});
  ASSERT_TRUE(Becomes(dead, SagaState::kFailed));
  const std::string paused = Start();
  ASSERT_TRUE(StepBecomes(paused, "approve", StepState::kInFlight));
  ASSERT_TRUE(PauseSaga(*connection_, By(paused)).ok());
  Start();
  Json told;
  ASSERT_TRUE(Eventually([&] {
    told = document();
    return told["waiting"].size() == 2 && told["sagas"][0]["running"] == 1;
  })) << told.dump(2);
  EXPECT_EQ(told["waiting"][1]["id"], paused);
  EXPECT_EQ(told["waiting"][1]["dead"], false);
  EXPECT_EQ(told["waiting"][0]["id"], dead);
  EXPECT_EQ(told["waiting"][0]["dead"], true);
  EXPECT_EQ(told["waiting"][0]["failed_step"], "reserve");
  EXPECT_EQ(told["sagas"][0]["dead"], 1);
  EXPECT_EQ(told["sagas"][0]["since_start"]["failed"], 1);
  EXPECT_EQ(told["database"]["reachable"], true);
  EXPECT_THAT(told["attention"].dump(), HasSubstr("saga resume '" + paused));
  EXPECT_THAT(told["attention"].dump(), HasSubstr("saga dead replay '" + dead));
  EXPECT_THAT(told.dump(), Not(HasSubstr("s3cr3t")));
  // Once it is left for good, nobody has to be told.
  ASSERT_TRUE(QuarantineSaga(*connection_, By(dead)).ok());
  EXPECT_TRUE(Eventually([&] { return document()["waiting"].size() == 1; }));
  http.Stop();
}

// Its own statements and nobody else's: what it asks at rest, how long it waits between two of a
// kind at least (no load makes that less), and so what that is by the defaults.
TEST_F(OrchestratorTest, AtRestItAsksLessThanOnceASecond) {
  RegisterSteps(WaitStep("approve"));
  const OrchestratorOptions defaults;
  lockstep::testing::StatementLog road(db_.url());
  OrchestratorOptions options;
  options.engine.database = road.url();
  options.engine.poll_floor = Millis(50);
  options.engine.poll_interval = Millis(70);
  options.backlog_interval = Millis(200);
  options.retention.interval = Millis(150);
  Begin(options);
  const std::string id = Start();
  ASSERT_TRUE(StepBecomes(id, "approve", StepState::kInFlight));
  struct Kind {
    std::string word;
    Millis apart;  // of two, at least
    std::vector<SteadyTime> seen;
  };
  std::vector<Kind> kinds;
  std::string others;
  // From when it has given the saga back and taken the lock under which it is woken.
  const auto read = [&] {
    kinds = {{"saga_claim", options.engine.poll_floor, {}},
             {"AS definition", options.backlog_interval, {}},
             {"numbackends", options.backlog_interval, {}},
             {"saga_clean", options.retention.interval, {}}};
    others.clear();
    const auto all = road.asked();
    const auto last = std::ranges::find_if(all.rbegin(), all.rend(), [](const auto& asked) {
      return asked.what == "saga_release" || asked.what == "saga_wake_lock";
    });
    for (auto asked = last.base(); asked != all.end(); ++asked) {
      const auto kind = std::ranges::find_if(
          kinds, [&](const Kind& of) { return asked->what.find(of.word) != std::string::npos; });
      kind != kinds.end() ? kind->seen.push_back(asked->at) : void(others += asked->what + "\n");
    }
    return std::ranges::all_of(kinds, [](const Kind& of) { return of.seen.size() >= 3; });
  };
  ASSERT_TRUE(Eventually(read)) << others;
  EXPECT_EQ(others, "");
  for (const Kind& kind : kinds) {
    for (size_t i = 2; i < kind.seen.size(); ++i) {  // the lock's taker looks once more at once
      EXPECT_GE(kind.seen[i] - kind.seen[i - 1], kind.apart) << kind.word;
    }
  }
  running_.reset();  // before the road
  const auto a_second = [](Millis every) { return 1'000.0 / static_cast<double>(every.count()); };
  EXPECT_LT(a_second((defaults.engine.poll_floor + defaults.engine.poll_interval) / 2) +
                2 * a_second(defaults.backlog_interval) + a_second(defaults.retention.interval),
            1.0);
}

TEST_F(OrchestratorTest, ASleeperIsWokenByAStart) {
  RegisterSteps(SqlStep("reserve"));
  OrchestratorOptions options = Config();
  options.engine.poll_floor = options.engine.poll_interval = Millis(60'000);
  Begin(options);
  ASSERT_TRUE(Eventually([&] {
    return db_.QueryInt(
               "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = "
               "'ExclusiveLock'") > 0;
  }));
  EXPECT_TRUE(Becomes(Start(), SagaState::kCompleted));
  EXPECT_TRUE(Becomes(Start(), SagaState::kCompleted)) << "and again";
}

TEST_F(OrchestratorTest, IsAServiceLikeAnyOther) {
  lockstep::testing::StressService(
      [&] {
        OrchestratorOptions options = Config();
        options.engine.drain = Millis(100);
        return std::make_unique<SagaOrchestrator>(options, metrics_);
      },
      nullptr, 2);
}

}  // namespace
}  // namespace lockstep::sagas
