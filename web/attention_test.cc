#include "web/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::web {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Runner() {
  return {
      {"role", "runner"},
      {"ctl", "lockstepctl --config r.yaml"},
      {"database", {{"reachable", true}, {"address", "postgresql://u@h/d"}, {"schema", "feed\"s"}}},
      {"groups",
       {{{"name", "feed"}, {"state", "running"}, {"lag_ms", 20}, {"lag_alert_ms", 300'000}}}}};
}

std::vector<std::string> Titles(const json& document) {
  std::vector<std::string> titles;
  for (const json& note : Attention(document)) titles.push_back(note["title"]);
  return titles;
}

TEST(Attention, SaysNothingWhenAllIsWell) { EXPECT_THAT(Titles(Runner()), IsEmpty()); }

TEST(Attention, SaysNothingOfAQuietTopic) {
  json document = Runner();
  document["groups"][0]["state"] = "quiet";
  document["groups"][0]["heartbeat_age_ms"] = 2'000;
  EXPECT_THAT(Titles(document), IsEmpty());
}

TEST(Attention, TellsASilentPublisherFromLag) {
  json document = Runner();
  document["groups"][0]["heartbeat_age_ms"] = 400'000;
  document["groups"][0]["lag_ms"] = 400'000;
  EXPECT_THAT(Titles(document), ElementsAre("Group feed hears no heartbeat"));
}

TEST(Attention, SaysWhatDiffersFromItsSourceAndHowToSeeIt) {
  json document = Runner();
  json& table = document["groups"][0]["verify"] = {
      {{"backfill", "videos"},
       {"projection", "videos"},
       {"arguments", "--declaration 'v.yaml' --source 'postgresql://r@h/catalog'"},
       {"failures", 0},
       {"differences", {{"missing", 0}, {"ghost", 0}}}}};
  EXPECT_THAT(Titles(document), IsEmpty());
  table[0]["differences"] = {{"missing", 2}, {"ghost", 1}, {"behind", 0}};
  json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0]["title"], "3 rows of projection videos of group feed differ from the source");
  EXPECT_THAT(notes[0]["detail"].get<std::string>(), HasSubstr("1 ghost, 2 missing"));
  EXPECT_EQ(notes[0]["commands"][0]["command"],
            "lockstepctl --config r.yaml verify --declaration 'v.yaml' --source "
            "'postgresql://r@h/catalog' --projection 'videos' --group 'feed'");
  // Where no file says which group that is.
  document["ctl_schema"] = "feed_state";
  document["groups"][0]["file"] = "feed.yaml";
  EXPECT_THAT(Attention(document)[0]["commands"][1]["command"].get<std::string>(),
              HasSubstr("repair --declaration 'v.yaml' --source 'postgresql://r@h/catalog' "
                        "--projection 'videos' --group-file 'feed.yaml' --schema 'feed_state'"));
  table[0]["differences"] = json::object();
  table[0]["failures"] = 1;  // may pass
  EXPECT_THAT(Titles(document), IsEmpty());
  table[0]["failures"] = 2;
  table[0]["last_error"] = "the source's database can't be reached";
  EXPECT_THAT(Titles(document),
              ElementsAre("Projection videos of group feed can't be compared with its source"));
}

TEST(Attention, NamesTheLaneThatIsStuck) {
  json document = Runner();
  document["groups"][0]["lanes"] = {
      {{"lane", 0}, {"state", "working"}},
      {{"lane", 2}, {"state", "stuck"}, {"queued", 7}, {"oldest_ms", 65'000}}};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0]["title"], "Lane 2 of group feed is stuck");
  EXPECT_THAT(notes[0]["detail"].get<std::string>(),
              HasSubstr("7 events in hand, the oldest for 1 min 5 s"));
  EXPECT_THAT(notes[0]["commands"][0]["command"].get<std::string>(), HasSubstr("pg_blocking_pids"));
}

TEST(Attention, ALockedTableIsToldOnceWithTheSessionThatHasTheLock) {
  json document = Runner();
  const char* who =
      "pid 7 (role ann, application psql, statement CREATE INDEX) has ShareLock on a.b";
  document["groups"][0]["lanes"] = {{{"lane", 0}, {"state", "stuck"}, {"waits_for", who}},
                                    {{"lane", 1}, {"state", "retrying"}, {"waits_for", who}},
                                    {{"lane", 2}, {"state", "idle"}, {"waits_for", ""}}};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U) << notes.dump(1);
  EXPECT_EQ(notes[0]["title"], "Group feed waits for a lock on a table");
  EXPECT_THAT(notes[0]["detail"].get<std::string>(),
              HasSubstr(std::string(who) + ". No event is blamed"));
}

TEST(Attention, NewEventsWithOldVersionsAreTold) {
  json document = Runner();
  document["groups"][0]["counters"] = {{"went_back", 2}, {"superseded", 40}};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U) << notes.dump(1);
  EXPECT_EQ(notes[0]["title"], "2 new events of group feed had an old version");
  document["groups"][0]["counters"]["went_back"] = 0;
  EXPECT_TRUE(Attention(document).empty()) << "those that were overtaken are nobody's business";
}

TEST(Attention, NamesTheParkedKeyItsReasonAndWhatToType) {
  json document = Runner();
  document["groups"][0]["dead_letters_open"] = 1;
  document["groups"][0]["parked_keys_total"] = 1;
  document["groups"][0]["parked_keys"] = {{{"key", "video/it's"},
                                           {"events", 3},
                                           {"why", "Version 2 could not be applied: bad title."},
                                           {"dead_letter", 41}}};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U) << "its dead letter is not told twice";
  EXPECT_EQ(notes[0]["title"], "Key video/it's of group feed is parked");
  EXPECT_THAT(notes[0]["detail"].get<std::string>(), HasSubstr("bad title. 3 events wait"));
  EXPECT_EQ(notes[0]["commands"][0]["command"],
            "lockstepctl --config r.yaml dead-letters show 41 --group 'feed'");
  EXPECT_EQ(notes[0]["commands"][1]["command"],
            "lockstepctl --config r.yaml dead-letters replay 41 --group 'feed' --reason 'why "
            "it works now'");
  EXPECT_EQ(notes[0]["commands"][2]["command"],
            "lockstepctl --config r.yaml dead-letters discard 41 --group 'feed' --reason 'why "
            "it is not needed'");
}

TEST(Attention, TellsOfAPauseAndOfAHandlerThatIsOut) {
  json document = Runner();
  json& group = document["groups"][0];
  group["state"] = "paused";
  group["detail"] = "paused by ada: the shop moves";
  group["lanes"] = {{{"lane", 2}, {"state", "stuck"}, {"outage", "handler hook: answered 503"}}};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 2U) << notes.dump(1);
  EXPECT_EQ(notes[0]["title"], "A handler of group feed does not accept events");
  EXPECT_NE(notes[0]["detail"].get<std::string>().find("answered 503"), std::string::npos);
  EXPECT_EQ(notes[1]["title"], "Group feed is paused");
  EXPECT_EQ(notes[1]["commands"][0]["command"], "lockstepctl --config r.yaml group resume 'feed'");
}

TEST(Attention, EveryCommandSaysWhatItIsFor) {
  json document = Runner();
  json& group = document["groups"][0];
  group["state"] = "halted";
  group["lanes"] = {{{"lane", 2}, {"state", "stuck"}}};
  group["lag_ms"] = 400'000;
  group["dead_letters_open"] = 3;
  group["parked_keys_total"] = 9;
  group["parked_keys"] = {{{"key", "a"}, {"why", "Gap."}}, {{"key", "b"}, {"dead_letter", 1}}};
  document["outboxes"] = {{{"table", "a.o"},
                           {"state", "stuck"},
                           {"topics", {{{"topic", "t"}, {"outage", "gone"}}}},
                           {"dead", 2},
                           {"dead_rows", {{{"sequence", 1}, {"event_id", "e"}}}}}};
  const json notes = Attention(document);
  EXPECT_EQ(notes.size(), 8U) << notes.dump(1);
  json all = notes;
  for (const json& note : notes) {
    for (const json& one : note.value("notes", json::array())) all.push_back(one);
  }
  EXPECT_EQ(all.size(), 11U);
  for (const json& note : all) {
    EXPECT_FALSE(note["commands"].empty()) << note;
    for (const json& step : note["commands"]) {
      EXPECT_NE(step["what"], "") << note;
      EXPECT_NE(step["command"], "") << note;
    }
  }
}

TEST(Attention, CommandsAreComplete) {
  json document = Runner();
  json& group = document["groups"][0];
  group["state"] = "halted";
  group["detail"] = "a table is missing";
  group["file"] = "/etc/lockstep/feed.yaml";
  group["parked_keys_total"] = 1;
  group["parked_keys"] = {{{"key", "video/it's"}, {"events", 3}, {"why", "Version 2 is missing."}}};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0]["commands"][0]["command"],
            "lockstepctl --database 'postgresql://u@h/d' projection check "
            "'/etc/lockstep/feed.yaml' --state-schema 'feed\"s'");
  EXPECT_EQ(notes[1]["commands"][0]["command"],
            "lockstepctl --config r.yaml parked show 'video/it'\\''s' --group 'feed'");
  EXPECT_EQ(notes[1]["commands"][1]["command"],
            "lockstepctl --config r.yaml parked skip 'video/it'\\''s' --group 'feed' --reason 'why "
            "it never comes'");
}

