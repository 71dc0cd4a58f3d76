// Every metric that is exported says what happened.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "platform/version.h"
#include "tests/observability/pair.h"
#include "tests/observability/scrape.h"
#include "tests/support/outbox_status.h"

namespace lockstep::observability {
namespace {

using ::testing::IsEmpty;

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Change(pair_.directory + "/runner.yaml", "max_attempts: 1",
           "max_attempts: 1\n    checkpoints: true\n    checkpoint_every: 1s");
    Change(pair_.directory + "/publisher.yaml",
           "pubsub:", "metrics: {backlog_interval: 500ms}\npubsub:");
    pair_.StartPublisher();
    pair_.StartRunner();
  }
  // Ten videos, five of them changed, one poisoned with an event behind it, one with a gap; one
  // event delivered twice and one that is older than what is there.
  void EnqueueEvents() {
    for (int video = 1; video <= 10; ++video) pair_.Enqueue(video, 1);
    for (int video = 1; video <= 5; ++video) pair_.Enqueue(video, 2);
    pair_.EnqueueRaw(7, 2, "video.events.VideoUpdated", R"({"video_id":"no uuid"})");
    pair_.Enqueue(7, 3);  // parked behind it
    pair_.Enqueue(9, 3);  // a gap
    ASSERT_TRUE(Await([&] { return Unpublished() == 0; }, "18 rows published"));
    pair_.source.Run(
        testing::StatusCanBeWritten("catalog.video_outbox") +
        "UPDATE catalog.video_outbox_status SET published_at = NULL, message_id = NULL, "
        "locked_at = now() WHERE "
        "aggregate_id = '" +
        Pair::VideoId(3) + "' AND version = 2");
    ASSERT_TRUE(Await([&] { return Unpublished() == 0; }, "one of them again"));
    // The outbox forgets what it has published; only then does it take an older version.
    pair_.source.Run("DELETE FROM catalog.video_outbox WHERE aggregate_id = '" + Pair::VideoId(4) +
                     "'");
    pair_.Enqueue(4, 1);
  }
  // A row that Pub/Sub can't take now (no such topic), one that it never takes, and one put aside.
  void EnqueueTrouble() {
    const auto enqueue = [&](const char* topic, const char* key) {
      return fmt::format(
          "SELECT lockstep.enqueue('catalog.video_outbox', '{}', 'video', '{}', 't', 1, '')", topic,
          key);
    };
    pair_.source.Run(enqueue("no.such.topic.v1", "w"));
    for (const char* key : {"x", "y"}) {
      pair_.source.Run(
          "BEGIN; " + enqueue("catalog.video.changed.v1", key) +
          "; UPDATE catalog.video_outbox SET attributes = (SELECT jsonb_object_agg('a' || i, 'b') "
          "FROM generate_series(1, 101) i) WHERE aggregate_id = '" +
          key + "'; COMMIT");
    }
    ASSERT_TRUE(Await([&] { return Outbox("dead_at IS NOT NULL") == 2; }, "two dead rows"));
    const std::string event = std::string(
        pair_.source.Query("SELECT event_id FROM catalog.video_outbox WHERE aggregate_id = 'y'")
            .Text(0, 0));
    ASSERT_EQ(pair_
                  .Ctl({"--database", pair_.source.url(), "--yes", "outbox", "quarantine", kTable,
                        event, "--reason", "later"})
                  .status,
              0);
    const std::string dead = std::string(
        pair_.source.Query("SELECT event_id FROM catalog.video_outbox WHERE aggregate_id = 'x'")
            .Text(0, 0));
    ASSERT_EQ(
        pair_.Ctl({"--database", pair_.source.url(), "--yes", "outbox", "replay", kTable, dead})
            .status,
        0);
    ASSERT_TRUE(Await([&] { return Outbox("dead_at IS NOT NULL AND quarantined_at IS NULL") == 1; },
                      "dead again"));
  }
  int64_t Outbox(const std::string& where) {
    return pair_.source.QueryInt("SELECT count(*) FROM catalog.video_outbox_status WHERE " + where);
  }
  int64_t Unpublished() { return Outbox("published_at IS NULL AND dead_at IS NULL"); }
  bool Await(const std::function<bool()>& condition, const char* what) {
    return pair_.Await(condition, what);
  }

  Pair pair_;
};

