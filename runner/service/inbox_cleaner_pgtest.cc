#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/service/inbox_cleaner.h"
#include "runner/testing/test_group.h"
#include "tests/support/service_stress.h"

namespace lockstep::runner {
namespace {

TEST(InboxCleaner, ForgetsWhatIsPastItsRetentionAndNothingElse) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a"}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run(
      "INSERT INTO feed_state.inbox (generation, event_id, received_at) SELECT generation, "
      "gen_random_uuid(), now() - interval '2 "
      "days' "
      "FROM feed_state.slots, generate_series(1, 25)");
  world.database.Run(
      "INSERT INTO feed_state.consumer_groups (group_name) VALUES ('other');"
      "INSERT INTO feed_state.slots (group_name, slot, generation, subscription) "
      "VALUES ('other', 1, 999, 's');"
      "INSERT INTO feed_state.inbox (generation, event_id, received_at) SELECT 999, "
      "gen_random_uuid(), now() - interval '2 days'");
  InboxCleaner cleaner(
      {.database = world.database.url(), .state_schema = "feed_state", .batch = 10}, nullptr);
  const std::vector<InboxRetention> a_day = {{ConsumerGroup("feed"), Millis(24 * 3600 * 1000)}};
  EXPECT_EQ(*cleaner.CleanOnce(a_day), 25);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.inbox"), 2);
  EXPECT_EQ(*cleaner.CleanOnce(a_day), 0);
}

// The database's clock leapt ahead: what it calls old was received a moment ago by ours.
TEST(InboxCleaner, KeepsWhatOneClockAloneCallsOld) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a"}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run("UPDATE feed_state.inbox SET received_at = received_at - interval '8 days'");
  const auto connection = world.database.Connect();
  const state::Retention retention(state::Schema("feed_state"), ConsumerGroup("feed"));
  const Millis day(24 * 3600 * 1000);
  const WallTime now = Clock::System().Now();
  EXPECT_EQ(*retention.ForgetEvents(*connection, now - 8 * day, 7 * day, 10), 0);
  EXPECT_EQ(*retention.ForgetEvents(*connection, now, 7 * day, 10), 1);
}

TEST(InboxCleaner, KeepsTombstonesAndInstancesThatOneClockAloneCallsOld) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a"}});
  ASSERT_TRUE(world.AwaitDrained());
  group->Stop();
  world.database.Run(R"(
    INSERT INTO feed_state.row_versions (consumer_group, generation, projection, row_key, version,
                                         first_version, deleted_at)
    SELECT group_name, generation, 'items', 'old', 1, 1, now() - interval '8 days'
      FROM feed_state.slots;
    INSERT INTO feed_state.instances (group_name, instance, epoch, lanes, seen_at)
    VALUES ('feed', 'killed', 1, 2, now() - interval '8 days');
    INSERT INTO feed_state.offsets (group_name, instance, lane, subscription, message_id,
                                    publish_time, epoch, updated_at)
    VALUES ('feed', 'gone', 0, 's', 'm', now() - interval '8 days', 1, now() - interval '8 days');)");
  const auto connection = world.database.Connect();
  const state::Retention retention(state::Schema("feed_state"), ConsumerGroup("feed"));
  const Millis day(24 * 3600 * 1000);
  const auto left = [&](WallTime now) {
    EXPECT_TRUE(retention.ForgetTombstones(*connection, now, 7 * day, 10).ok());
    EXPECT_TRUE(retention.ForgetGone(*connection, now).ok());
    return world.Value(R"(
      SELECT concat_ws(',', (SELECT row_key FROM feed_state.row_versions WHERE row_key = 'old'),
                       (SELECT instance FROM feed_state.instances WHERE instance = 'killed'),
                       (SELECT instance FROM feed_state.offsets WHERE instance = 'gone')))");
  };
  EXPECT_EQ(left(Clock::System().Now() - 8 * day), "old,killed,gone");
  EXPECT_EQ(left(Clock::System().Now()), "");
}

