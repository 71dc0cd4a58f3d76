// What stands in the logs of a running pair, and what never does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include "tests/observability/pair.h"

namespace lockstep::observability {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kTenant[] = "tenant-of-ours";
constexpr char kPayload[] = "PAYLOAD-OF-OURS";
constexpr char kPassword[] = "PASSWORD-OF-OURS";

std::vector<std::string> LinesWith(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(part) != std::string::npos) found.push_back(line);
  }
  return found;
}

class LogsTest : public ::testing::Test {
 protected:
  LogsTest() {
    // Postgres takes local sessions without asking; the password is one all the same.
    for (const auto& [file, url] : {std::pair(Runner(), pair_.feed.UrlAs(kRunnerRole)),
                                    std::pair(Publisher(), pair_.source.UrlAs(kPublisherRole))}) {
      Change(file, "database: " + url, "database: \"" + WithPassword(url) + "\"");
    }
    Change(Publisher(), "pubsub:", "log: {level: debug}\nmask_keys: true\npubsub:");
  }
  std::string Runner() const { return pair_.directory + "/runner.yaml"; }
  std::string Publisher() const { return pair_.directory + "/publisher.yaml"; }
  static std::string WithPassword(const std::string& url) {
    return url + (url.find('?') == std::string::npos ? "?" : "&") + "password=" + kPassword;
  }
  std::string More() const {
    return std::string(", tenant_id => '") + kTenant + "', traceparent => '00-" + kTrace +
           "-00f067aa0ba902b7-01'";
  }
  // Everything that may be read of the processes so far.
  std::vector<std::string> Everything() {
    std::vector<std::string> texts = {pair_.publisher->output(), pair_.runner->output()};
    for (const std::string& url : {pair_.publisher_url, pair_.runner_url}) {
      for (const char* path : {"/", "/metrics", "/readyz", "/api/status", "/api/lag",
                               "/api/offsets", "/api/offsets/export", "/api/dead-letters"}) {
        texts.push_back(Get(url + path).body);
      }
    }
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"--config", Runner(), "dead-letters", "list"},
                                               {"--config", Runner(), "dead-letters", "show", "1"},
                                               {"--config", Runner(), "lag", "--json"},
                                               {"--config", Runner(), "offsets", "show"},
                                               {"--database", WithPassword(pair_.source.url()),
                                                "outbox", "list", kTable, "--state", "dead"},
                                               {"--database", WithPassword(pair_.source.url()),
                                                "outbox", "list", kTable, "--state", "pending"}}) {
      const Ran ran = pair_.Ctl(command);
      EXPECT_EQ(ran.status, 0) << ran.output;
      texts.push_back(ran.output);
    }
    // Nor in what it says when it can't get in.
    const std::string nobody = std::string("postgresql://me:") + kPassword + "@127.0.0.1:1/x";
    const Ran refused = pair_.Ctl({"--database", nobody, "outbox", "list"});
    EXPECT_NE(refused.status, 0);
    texts.push_back(refused.output);
    return texts;
  }

  Pair pair_;
};