TEST_F(MetricsTest, EachSaysWhatHappened) {
  EnqueueEvents();
  EnqueueTrouble();
  Scrape runner(pair_.runner_url);
  const auto reads = [&](const std::string& name, double value,
                         const std::string& labels = R"(group="feed")") {
    return Await(
        [&] {
          runner.Read();
          return runner(name, labels) == value;
        },
        name.c_str());
  };
  ASSERT_TRUE(reads("runner_stale_versions_total", 1));
  ASSERT_TRUE(reads("runner_parked_events", 2));
  ASSERT_TRUE(reads("runner_version_lag", 2)) << "3 came, 1 is stored";
  const auto events = [&](const char* result) {
    return runner("runner_events_total", fmt::format(R"(group="feed",result="{}")", result));
  };
  EXPECT_EQ(events("applied"), 15);
  EXPECT_EQ(events("dead"), 1);
  EXPECT_EQ(events("parked"), 2);
  EXPECT_EQ(events("duplicate"), 1);
  EXPECT_EQ(events("superseded"), 1);
  EXPECT_EQ(runner("runner_versions_went_back_total"), 1);
  EXPECT_EQ(events("ignored"), 0);
  EXPECT_EQ(runner("runner_duplicates_total"), 1);
  EXPECT_EQ(runner("runner_parked_total"), 2);
  EXPECT_EQ(runner("runner_parked_keys"), 2);
  EXPECT_EQ(runner("runner_gaps_total"), 1);
  EXPECT_EQ(runner("runner_released_total"), 0);
  EXPECT_EQ(runner("runner_dead_letters_total"), 1);
  EXPECT_EQ(runner("runner_dead_letters_open"), 1);
  EXPECT_EQ(runner("runner_halted"), 0);
  EXPECT_EQ(runner("runner_nacks_total"), 0);
  EXPECT_GE(runner("runner_transaction_failures_total"), 1) << "the poison's";
  EXPECT_EQ(runner("offset_save_failure_total"), runner("runner_transaction_failures_total"));
  // Every message that came was an event or a heartbeat, and every one was acked.
  ASSERT_TRUE(Await(
      [&] {
        runner.Read();
        return runner("runner_acks_total", R"(group="feed",result="ok")") ==
               runner("runner_deliveries_total");
      },
      "acks"));
  EXPECT_GE(runner("runner_deliveries_total"), 20);
  EXPECT_EQ(runner("runner_acks_total", R"(group="feed",result="failed")"), 0);
  EXPECT_EQ(runner("runner_batch_events_sum"), 20) << "heartbeats are not among them";
  const double batches = runner("runner_batch_events_count");
  EXPECT_EQ(runner("offset_save_total"), batches);
  EXPECT_GE(runner("runner_transaction_seconds_count"), batches);
  EXPECT_GT(runner("runner_transaction_seconds_sum"), 0);
  for (const char* stage :
       {"occurred_to_published", "published_to_received", "received_to_committed"}) {
    const std::string labels = fmt::format(R"(group="feed",stage="{}")", stage);
    EXPECT_EQ(runner("runner_stage_lag_seconds_count", labels), batches) << stage;
    EXPECT_GE(runner("runner_stage_lag_last_seconds", labels), 0) << stage;
    EXPECT_LE(runner("runner_stage_lag_last_seconds", labels),
              runner("runner_stage_lag_seconds_sum", labels))
        << stage;
  }
  EXPECT_GE(runner("offset_lag_ms"), 0);
  EXPECT_LT(runner("offset_lag_ms"), 60'000);
  EXPECT_GE(runner("runner_commit_age_seconds"), 0);
  EXPECT_LT(runner("runner_commit_age_seconds"), 60);
  EXPECT_GE(runner("runner_heartbeat_age_seconds"), 0);
  EXPECT_LT(runner("runner_heartbeat_age_seconds"), 60);
  ASSERT_TRUE(reads("runner_in_hand_events", 0));
  ASSERT_TRUE(reads("runner_lag_seconds", 0));
  ASSERT_TRUE(reads("runner_catch_up_seconds", 0)) << "nothing to catch up";
  ASSERT_TRUE(Await(
      [&] {
        runner.Read();
        return runner("runner_checkpoint_age_seconds") >= 0;
      },
      "a checkpoint"));
  EXPECT_LT(runner("runner_checkpoint_age_seconds"), 60);
  EXPECT_EQ(runner("lockstep_ready", R"(role="runner")"), 1);
  EXPECT_EQ(runner("tx_replay_total", R"(kind="dead_letter")"), 0);
  // An operator cures the poison: it is replayed, and what was parked behind it is released.
  pair_.feed.Run("UPDATE feed_state.dead_letters SET payload = convert_to('{\"video_id\":\"" +
                 Pair::VideoId(7) + "\",\"title\":\"cured\"}', 'UTF8')");
  ASSERT_EQ(pair_
                .Ctl({"--config", pair_.directory + "/runner.yaml", "--yes", "dead-letters",
                      "replay", "1", "--reason", "cured"})
                .status,
            0);
  ASSERT_TRUE(reads("tx_replay_total", 1, R"(kind="dead_letter")"));
  ASSERT_TRUE(reads("runner_parked_keys", 1));
  ASSERT_TRUE(reads("runner_dead_letters_open", 0));
  // The version that was missing comes: this runner releases what waits for it.
  pair_.source.Run("DELETE FROM catalog.video_outbox WHERE aggregate_id = '" + Pair::VideoId(9) +
                   "'");
  pair_.Enqueue(9, 2);
  ASSERT_TRUE(reads("runner_released_total", 1));

  Scrape publisher(pair_.publisher_url);
  const std::string table = R"(table="catalog.video_outbox")";
  const std::string topic = table + R"(,topic="catalog.video.changed.v1")";
  const std::string success = R"(result="success",)" + topic;
  ASSERT_TRUE(Await(
      [&] {
        publisher.Read();
        return publisher("outbox_dispatch_total", success) == 21;
      },
      "dispatch"));
  // 18, one again, one older, one late; x and y were refused, x twice.
  EXPECT_EQ(publisher("outbox_enqueue_total", topic), 22) << "counted once however often claimed";
  EXPECT_EQ(publisher("outbox_dispatch_latency_seconds_count", success), 21);
  EXPECT_EQ(publisher("outbox_enqueue_to_publish_seconds_count", topic), 21);
  EXPECT_GE(publisher("outbox_dispatch_total", R"(result="failure",)" + topic), 3);
  EXPECT_EQ(publisher("outbox_dispatch_latency_seconds_count", R"(result="failure",)" + topic),
            publisher("outbox_dispatch_total", R"(result="failure",)" + topic));
  EXPECT_GE(publisher("outbox_dispatch_total",
                      R"(result="failure",)" + table + R"(,topic="no.such.topic.v1")"),
            1);
  EXPECT_EQ(publisher("outbox_dead_total", topic), 3);
  const double pauses = publisher("outbox_retry_total", R"(code="PROVIDER.UNAVAILABLE",)" + table);
  EXPECT_GE(pauses, 1) << "a topic that is not there is tried again";
  EXPECT_EQ(publisher("outbox_retry_total", R"(code="UNKNOWN.INTERNAL",)" + table), 0);
  EXPECT_EQ(publisher("outbox_retry_delay_seconds_count", table), pauses);
  EXPECT_EQ(publisher("outbox_lost_leases_total", table), 0);
  EXPECT_EQ(publisher("outbox_relay_leader", table), 1);
  EXPECT_EQ(publisher("outbox_shards_held", table), 1);
  for (const auto& [name, value] : std::map<std::string, double>{
           {"outbox_pending", 1}, {"outbox_dead", 1}, {"outbox_quarantined", 1}}) {
    EXPECT_TRUE(Await(
        [&] {
          publisher.Read();
          return publisher(name, table) == value;
        },
        name.c_str()));
  }
  EXPECT_LE(publisher("outbox_locked", table), 1);
  EXPECT_GT(publisher("outbox_oldest_pending_seconds", table), 0);
  EXPECT_LT(publisher("outbox_oldest_pending_seconds", table), 300);
  EXPECT_TRUE(Await(
      [&] {
        publisher.Read();
        return publisher("tx_replay_total", R"(kind="outbox")") == 1;
      },
      "tx_replay_total"));
  EXPECT_EQ(publisher("lockstep_ready", R"(role="publisher")"),
            Get(pair_.publisher_url + "/readyz").status == 200 ? 1 : 0);
  const auto build = [](const char* role) {
    return fmt::format(R"(commit="{}",role="{}",transports="{}",version="{}")", kCommit, role,
                       kTransports, kVersion);
  };
  EXPECT_EQ(runner("lockstep_build_info", build("runner")), 1);
  EXPECT_EQ(publisher("lockstep_build_info", build("publisher")), 1);
  const std::pair<Scrape&, const char*> both[] = {{runner, "runner"}, {publisher, "publisher"}};
  for (auto& [scrape, role] : both) {
    const std::string of = fmt::format(R"(role="{}")", role);
    EXPECT_GE(scrape("database_connections", of), 4);
    EXPECT_GE(scrape("database_connections_max", of), scrape("database_connections", of));
    EXPECT_GT(scrape("process_cpu_seconds_total", ""), 0);
    EXPECT_GT(scrape("process_start_time_seconds", ""), 1.7e9);
    EXPECT_GT(scrape("process_virtual_memory_bytes", ""),
              scrape("process_resident_memory_bytes", ""));
    EXPECT_LT(scrape("process_open_fds", ""), scrape("process_max_fds", ""));
  }
  EXPECT_GE(runner("runner_inbox_bytes", ""),
            pair_.feed.QueryInt("SELECT pg_relation_size('feed_state.inbox')"));

  // Two videos that never were events are sent as snapshots, and then found without a version.
  pair_.source.Run(fmt::format(
      "CREATE TABLE catalog.old_videos (video_id uuid PRIMARY KEY, title text, version bigint);"
      "INSERT INTO catalog.old_videos VALUES ('{}', 'a', 1), ('{}', 'b', 2);"
      "GRANT SELECT ON catalog.old_videos TO {}",
      Pair::VideoId(21), Pair::VideoId(22), kPublisherRole));
  std::ofstream(pair_.directory + "/old_videos.yaml")
      << "backfill: old_videos\noutbox: catalog.video_outbox\ntopic: catalog.video.changed.v1\n"
         "table: catalog.old_videos\nkey: [video_id]\naggregate_type: video\nversion: version\n"
         "event_type: video.events.VideoCreated\npayload: {fields: [video_id, title]}\n";
  ASSERT_EQ(pair_
                .Ctl({"--database", pair_.source.url(), "--yes", "backfill", "start",
                      pair_.directory + "/old_videos.yaml", "--reason", "adopted"})
                .status,
            0);
  const auto told = [&](const std::string& name, double value) {
    return Await(
        [&] {
          publisher.Read();
          return publisher(name, table) == value;
        },
        name.c_str());
  };
  ASSERT_TRUE(told("backfill_rows_total", 2));
  ASSERT_TRUE(told("backfill_rows_remaining", 0));
  EXPECT_EQ(publisher("backfills_failed", table), 0);
  ASSERT_TRUE(reads("runner_snapshots_total", 2, R"(group="feed",result="applied")"));
  pair_.source.Run("UPDATE catalog.old_videos SET version = NULL");
  pair_.source.Run(
      "UPDATE lockstep.backfills SET state = 'running', cursor = NULL, ended_at = NULL");
  ASSERT_TRUE(told("backfills_failed", 1));

  // Nobody asked for comparisons here; what they tell is in replica_verifier_pgtest.
  EXPECT_EQ(runner("replica_verified_age_seconds", R"(group="feed")"), -1);
  for (const char* none : {"replica_rows_verified", "replica_verify_failures_total"}) {
    EXPECT_EQ(runner(none, R"(group="feed")"), 0);
  }
  for (const char* each : {"missing", "behind", "ghost", "ahead", "content", "unlisted"}) {
    EXPECT_EQ(runner("replica_differences", fmt::format(R"(class="{}",group="feed")", each)), 0);
  }

  EXPECT_EQ(runner("runner_paused", R"(group="feed")"), 0);
  // What content dedup and other routes than the bus tell is in contents_pgtest and routes_pgtest.
  EXPECT_EQ(publisher("outbox_dedup_hits_total", table), 0);
  EXPECT_GT(publisher("outbox_route_total", R"(result="success",route="bus:catalog.events",)" +
                                                table + R"(,topic="catalog.video.changed.v1")"),
            0);
  EXPECT_THAT(runner.NotLookedAt(), IsEmpty());
  EXPECT_THAT(publisher.NotLookedAt(), IsEmpty());
}

TEST(UnrelayedOutbox, IsCountedToo) {
  Pair pair;
  Change(pair.directory + "/publisher.yaml", "relay:", "relay:\n  enabled: false");
  pair.StartPublisher();
  pair.Enqueue(1, 1);
  EXPECT_TRUE(pair.Await(
      [&] {
        return pair.Metric(pair.publisher_url, R"(outbox_pending{table="catalog.video_outbox"})") ==
               1;
      },
      "outbox_pending"));
}

}  // namespace
}  // namespace lockstep::observability