TEST(Attention, PutsWhatStopsEverythingFirst) {
  json document = Runner();
  document["groups"][0]["parked_keys_total"] = 1;
  document["groups"][0]["parked_keys"] = {{{"key", "a"}, {"events", 1}, {"why", "Gap."}}};
  document["database"] = {
      {"reachable", false}, {"error", "connection refused."}, {"address", "postgresql://u@h/d"}};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0]["title"], "The database is out of reach");
  EXPECT_EQ(notes[0]["severity"], "bad");
}

TEST(Attention, DoesNotBlameALaneForADeadDatabase) {
  json document = Runner();
  document["groups"][0]["lanes"] = {{{"lane", 2}, {"state", "stuck"}, {"queued", 7}}};
  document["database"] = {{"reachable", false}, {"error", "gone"}};
  EXPECT_THAT(Titles(document), ElementsAre("The database is out of reach"));
}

TEST(Attention, AReasonThatNoOtherNoteTellsOfIsToldAsItIs) {
  json document = {{"role", "publisher"},
                   {"database", {{"reachable", true}, {"address", "postgresql://u@h/d"}}},
                   {"reasons", {"a.o: its loop has stood still for 31s"}}};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U) << notes.dump(1);
  EXPECT_EQ(notes[0]["severity"], "bad");
  EXPECT_EQ(notes[0]["title"], "This publisher is not ready");
  EXPECT_THAT(notes[0]["detail"].get<std::string>(), HasSubstr("a.o: its loop has stood still"));
  document["database"] = {{"reachable", false}, {"error", "connection refused"}};
  EXPECT_THAT(Titles(document), ElementsAre("The database is out of reach")) << "told once";
}

