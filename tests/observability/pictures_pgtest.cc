// Five faults, five pictures: each tells itself apart in metrics, health, page and JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/observability/page_look.h"
#include "tests/observability/pair.h"

namespace lockstep::observability {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PicturesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    pair_.StartPublisher();
    pair_.StartRunner();
    for (int video = 1; video <= 20; ++video) pair_.Enqueue(video, 1);
    Await([this] { return pair_.Version(1) == 1 && pair_.Version(20) == 1; }, "the first events");
    Await([this] { return Group().value("/counters/applied"_json_pointer, 0) == 20; }, "the page");
  }
  bool Await(const std::function<bool()>& condition, const char* what) {
    return pair_.Await(condition, what);
  }
  nlohmann::json Group() { return pair_.Group(); }
  std::string Ready() { return Get(pair_.runner_url + "/readyz").body; }
  int ReadyStatus() { return Get(pair_.runner_url + "/readyz").status; }
  std::vector<std::string> Attention() { return pair_.Attention(pair_.runner_url); }
  double RunnerMetric(const std::string& sample) { return pair_.Metric(pair_.runner_url, sample); }
  double Lag() { return RunnerMetric(R"(runner_lag_seconds{group="feed"})"); }

  // The commands of the page, typed.
  void TypeCommands() {
    const auto status = pair_.Status(pair_.runner_url);
    int typed = 0;
    for (const auto& note : status["attention"]) {
      for (const auto& step : note["commands"]) {
        const std::string command = step["command"];
        const Ran ran = pair_.Type(command);
        EXPECT_EQ(ran.status, 0) << command << "\n" << ran.output;
        ++typed;
      }
    }
    EXPECT_GE(typed, 1);
  }

  Pair pair_;
};

TEST_F(PicturesTest, AQuietTopicIsCaughtUpAndReady) {
  Await([&] { return Group()["state"] == "quiet"; }, "quiet");
  EXPECT_EQ(Group()["lag_ms"], 0);
  EXPECT_THAT(Attention(), IsEmpty());
  EXPECT_EQ(ReadyStatus(), 200) << Ready();
  EXPECT_EQ(Lag(), 0);
  EXPECT_LT(RunnerMetric(R"(runner_heartbeat_age_seconds{group="feed"})"), 30);
  EXPECT_GE(RunnerMetric(R"(runner_heartbeat_age_seconds{group="feed"})"), 0);
  EXPECT_EQ(RunnerMetric(R"(lockstep_ready{role="runner"})"), 1);
  const auto lag = pair_.Lag();
  EXPECT_EQ(lag["state"], "idle") << lag;
  EXPECT_EQ(lag["lag_ms"], 0) << lag;
  EXPECT_EQ(lag["parked_keys"], 0) << lag;
  LookAtPage(
      pair_.runner_url, "quiet",
      {"Nothing. Everything that arrives is being worked on.", "20 events applied", "quiet"});
}

TEST_F(PicturesTest, AStuckLaneIsNamedWhileTheOthersGoOn) {
  const auto blocker = pair_.feed.Connect();
  auto held = blocker->Begin();
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(held->Execute("SELECT 1 FROM catalog_read.video_projection WHERE video_id = '" +
                            Pair::VideoId(1) + "' FOR UPDATE")
                  .ok());
  pair_.Enqueue(1, 2, "held up");
  Await([&] { return Attention().size() == 1; }, "a note");
  EXPECT_THAT(Attention(),
              ElementsAre(::testing::MatchesRegex("Lane [0-3] of group feed is stuck")));
  EXPECT_EQ(Group()["state"], "stuck");
  EXPECT_EQ(ReadyStatus(), 503);
  EXPECT_THAT(Ready(), HasSubstr("in hand and has committed nothing"));
  EXPECT_GT(Lag(), 2);
  EXPECT_GE(RunnerMetric(R"(runner_in_hand_events{group="feed"})"), 1)
      << "a heartbeat may wait too";
  Await([&] { return RunnerMetric(R"(lockstep_ready{role="runner"})") == 0; }, "lockstep_ready 0");
  // Videos of the other lanes are not held up.
  for (int video = 2; video <= 20; ++video) pair_.Enqueue(video, 2);
  Await(
      [&] {
        int through = 0;
        for (int video = 2; video <= 20; ++video) through += pair_.Version(video) == 2 ? 1 : 0;
        return through >= 5;
      },
      "the other lanes");
  const auto lag = pair_.Lag();
  EXPECT_EQ(lag["state"], "stuck") << lag;
  EXPECT_GT(lag["lag_ms"], 2'000) << lag;
  EXPECT_GE(lag["queued"], 1) << lag;
  TypeCommands();
  LookAtPage(pair_.runner_url, "stuck-lane", {"is stuck", "Not ready", "pg_blocking_pids"});
  ASSERT_TRUE(held->Rollback().ok());
  Await([&] { return ReadyStatus() == 200 && pair_.Version(1) == 2; }, "going on");
  Await([&] { return Attention().empty() && Lag() == 0; }, "a clean page");
}

TEST_F(PicturesTest, ADeadDatabaseIsToldAndOutlived) {
  const auto admin = pair_.source.Connect();
  const std::string name = pair_.feed.name();
  // Nobody gets in, and who was in is thrown out: to the runner it is dead.
  ASSERT_TRUE(admin->Execute("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false").ok());
  ASSERT_TRUE(
      admin
          ->Execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" +
                    name + "'")
          .ok());
  pair_.Enqueue(1, 2);
  Await([&] { return ReadyStatus() == 503; }, "not ready");
  Await([&] { return Ready().find("the database has not answered for") != std::string::npos; },
        "the reason");
  Await([&] { return !Attention().empty(); }, "a note");
  EXPECT_THAT(Attention(), ElementsAre("The database is out of reach"));
  EXPECT_EQ(Get(pair_.runner_url + "/healthz").status, 200) << "a restart would not help";
  Await([&] { return Lag() > 1; }, "lag");
  const Ran lag = pair_.Ctl({"--config", pair_.directory + "/runner.yaml", "lag"});
  EXPECT_NE(lag.status, 0);
  EXPECT_THAT(lag.output, HasSubstr("not currently accepting connections"));
  LookAtPage(pair_.runner_url, "dead-database", {"The database is out of reach", "Not ready"});
  const auto notes = pair_.Status(pair_.runner_url)["attention"];
  ASSERT_TRUE(admin->Execute("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true").ok());
  EXPECT_EQ(pair_.Type(notes[0]["commands"][0]["command"]).status, 0)
      << "the page's way to see that it is back";
  Await([&] { return ReadyStatus() == 200 && Attention().empty(); }, "going on");
}