// Tombstones live a day longer than inbox rows; a row that is there has no time of its death.
TEST(InboxCleaner, ForgetsInSmallTransactionsAndTombstonesToo) {
  GroupWorld world;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  world.database.Run(R"(
    CREATE TABLE rm.deletes (rows bigint);
    CREATE FUNCTION rm.count_rows() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN INSERT INTO rm.deletes SELECT count(*) FROM gone; RETURN NULL; END $$;
    CREATE TRIGGER count_rows AFTER DELETE ON feed_state.inbox REFERENCING OLD TABLE AS gone
      FOR EACH STATEMENT EXECUTE FUNCTION rm.count_rows();
    INSERT INTO feed_state.inbox (generation, event_id, received_at) SELECT generation, gen_random_uuid(), now() - interval '2 days'
      FROM feed_state.slots, generate_series(1, 25);)");
  world.database.Run(
      "INSERT INTO feed_state.row_versions (consumer_group, generation, projection, row_key, "
      "version, first_version, deleted_at) SELECT group_name, generation, 'items', k, 1, 1, d FROM "
      "feed_state.slots, (VALUES ('old', now() - interval '2 days'), ('young', now() - interval "
      "'30 hours'), ('there', NULL)) AS v (k, d)");
  InboxCleaner cleaner(
      {.database = world.database.url(), .state_schema = "feed_state", .batch = 10}, nullptr);
  EXPECT_EQ(*cleaner.CleanOnce({{ConsumerGroup("feed"), Millis(24 * 3600 * 1000)}}), 25);
  EXPECT_EQ(world.Count("SELECT max(rows) FROM rm.deletes"), 10);
  EXPECT_EQ(world.Value("SELECT string_agg(row_key, ',' ORDER BY row_key) FROM "
                        "feed_state.row_versions"),
            "there,young");
}

// Replayed, it would bring back a row that was deleted since.
TEST(InboxCleaner, KeepsTombstonesThatAnOpenDeadLetterMayNeed) {
  GroupWorld world;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  group->Stop();
  world.database.Run(R"(
    INSERT INTO feed_state.row_versions (consumer_group, generation, projection, row_key, version,
                                         first_version, deleted_at)
    SELECT group_name, generation, 'items', d::text, 1, 1, now() - d * interval '1 day'
      FROM feed_state.slots, unnest(ARRAY[10, 20, 22, 30]) d;
    INSERT INTO feed_state.dead_letters (group_name, generation, message_id, ordering_key, publish_time,
                                         attributes, payload, code, reason, blocks, state)
    SELECT 'feed', 1, p::text, 'k', now() - p * interval '1 day', '{}', '', 'C', 'r', false, 'quarantined'
      FROM unnest(ARRAY[9, 21]) p)");
  const auto connection = world.database.Connect();
  const state::Retention retention(state::Schema("feed_state"), ConsumerGroup("feed"));
  const auto left = [&] {
    EXPECT_TRUE(retention
                    .ForgetTombstones(*connection, Clock::System().Now(),
                                      Millis(7LL * 24 * 3600 * 1000), 10)
                    .ok());
    return world.Value(
        "SELECT string_agg(row_key, ',' ORDER BY row_key) FROM feed_state.row_versions");
  };
  EXPECT_EQ(left(), "10,20,22") << "of a snapshot that was published within a day after a delete";
  world.database.Run(
      "UPDATE feed_state.dead_letters SET state = 'discarded', resolved_at = now() WHERE "
      "message_id = '21'");
  EXPECT_EQ(left(), "10");
  world.database.Run("UPDATE feed_state.dead_letters SET state = 'discarded', resolved_at = now()");
  EXPECT_EQ(left(), "");
}

TEST(InboxCleaner, ForgetsResolvedDeadLettersAndOldAuditsInBatches) {
  GroupWorld world;
  const auto group = world.NewGroup();
  ASSERT_TRUE(world.Await([&] { return group->status().ready(); }));
  // Of each kind some that are old and one that is young; an open letter is never too old.
  world.database.Run(R"(
    INSERT INTO feed_state.dead_letters (group_name, generation, message_id, ordering_key, publish_time, attributes,
                                         payload, code, reason, blocks, state, dead_at, resolved_at)
    SELECT 'feed', 1, s || i, 'k', now(), '{}', '', 'C', 'r', false, s, now() - interval '200 days',
           CASE WHEN s <> 'dead' THEN now() - (CASE WHEN i = 0 THEN 1 ELSE 100 END) * interval '1 day' END
      FROM unnest(ARRAY['dead', 'replayed', 'discarded']) s, generate_series(0, 12) i;
    INSERT INTO feed_state.audit (group_name, action, operator, at)
    SELECT 'feed', 'a', 'o', now() - i * interval '10 days' FROM generate_series(0, 60) i;)");
  const int64_t audits = world.Count("SELECT count(*) FROM feed_state.audit");
  const std::vector<InboxRetention> a_day = {{ConsumerGroup("feed"), Millis(24 * 3600 * 1000)}};
  InboxCleaner::Options options{
      .database = world.database.url(), .state_schema = "feed_state", .batch = 5};
  ASSERT_TRUE(InboxCleaner(options, nullptr).CleanOnce(a_day).ok());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.dead_letters"), 39) << "0 = for ever";
  options.dead_letters = Millis(90LL * 86'400'000);
  options.audit = Millis(400LL * 86'400'000);
  ASSERT_TRUE(InboxCleaner(options, nullptr).CleanOnce(a_day).ok());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.dead_letters"), 13 + 2);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.audit"), audits - 21);
  options.audit = Millis(1);
  ASSERT_TRUE(InboxCleaner(options, nullptr).CleanOnce(a_day).ok());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.audit WHERE action = 'a'"), 3)
      << "what is younger than 30 days stays, whoever asks";
}

