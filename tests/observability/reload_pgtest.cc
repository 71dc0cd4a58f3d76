// SIGHUP: what can be followed is, what can't is named, and nothing is lost meanwhile.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <regex>
#include <set>

#include "platform/config/config.h"
#include "platform/daemon/http_server.h"
#include "platform/log/log.h"
#include "publisher/options/options.h"
#include "runner/service/runner_options.h"
#include "sagas/orchestrator/options.h"
#include "tests/observability/pair.h"

namespace lockstep::observability {
namespace {

// What the page says of a key: its value now, and after a restart.
std::pair<std::string, std::string> Shown(const nlohmann::json& status, const std::string& key) {
  for (const auto& entry : status.value("config", nlohmann::json::array())) {
    if (!std::string(entry["key"]).ends_with(key)) continue;
    const auto& later = entry["after_restart"];
    return {entry["value"], later.is_null() ? "" : std::string(later)};
  }
  return {"no such key", ""};
}

TEST(ReloadTest, FollowsWhatItCanNamesTheRestAndGoesOn) {
  Pair pair;
  pair.StartPublisher();
  pair.StartRunner();
  pair.Enqueue(1, 1);
  ASSERT_TRUE(pair.Await([&] { return pair.Version(1) == 1; }, "the first event"));

  Change(pair.directory + "/runner.yaml", "max_attempts: 1",
         "max_attempts: 2\n    max_batch: 7\n    lanes: 3");
  pair.runner->Signal(SIGHUP);
  const auto log = [](Process& process, const std::string& text) {
    return process.output().find(text) != std::string::npos;
  };
  ASSERT_TRUE(
      pair.Await([&] { return log(*pair.runner, "lanes value=3"); }, "the runner's answer"));
  // A group that has no name in the file is called by its path.
  EXPECT_TRUE(std::regex_search(
      pair.runner->output(),
      std::regex("followed from the next round on\" key=groups\\.\\S+\\.max_batch value=7")));
  EXPECT_TRUE(std::regex_search(pair.runner->output(),
                                std::regex("needs a restart\" key=groups\\.\\S+\\.lanes value=3")));

  using Values = std::pair<std::string, std::string>;
  ASSERT_TRUE(pair.Await(
      [&] { return Shown(pair.Status(pair.runner_url), ".max_batch") == Values("7", ""); },
      "the page"));
  EXPECT_EQ(Shown(pair.Status(pair.runner_url), ".lanes"), Values("4", "3"))
      << "what runs, and what waits for a restart";

  Change(pair.directory + "/publisher.yaml", "poll_interval: 500ms",
         "poll_interval: 400ms\n  batch_size: 5\n  shards: 1");
  pair.publisher->Signal(SIGHUP);
  ASSERT_TRUE(pair.Await([&] { return log(*pair.publisher, "key=relay.batch_size value=5"); },
                         "the publisher's answer"));
  EXPECT_TRUE(pair.Await(
      [&] { return Shown(pair.Status(pair.publisher_url), "relay.batch_size").first == "5"; },
      "the publisher's page"));

  for (int version = 2; version <= 42; ++version) pair.Enqueue(1, version);
  ASSERT_TRUE(pair.Await([&] { return pair.Version(1) == 42; }, "the rest"));

  // A file that can't be read changes nothing.
  Change(pair.directory + "/runner.yaml", "max_batch: 7", "max_bach: 7");
  pair.runner->Signal(SIGHUP);
  ASSERT_TRUE(
      pair.Await([&] { return log(*pair.runner, "everything stays as it is"); }, "a refusal"));
  pair.Enqueue(1, 43);
  EXPECT_TRUE(pair.Await([&] { return pair.Version(1) == 43; }, "going on"));
}

// The keys that a daemon follows, as docs/reload.md writes them.
std::set<std::string> Followed(const Config::Bind& bind) {
  std::set<std::string> names;
  for (const ConfigKey& key : Config::Describe(bind)) {
    if (!key.followed) continue;
    const std::string name = std::regex_replace(
        key.path, std::regex("^(relay\\.tables\\.<name>|relay|groups\\.<name>)\\."), "");
    names.insert(name.starts_with("retry.") ? "retry.*" : name);
  }
  return names;
}

std::set<std::string> Documented(const std::string& daemon) {
  std::ifstream file(LOCKSTEP_SOURCE "/docs/reload.md");
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| " + daemon + " |")) continue;
    const std::regex quoted("`([^`]+)`");
    for (std::sregex_iterator it(line.begin(), line.end(), quoted), end; it != end; ++it) {
      names.insert((*it)[1]);
    }
  }
  return names;
}

TEST(ReloadTest, ThePageNamesTheKeysThatAreFollowed) {
  EXPECT_EQ(Documented("publisher"), Followed([](ConfigSection& config) {
              publisher::PublisherConfig options;
              HttpOptions http;
              log::Options log;
              Bind(config, options, http, log);
            }));
  EXPECT_EQ(Documented("orchestrator"), Followed([](ConfigSection& config) {
              sagas::OrchestratorOptions options;
              HttpOptions http;
              log::Options log;
              Bind(config, options, http, log);
            }));
  EXPECT_EQ(Documented("runner"), Followed([](ConfigSection& config) {
              runner::RunnerOptions options;
              Bind(config, options);
            }));
}

// What shows in what they do, not in their words alone. The other settings:
// runner/group/reload_pgtest.cc and the tests of the publisher's parts.
TEST(ReloadTest, RetentionAndTheLogLevelAreFollowed) {
  Pair pair;
  pair.StartPublisher();
  pair.StartRunner();
  pair.Enqueue(1, 1);
  ASSERT_TRUE(pair.Await([&] { return pair.Version(1) == 1; }, "the first event"));
  for (Process* process : {pair.publisher.get(), pair.runner.get()})
    EXPECT_EQ(process->output().find("level=debug"), std::string::npos);

  Change(pair.directory + "/publisher.yaml",
         "pubsub:", "log: {level: debug}\ncleaner: {interval: 100ms, retention: 1ms}\npubsub:");
  pair.publisher->Signal(SIGHUP);
  EXPECT_TRUE(pair.Await(
      [&] { return pair.source.QueryInt("SELECT count(*) FROM catalog.video_outbox") == 0; },
      "what was published is cleaned away"));

  Change(pair.directory + "/runner.yaml", "pubsub:", "log: {level: debug}\npubsub:");
  Change(pair.directory + "/runner.yaml", "max_attempts: 1",
         "inbox_retention: 1ms\n    force_inbox_retention: true");
  EXPECT_EQ(pair.feed.QueryInt("SELECT count(*) FROM feed_state.inbox"), 1);
  pair.runner->Signal(SIGHUP);
  ASSERT_TRUE(pair.Await(
      [&] { return pair.runner->output().find("key=log.level value=debug") != std::string::npos; },
      "the runner's answer"));
  EXPECT_TRUE(
      pair.Await([&] { return pair.feed.QueryInt("SELECT count(*) FROM feed_state.inbox") == 0; },
                 "what was applied is forgotten"));
  pair.Enqueue(1, 2);
  ASSERT_TRUE(pair.Await([&] { return pair.Version(1) == 2; }, "another event"));
  for (Process* process : {pair.publisher.get(), pair.runner.get()})
    EXPECT_TRUE(pair.Await(
        [&] { return process->output().find("level=debug") != std::string::npos; }, "debug lines"));
}

}  // namespace
}  // namespace lockstep::observability