TEST_F(PicturesTest, APoisonKeyIsNamedWithItsReasonAndWhatToType) {
  pair_.EnqueueRaw(7, 2, "video.events.VideoUpdated", R"({"video_id":"no uuid SECRET-PAYLOAD"})");
  pair_.Enqueue(7, 3);
  pair_.Enqueue(7, 4);
  pair_.Enqueue(8, 2);
  Await([&] { return Group().value("parked_events", 0) == 2; }, "parking");
  EXPECT_EQ(pair_.Version(7), 1);
  Await([&] { return pair_.Version(8) == 2; }, "the other keys");
  const auto group = Group();
  EXPECT_EQ(group["parked_keys"][0]["key"], "video/" + Pair::VideoId(7));
  EXPECT_EQ(group["parked_keys"][0]["waits_for"], 2);
  EXPECT_EQ(group["dead_letters_open"], 1);
  EXPECT_EQ(group["dead_causes"][0]["code"], group["dead_letters"][0]["code"]);
  EXPECT_EQ(group["dead_causes"][0]["count"], 1);
  EXPECT_EQ(group["instances"][0]["address"], pair_.runner_url);
  EXPECT_EQ(group["topic"], "projects/demo/topics/catalog.events");
  EXPECT_THAT(Attention(),
              ElementsAre("Key video/" + Pair::VideoId(7) + " of group feed is parked"));
  EXPECT_EQ(ReadyStatus(), 200) << "one key does not make a runner unready";
  EXPECT_EQ(RunnerMetric(R"(runner_parked_keys{group="feed"})"), 1);
  EXPECT_EQ(RunnerMetric(R"(runner_parked_events{group="feed"})"), 2);
  EXPECT_EQ(RunnerMetric(R"(runner_dead_letters_open{group="feed"})"), 1);
  EXPECT_EQ(RunnerMetric(R"(runner_dead_letters_total{group="feed"})"), 1);
  Await([&] { return Lag() == 0; }, "no lag: the rest is caught up");
  const std::string letters = Get(pair_.runner_url + "/api/dead-letters?group=feed").body;
  EXPECT_THAT(letters, HasSubstr(Pair::VideoId(7)));
  EXPECT_EQ(letters.find("SECRET-PAYLOAD"), std::string::npos);
  EXPECT_EQ(Get(pair_.runner_url + "/api/status").body.find("SECRET-PAYLOAD"), std::string::npos);
  EXPECT_EQ(pair_.runner->output().find("SECRET-PAYLOAD"), std::string::npos);
  const auto lag = pair_.Lag();
  EXPECT_EQ(lag["state"], "idle") << lag;
  EXPECT_EQ(lag["parked_keys"], 1) << lag;
  EXPECT_EQ(lag["dead_letters"], 1) << lag;
  LookAtPage(pair_.runner_url, "poison-key",
             {"Key video/" + Pair::VideoId(7) + " of group feed is parked", "What to type next",
              "dead-letters replay 1"});
}

TEST_F(PicturesTest, AStoppedPublisherIsHeardByItsSilence) {
  Await([&] { return RunnerMetric(R"(runner_heartbeat_age_seconds{group="feed"})") >= 0; },
        "a heartbeat");
  pair_.StopPublisher();
  Await([&] { return !Attention().empty(); }, "a note");
  EXPECT_THAT(Attention(), ElementsAre("Group feed hears no heartbeat"));
  EXPECT_EQ(ReadyStatus(), 200) << "the runner itself is well";
  Await([&] { return Lag() > 3; }, "lag");
  Await([&] { return RunnerMetric(R"(runner_heartbeat_age_seconds{group="feed"})") > 3; },
        "an old heartbeat");
  EXPECT_EQ(RunnerMetric(R"(runner_in_hand_events{group="feed"})"), 0);
  EXPECT_EQ(Group()["state"], "no heartbeat");
  const auto lag = pair_.Lag();
  EXPECT_EQ(lag["state"], "no heartbeat") << lag;
  EXPECT_GT(lag["lag_ms"], 3'000) << lag;
  TypeCommands();
  LookAtPage(pair_.runner_url, "stopped-publisher", {"hears no heartbeat"});
  pair_.StartPublisher();
  Await([&] { return Attention().empty() && Lag() == 0; }, "going on");
}

}  // namespace
}  // namespace lockstep::observability