TEST(InboxCleaner, ForgetsTheOffsetsOfInstancesThatAreGone) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a"}});
  ASSERT_TRUE(world.AwaitDrained());
  group->Stop();
  const int64_t before = world.Count("SELECT count(*) FROM feed_state.offsets");
  world.database.Run(
      "INSERT INTO feed_state.offsets SELECT * FROM json_populate_recordset("
      "NULL::feed_state.offsets, (SELECT json_agg(to_jsonb(o) || jsonb_build_object("
      "'instance', 'gone' || d, 'updated_at', now() - d * interval '16 hours', "
      "'publish_time', now() - d * interval '16 hours')) "
      "FROM feed_state.offsets o, generate_series(1, 3) d))");
  InboxCleaner cleaner({.database = world.database.url(), .state_schema = "feed_state"}, nullptr);
  const std::vector<InboxRetention> groups = {{ConsumerGroup("feed"), Millis(24 * 3600 * 1000)}};
  ASSERT_TRUE(cleaner.CleanOnce(groups).ok());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.offsets"), 2 * before);
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.offsets WHERE instance IN ('gone2', "
                        "'gone3')"),
            0);
  // All of them are long gone: the furthest stays.
  world.database.Run("UPDATE feed_state.offsets SET updated_at = now() - interval '9 days'");
  ASSERT_TRUE(cleaner.CleanOnce(groups).ok());
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.offsets"), 1);
}

TEST(InboxCleaner, ForgetsInstancesThatWereKilledAndLanesThatAreNoMore) {
  GroupWorld world;
  const auto group = world.NewGroup();
  world.Publish({{.id = "a"}});
  ASSERT_TRUE(world.AwaitDrained());
  world.database.Run(
      "INSERT INTO feed_state.instances (group_name, instance, epoch, lanes, seen_at) VALUES "
      "('feed', 'killed', 1, 2, now() - interval '2 days');"
      "INSERT INTO feed_state.offsets (group_name, instance, lane, subscription, message_id, "
      "publish_time, epoch, updated_at) VALUES "
      "('feed', 'one', 7, 's', 'm', now() - interval '2 days', 1, now() - interval '2 days')");
  InboxCleaner cleaner({.database = world.database.url(), .state_schema = "feed_state"}, nullptr);
  ASSERT_TRUE(cleaner.CleanOnce({{ConsumerGroup("feed"), Millis(24 * 3600 * 1000)}}).ok());
  EXPECT_EQ(world.Value("SELECT string_agg(instance, ',') FROM feed_state.instances"), "one");
  EXPECT_EQ(world.Count("SELECT count(*) FROM feed_state.offsets WHERE lane = 7"), 0);
}

TEST(InboxCleaner, SaysThatARightIsMissing) {
  GroupWorld world;
  world.database.Run("DROP TABLE feed_state.row_versions");  // as good as a missing right: class 42
  ::testing::internal::CaptureStderr();
  InboxCleaner cleaner({.database = world.database.url(), .state_schema = "feed_state"}, [] {
    return std::vector<InboxRetention>{{ConsumerGroup("feed"), Millis(24 * 3600 * 1000)}};
  });
  std::string said;
  EXPECT_TRUE(cleaner.Start().ok());
  const bool heard = world.Await([&] {
    said += ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();
    return said.find("the inbox was not cleaned") != std::string::npos;
  });
  cleaner.Stop();
  said += ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(heard) << said;
  EXPECT_THAT(said, ::testing::HasSubstr("row_versions"));
}

TEST(InboxCleaner, HasTheLifeOfAService) {
  testing::StressService([] {
    return std::make_unique<InboxCleaner>(InboxCleaner::Options{.database = "host=127.0.0.1"},
                                          [] { return std::vector<InboxRetention>(); });
  });
}

}  // namespace
}  // namespace lockstep::runner
