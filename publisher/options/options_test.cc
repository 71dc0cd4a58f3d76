#include "publisher/options/options.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>

#include "platform/config/config.h"
#include "platform/daemon/http_server.h"
#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;

class OptionsTest : public ::testing::Test {
 protected:
  ~OptionsTest() override { std::remove(file_.c_str()); }

  absl::Status Read(const std::string& yaml) {
    std::ofstream(file_) << yaml;
    config_ = {};
    return Config::Read({.file = file_,
                         .flags = {},
                         .env = [this](const std::string& name) -> std::optional<std::string> {
                           const auto found = env_.find(name);
                           if (found == env_.end()) return std::nullopt;
                           return found->second;
                         }},
                        [this](ConfigSection& section) { Bind(section, config_, http_, log_); });
  }

  const std::string file_ =
      ::testing::TempDir() + "/publisher_options_" + std::to_string(::getpid()) + ".yaml";
  std::map<std::string, std::string> env_;
  PublisherConfig config_;
  HttpOptions http_;
  log::Options log_;
};

TEST_F(OptionsTest, HasTheContractsDefaults) {
  ASSERT_TRUE(Read("relay: {tables: [a.b]}").ok());
  EXPECT_TRUE(config_.relay_enabled);
  ASSERT_EQ(config_.tables.size(), 1u);
  const RelayOptions& relay = config_.tables[0];
  EXPECT_EQ(relay.ShardCount(), 1);
  EXPECT_EQ(relay.batch_size, 100);
  EXPECT_EQ(relay.poll_floor, Millis(250));
  EXPECT_EQ(relay.poll_interval, Millis(30'000));
  EXPECT_EQ(relay.lock_ttl, Millis(60'000));
  EXPECT_EQ(relay.retry.max_attempts, 25);
  EXPECT_EQ(relay.retry.Delay(1, 0), Millis(1000));
  EXPECT_EQ(relay.retry.Delay(25, 1), Millis(60'200));
  EXPECT_EQ(relay.dispatch_timeout, Millis(30'000));
  EXPECT_EQ(relay.last_error_max_bytes, 2048);
  EXPECT_EQ(relay.on_dead, OnDead::kHoldKey);
  EXPECT_TRUE(config_.cleaner.enabled);
  EXPECT_EQ(config_.cleaner.interval, Millis(60'000));
  EXPECT_EQ(config_.cleaner.retention, Millis(168 * 3'600'000LL));
  EXPECT_EQ(config_.cleaner.dead_retention, Millis(0));
  EXPECT_EQ(config_.metrics.path, "/metrics");
  ASSERT_TRUE(Read("").ok());
  EXPECT_TRUE(config_.tables.empty());
}

TEST_F(OptionsTest, TablesMayHaveSettingsOfTheirOwn) {
  ASSERT_TRUE(Read("relay:\n"
                   "  batch_size: 50\n"
                   "  tables:\n"
                   "    - a.plain\n"
                   "    - name: a.busy\n"
                   "      batch_size: 500\n"
                   "      single_active: false\n"
                   "      on_dead: skip\n"
                   "      retry: {base: 2s}\n")
                  .ok());
  ASSERT_EQ(config_.tables.size(), 2u);
  EXPECT_EQ(config_.tables[0].batch_size, 50);
  EXPECT_EQ(config_.tables[1].batch_size, 500);
  EXPECT_EQ(config_.tables[1].ShardCount(), 16);
  EXPECT_EQ(config_.tables[1].on_dead, OnDead::kSkip);
  EXPECT_EQ(config_.tables[1].retry.base, Millis(2000));
}

TEST_F(OptionsTest, ReadsEveryNameOfTheEnvironment) {
  env_ = {{"OUTBOX_RELAY_ENABLED", "false"},         {"OUTBOX_RELAY_TABLES", "a.b,c.d"},
          {"OUTBOX_RELAY_SINGLE_ACTIVE", "false"},   {"OUTBOX_RELAY_POLL_INTERVAL", "7s"},
          {"OUTBOX_RELAY_BATCH_SIZE", "7"},          {"OUTBOX_RELAY_LOCK_TTL", "17s"},
          {"OUTBOX_RELAY_MAX_ATTEMPTS", "3"},        {"OUTBOX_RELAY_DISPATCH_TIMEOUT", "8s"},
          {"OUTBOX_LAST_ERROR_MAX_BYTES", "99"},     {"OUTBOX_CLEANER_ENABLED", "false"},
          {"OUTBOX_CLEANER_TABLES", "e.f"},          {"OUTBOX_CLEANER_INTERVAL", "9s"},
          {"OUTBOX_CLEANER_RETENTION", "10h"},       {"OUTBOX_CLEANER_DEAD_RETENTION", "11h"},
          {"PROMETHEUS_METRICS_ENABLED", "false"},   {"PROMETHEUS_METRICS_PATH", "/m"},
          {"LOCKSTEP_DATABASE", "postgresql://x/y"}, {"LOCKSTEP_RELAY_ON_DEAD", "skip"}};
  ASSERT_TRUE(Read("").ok());
  EXPECT_FALSE(config_.relay_enabled);
  ASSERT_EQ(config_.tables.size(), 2u);
  const RelayOptions& relay = config_.tables[1];
  EXPECT_EQ(relay.table, "c.d");
  EXPECT_FALSE(relay.single_active);
  EXPECT_EQ(relay.poll_interval, Millis(7000));
  EXPECT_EQ(relay.batch_size, 7);
  EXPECT_EQ(relay.lock_ttl, Millis(17'000));
  EXPECT_EQ(relay.retry.max_attempts, 3);
  EXPECT_EQ(relay.dispatch_timeout, Millis(8000));
  EXPECT_EQ(relay.last_error_max_bytes, 99);
  EXPECT_EQ(relay.on_dead, OnDead::kSkip);
  EXPECT_FALSE(config_.cleaner.enabled);
  EXPECT_EQ(config_.cleaner.tables, std::vector<std::string>{"e.f"});
  EXPECT_EQ(config_.cleaner.interval, Millis(9000));
  EXPECT_EQ(config_.cleaner.retention, Millis(10 * 3'600'000));
  EXPECT_EQ(config_.cleaner.dead_retention, Millis(11 * 3'600'000));
  EXPECT_FALSE(config_.metrics.enabled);
  EXPECT_EQ(config_.metrics.path, "/m");
  EXPECT_EQ(config_.database, "postgresql://x/y");
}

TEST_F(OptionsTest, SaysWhatIsWrong) {
  EXPECT_THAT(std::string(MessageOf(Read("relay: {tables: [{name: a.b, batch_size: 0}]}"))),
              HasSubstr("batch_size must be above 0"));
  EXPECT_THAT(std::string(MessageOf(Read("relay: {tables: [{name: a.b, shards: 4}]}"))),
              HasSubstr("single_active: false"));
  EXPECT_THAT(std::string(MessageOf(Read("relay: {tables: [noschema]}"))), HasSubstr("noschema"));
  ASSERT_TRUE(Read("database: x\nrelay: {tables: [a.b, a.b]}").ok());
  EXPECT_THAT(std::string(MessageOf(config_.Validate())), HasSubstr("names a.b twice"));
  ASSERT_TRUE(Read("database: x\ntopic_style: versioned\ntopics: {events: x}").ok());
  EXPECT_THAT(std::string(MessageOf(config_.Validate())), HasSubstr("vN"));
  ASSERT_TRUE(Read("database: x\ntopic_style: versioned\nheartbeat: {topics: [beat]}").ok());
  EXPECT_THAT(std::string(MessageOf(config_.Validate())), HasSubstr("topic beat is not <module>"));
  ASSERT_TRUE(Read("database: x\nheartbeat: {topics: [beat]}").ok());
  EXPECT_THAT(std::string(MessageOf(config_.Validate())), HasSubstr("`topics` does not have"));
  ASSERT_TRUE(Read("database: x\nany_topic: true\nheartbeat: {topics: [beat]}").ok());
  EXPECT_TRUE(config_.Validate().ok());
  ASSERT_TRUE(Read("relay: {tables: [a.b]}").ok());
  EXPECT_THAT(std::string(MessageOf(config_.Validate())), HasSubstr("LOCKSTEP_DATABASE"));
}

}  // namespace
}  // namespace lockstep::publisher