TEST_F(LogsTest, LinesNameTheirEventAndNeverAPayloadOrASecret) {
  pair_.StartPublisher();
  pair_.StartRunner();
  EXPECT_THAT(pair_.runner->output(), Not(HasSubstr("level=debug")));
  pair_.runner->Signal(SIGUSR1);
  ASSERT_TRUE(pair_.Await(
      [&] { return !LinesWith(pair_.runner->output(), "log level changed by signal").empty(); },
      "the signal"));

  pair_.EnqueueRaw(1, 1, "video.events.VideoCreated",
                   "{\"video_id\":\"" + Pair::VideoId(1) + "\",\"title\":\"" + kPayload + "\"}",
                   More());
  pair_.EnqueueRaw(2, 1, "video.events.VideoCreated",
                   std::string("{\"video_id\":\"no uuid ") + kPayload + "\"}", More());
  // One that Pub/Sub will not take: somebody has given it too many attributes.
  const auto session = pair_.source.Connect();
  auto held = session->Begin();
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(held->Execute("SELECT lockstep.enqueue('catalog.video_outbox', "
                            "'catalog.video.changed.v1', 'video', 'x', 't', 1, '" +
                            std::string(kPayload) + "'" + More() + ")")
                  .ok());
  ASSERT_TRUE(held->Execute("UPDATE catalog.video_outbox SET attributes = (SELECT "
                            "jsonb_object_agg('a' || i, 'b') FROM generate_series(1, 101) i) "
                            "WHERE aggregate_id = 'x'")
                  .ok());
  ASSERT_TRUE(held->Commit().ok());

  const auto both = [&](Process& process, const char* part, size_t lines) {
    return pair_.Await([&] { return LinesWith(process.output(), part).size() >= lines; }, part);
  };
  ASSERT_TRUE(both(*pair_.publisher, "msg=published", 2));
  ASSERT_TRUE(both(*pair_.publisher, "msg=\"the row is dead\"", 1));
  ASSERT_TRUE(both(*pair_.runner, "msg=committed", 1));
  ASSERT_TRUE(both(*pair_.runner, "msg=\"dead letter\"", 1));

  for (const char* message : {"msg=published", "msg=\"the row is dead\""}) {
    for (const std::string& line : LinesWith(pair_.publisher->output(), message)) {
      EXPECT_THAT(line,
                  ContainsRegex("table=catalog.video_outbox topic=catalog.video.changed.v1 "
                                "event_id=[0-9a-f-]{36} (message_id=[^ ]+ )?ordering_key=\\*\\*\\* "
                                "tenant_id=\\*\\*\\* sequence=[0-9]+ "
                                "attempts=[01] trace_id=" +
                                std::string(kTrace)));
    }
  }
  for (const std::string& line : LinesWith(pair_.publisher->output(), "msg=published")) {
    EXPECT_THAT(line, HasSubstr(" message_id="));
  }
  for (const char* message : {"msg=committed", "msg=\"dead letter\""}) {
    for (const std::string& line : LinesWith(pair_.runner->output(), message)) {
      EXPECT_THAT(line, ContainsRegex("group=feed message_id=[^ ]+ event_id=[0-9a-f-]{36} "
                                      "ordering_key=[0-9a-f-]{36} trace_id=" +
                                      std::string(kTrace)));
    }
  }
  EXPECT_THAT(LinesWith(pair_.runner->output(), "msg=\"offset saved\"").front(),
              ContainsRegex("group=feed message_id=[^ ]+ lag_ms=[0-9]+ updated_by=[^ ]+"));
  // The database refused the poison alone: that line can name it.
  const auto failed = LinesWith(pair_.runner->output(), "msg=\"a transaction failed\"");
  ASSERT_THAT(failed, Not(SizeIs(0)));
  EXPECT_THAT(failed.back(), ContainsRegex("group=feed lane=[0-9] messages=1 message_id=[^ ]+ "
                                           "event_id=[0-9a-f-]{36} ordering_key=[0-9a-f-]{36} "
                                           "trace_id=" +
                                           std::string(kTrace)));
  pair_.Await([&] { return pair_.Group().value("dead_letters_open", 0) == 1; }, "the page");
  for (const std::string& text : Everything()) {
    EXPECT_THAT(text, Not(HasSubstr(kPayload)));
    EXPECT_THAT(text, Not(HasSubstr(kPassword)));
  }
  EXPECT_THAT(pair_.publisher->output(), Not(HasSubstr(kTenant))) << "mask_keys";
  EXPECT_THAT(pair_.runner->output(), Not(HasSubstr(kTenant)));
  // It is there when asked for, and only then.
  EXPECT_THAT(pair_.Ctl({"--config", Runner(), "dead-letters", "show", "1", "--payload"}).output,
              HasSubstr(kPayload));
}

// One switch for both daemons: nothing that they say or serve tells whose events these are. Why a
// group halts, and what to do, is said all the same.
TEST_F(LogsTest, MaskedKeysAreNowhere) {
  Change(Runner(), "pubsub:", "mask_keys: true\nlog: {level: debug}\npubsub:");
  Change(Runner(), "max_attempts: 1", "max_attempts: 1\n    dead_letter_budget: 1");
  pair_.StartPublisher();
  pair_.StartRunner();
  pair_.EnqueueRaw(2, 1, "video.events.VideoCreated", R"({"video_id":"no uuid"})", More());
  ASSERT_TRUE(pair_.Await([&] { return pair_.Group().value("dead_letters_open", 0) == 1; },
                          "a dead letter"));
  EXPECT_THAT(LinesWith(pair_.runner->output(), "msg=\"dead letter\"").front(),
              HasSubstr("ordering_key=***"));
  for (int video = 3; video <= 5; ++video) {
    pair_.EnqueueRaw(video, 1, "video.events.VideoCreated", R"({"video_id":"no uuid"})", More());
  }
  ASSERT_TRUE(pair_.Await(
      [&] { return !LinesWith(pair_.runner->output(), "the group has halted").empty(); },
      "the halt"));
  EXPECT_THAT(LinesWith(pair_.runner->output(), "the group has halted").front(),
              HasSubstr("group=feed cause=\"more than 1 dead letters"));
  std::vector<std::string> texts = {pair_.publisher->output(), pair_.runner->output()};
  for (const std::string& url : {pair_.publisher_url, pair_.runner_url}) {
    for (const char* path : {"/metrics", "/readyz", "/api/status", "/api/dead-letters"}) {
      texts.push_back(Get(url + path).body);
    }
  }
  for (const std::string& text : texts) {
    for (int video = 2; video <= 5; ++video) {
      EXPECT_THAT(text, Not(HasSubstr(Pair::VideoId(video))));
    }
    EXPECT_THAT(text, Not(HasSubstr(kTenant)));
  }
}