TEST(Attention, QuotesForTheShell) {
  const json document = {
      {"role", "publisher"},
      {"outboxes", {{{"table", "a.b'; rm"}, {"state", "stuck"}, {"detail", "x"}}}}};
  EXPECT_EQ(Attention(document)[0]["commands"][0]["command"],
            "lockstepctl outbox list 'a.b'\\''; rm' --state pending");
}

TEST(Attention, ManyParkedKeysAreOneNoteThatCountsThemByCause) {
  json document = Runner();
  document["groups"][0]["parked_keys_total"] = 9;
  document["groups"][0]["dead_letters_open"] = 4;
  for (int i = 0; i < 7; ++i) {
    json key = {{"key", "k"}, {"events", 1}, {"why", "w"}};
    if (i < 4) key.update({{"dead_letter", i}, {"code", "EVENT.MAPPING_FAILED"}});
    document["groups"][0]["parked_keys"].push_back(key);
  }
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U) << notes.dump(1);
  EXPECT_EQ(notes[0]["title"], "9 keys of group feed are parked");
  EXPECT_EQ(notes[0]["detail"],
            "A dead letter is in the way, EVENT.MAPPING_FAILED: 4; A version has not arrived: 1; "
            "not listed here: 4.");
  ASSERT_EQ(notes[0]["notes"].size(), 5U);
  EXPECT_EQ(notes[0]["notes"][0]["title"], "Key k of group feed is parked");
  EXPECT_EQ(notes[0]["commands"][0]["command"],
            "lockstepctl --config r.yaml parked list --group 'feed'");
}