TEST_F(LogsTest, AFloodOfDeadLettersIsCountedNotRepeated) {
  pair_.StartPublisher();
  pair_.StartRunner();
  constexpr int kFlood = 40;
  for (int video = 1; video <= kFlood; ++video) {
    pair_.EnqueueRaw(video, 1, "video.events.VideoCreated", R"({"video_id":"no uuid"})");
  }
  const std::string dead = R"(runner_dead_letters_total{group="feed"})";
  ASSERT_TRUE(pair_.Await([&] { return pair_.Metric(pair_.runner_url, dead) == kFlood; }, "them"));
  pair_.runner->Signal(SIGTERM);
  EXPECT_EQ(pair_.runner->Wait(), 0) << pair_.runner->output();
  int told = 0;
  for (const std::string& line : LinesWith(pair_.runner->output(), "msg=\"dead letter … repeated"))
    told += std::stoi(line.substr(line.find("repeats=") + 8));
  const size_t written = LinesWith(pair_.runner->output(), "msg=\"dead letter\"").size();
  EXPECT_LT(written, kFlood) << pair_.runner->output();
  EXPECT_EQ(written + told, kFlood) << "each is written or counted";
}

// Eight lanes that lose their database, ten rows of a topic that is not there: a line each, and a
// count.
TEST_F(LogsTest, AFaultIsOneLineWithACountAndNoFieldIsEmpty) {
  pair_.StartPublisher();
  pair_.StartRunner();
  for (int video = 1; video <= 20; ++video) pair_.Enqueue(video, 1);
  ASSERT_TRUE(pair_.Await([&] { return pair_.Version(20) == 1; }, "the first events"));
  pair_.source.Run(
      "SELECT lockstep.enqueue('catalog.video_outbox', 'no.such.topic.v1', 'video', 'x' || i, 't', "
      "1, '{}'::jsonb) FROM generate_series(1, 10) i");
  const char* const kAway = "msg=\"the topic is out of reach; it is tried again\"";
  ASSERT_TRUE(pair_.Await([&] { return !LinesWith(pair_.publisher->output(), kAway).empty(); },
                          "a topic that is not there"));
  const std::string name = pair_.feed.name();
  pair_.source.Run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false");
  pair_.source.Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" +
                   name + "' AND usename = '" + kRunnerRole + "'");
  for (int video = 1; video <= 20; ++video) pair_.Enqueue(video, 2);
  const char* const kWaiting = "msg=\"waiting for the database\"";
  ASSERT_TRUE(pair_.Await(
      [&] {
        return !LinesWith(pair_.runner->output(), kWaiting).empty() &&
               Get(pair_.runner_url + "/readyz").status == 503;
      },
      "the outage"));
  pair_.source.Run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true");
  ASSERT_TRUE(pair_.Await([&] { return pair_.Version(20) == 2; }, "going on"));
  for (Process* process : {pair_.runner.get(), pair_.publisher.get()}) {
    process->Signal(SIGTERM);
    process->Wait();
    EXPECT_THAT(LinesWith(process->output(), "=\"\""), SizeIs(0)) << process->output();
  }
  EXPECT_THAT(LinesWith(pair_.publisher->output(), kAway), SizeIs(1)) << pair_.publisher->output();
  EXPECT_THAT(LinesWith(pair_.publisher->output(), "it is tried again … repeated"), Not(SizeIs(0)));
  // Those that were thrown out, and those that were not let in.
  EXPECT_LE(LinesWith(pair_.runner->output(), kWaiting).size(), 2U) << pair_.runner->output();
  EXPECT_LE(LinesWith(pair_.runner->output(), "msg=\"a transaction failed\"").size(), 3U);
  if (std::getenv("LOCKSTEP_SHOW_LOGS") != nullptr) {
    std::cerr << pair_.publisher->output() << pair_.runner->output();
  }
}

TEST_F(LogsTest, AResetNamesItsOperatorAndWhatChanged) {
  pair_.StartPublisher();
  pair_.StartRunner();
  pair_.Enqueue(1, 1);
  ASSERT_TRUE(pair_.Await([&] { return pair_.Version(1) == 1; }, "the first event"));
  const Ran reset = pair_.Ctl({"--config", Runner(), "--yes", "offsets", "reset", "feed",
                               "--to-latest", "--reason", "a bad day", "--yes"});
  ASSERT_EQ(reset.status, 0) << reset.output;
  ASSERT_TRUE(pair_.Await(
      [&] { return !LinesWith(pair_.runner->output(), "the epoch has changed").empty(); },
      "the new epoch"));
  const std::string line = LinesWith(pair_.runner->output(), "the epoch has changed").front();
  EXPECT_THAT(line, ContainsRegex("group=feed epoch=2 action=offsets.reset operator=[^ ]+ "
                                  "reason=\"a bad day\" old=.* new=.*"));
}

}  // namespace
}  // namespace lockstep::observability