TEST(Attention, NotesOfOneKindAreToldTogetherAndOthersStayApart) {
  json document = Runner();
  json second = document["groups"][0];
  second["name"] = "search";
  document["groups"].push_back(second);
  for (json& group : document["groups"]) group["heartbeat_age_ms"] = 400'000;
  document["groups"][0]["lanes"] = {{{"lane", 1}, {"state", "stuck"}}};
  const json notes = Attention(document);
  EXPECT_THAT(Titles(document),
              ElementsAre("Lane 1 of group feed is stuck", "2 groups hear no heartbeat"));
  EXPECT_EQ(notes[1]["notes"][1]["title"], "Group search hears no heartbeat");
  EXPECT_FALSE(notes[0].contains("notes"));
}

TEST(Attention, ManyDeadRowsAreOneNoteAndOneWaitsInTheSingular) {
  json document = {{"role", "publisher"}, {"outboxes", {{{"table", "a.o"}, {"dead", 9}}}}};
  const json row = {{"sequence", 1}, {"event_id", "e"}, {"aggregate_id", "k"},
                    {"code", "C"},   {"reason", "r"},   {"held", 1}};
  for (int i = 0; i < 7; ++i) document["outboxes"][0]["dead_rows"].push_back(row);
  EXPECT_THAT(Titles(document), ElementsAre("9 rows of a.o are dead"));
  document["outboxes"][0]["dead_rows"] = json::array();
  EXPECT_THAT(Titles(document), ElementsAre("9 rows of a.o are dead"));
  document["outboxes"][0]["dead"] = 1;
  EXPECT_THAT(Titles(document), ElementsAre("A row of a.o is dead"));
  document["outboxes"][0]["dead_rows"] = {row};
  EXPECT_THAT(Attention(document)[0]["detail"].get<std::string>(),
              HasSubstr("1 later row of its key waits behind it"));
}

TEST(Attention, ABackfillThatFailedSaysWhyAndHowItGoesOn) {
  json document = {{"role", "publisher"}, {"ctl", "lockstepctl --database 'db'"}};
  document["outboxes"] = {{{"table", "a.o"},
                           {"state", "quiet"},
                           {"backfills",
                            {{{"id", "b-1"}, {"backfill", "items"}, {"state", "running"}},
                             {{"id", "b-2"},
                              {"backfill", "videos"},
                              {"state", "failed"},
                              {"last_error", "row (7) has no version"}}}}}};
  const json notes = Attention(document);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0]["severity"], "bad");
  EXPECT_EQ(notes[0]["title"], "Backfill videos has failed");
  EXPECT_THAT(notes[0]["detail"].get<std::string>(), HasSubstr("row (7) has no version."));
  EXPECT_EQ(notes[0]["commands"][1]["command"],
            "lockstepctl --database 'db' backfill resume 'b-2'");
}

}  // namespace
}  // namespace lockstep::web
