// The JSON beside the page: what docs/api.md promises, with the numbers of a running pair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/observability/pair.h"

namespace lockstep::observability {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The fields that docs/api.md names in the row of a path, those behind `of` ("per group").
std::vector<std::string> Documented(const std::string& path, const std::string& of) {
  const std::string text = ReadFile(LOCKSTEP_SOURCE "/docs/api.md");
  const size_t row = text.find("| `" + path + "` | ");
  EXPECT_NE(row, std::string::npos) << path;
  const std::string line = text.substr(row, text.find('\n', row) - row);
  const size_t from = line.find(of);
  EXPECT_NE(from, std::string::npos) << of << " in " << line;
  const std::string part = line.substr(from, line.find(';', from) - from);
  const std::regex field("`([a-z_]+)`");
  std::vector<std::string> fields;
  for (std::sregex_iterator i(part.begin(), part.end(), field), end; i != end; ++i)
    fields.push_back((*i)[1]);
  EXPECT_GE(fields.size(), 7U) << part;
  return fields;
}

class ApiTest : public ::testing::Test {
 protected:
  // Nine videos, one of them poisoned with an event behind it; one row that Pub/Sub never takes.
  void SetUp() override {
    pair_.StartPublisher();
    pair_.StartRunner();
    for (int video = 1; video <= 9; ++video) pair_.Enqueue(video, 1);
    pair_.EnqueueRaw(7, 2, "video.events.VideoUpdated", R"({"video_id":"no uuid SECRET"})");
    pair_.Enqueue(7, 3);
    pair_.source.Run(
        "BEGIN; SELECT lockstep.enqueue('catalog.video_outbox', 'catalog.video.changed.v1', "
        "'video', 'x', 't', 1, 'SECRET'); UPDATE catalog.video_outbox SET attributes = (SELECT "
        "jsonb_object_agg('a' || i, 'b') FROM generate_series(1, 101) i) WHERE aggregate_id = "
        "'x'; COMMIT");
    ASSERT_TRUE(Await([&] { return pair_.Group().value("parked_events", 0) == 1; }, "parking"));
    ASSERT_TRUE(Await([&] { return pair_.Outbox().value("dead", 0) == 1; }, "a dead row"));
  }
  bool Await(const std::function<bool()>& condition, const char* what) {
    return pair_.Await(condition, what);
  }
  json Answer(const std::string& url) {
    const HttpAnswer answer = Get(url);
    EXPECT_EQ(answer.status, 200) << url;
    EXPECT_THAT(answer.body, Not(HasSubstr("SECRET"))) << url;
    return json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  }
  json Runner(const std::string& path) { return Answer(pair_.runner_url + path); }
  json Publisher(const std::string& path) { return Answer(pair_.publisher_url + path); }

  Pair pair_;
};

TEST_F(ApiTest, LagHasEveryFieldAndTheNumbers) {
  ASSERT_TRUE(Await([&] { return Runner("/api/lag")["groups"][0]["lag_ms"] == 0; }, "no lag"));
  const json group = Runner("/api/lag")["groups"][0];
  for (const std::string& field : Documented("/api/lag", "per group"))
    EXPECT_TRUE(group.contains(field)) << field;
  EXPECT_EQ(group["name"], "feed");
  EXPECT_EQ(group["eta_seconds"], 0);
  EXPECT_EQ(group["parked_keys_total"], 1);
  EXPECT_EQ(group["parked_events"], 1);
  EXPECT_EQ(group["dead_letters_open"], 1);
  EXPECT_TRUE(group["rate"].is_number()) << group;
  EXPECT_TRUE(group["last_commit_at"].is_string()) << group;
  EXPECT_EQ(group["stages"].size(), 3U) << group;

  const json outbox = Publisher("/api/lag")["outboxes"][0];
  for (const std::string& field : Documented("/api/lag", "per outbox"))
    EXPECT_TRUE(outbox.contains(field)) << field;
  EXPECT_EQ(outbox["table"], kTable);
  EXPECT_EQ(outbox["pending"], 0);
  EXPECT_EQ(outbox["dead"], 1);
}

TEST_F(ApiTest, OffsetsAreThoseOfTheDatabase) {
  // Message ids of the lanes in order, and of the group as a whole.
  const auto shown = [&] {
    const json group = Runner("/api/offsets")["groups"][0];
    std::string ids;
    for (const json& lane : group["lane_offsets"]) ids += std::string(lane["message_id"]) + " ";
    return ids + (group["offset"].is_null() ? "" : std::string(group["offset"]["message_id"]));
  };
  const auto stored = [&] {
    const postgres::Result row = pair_.feed.Query(
        "SELECT (SELECT string_agg(message_id || ' ', '' ORDER BY instance, lane) FROM "
        "feed_state.offsets) || (SELECT message_id FROM feed_state.group_offsets)");
    return std::string(row.Text(0, 0));
  };
  ASSERT_TRUE(Await([&] { return shown() == stored(); }, "the offsets"));
  const json group = Runner("/api/offsets")["groups"][0];
  for (const std::string& field : Documented("/api/offsets", "per group"))
    EXPECT_TRUE(group.contains(field)) << field;
  EXPECT_EQ(group["epoch"], 1);
  EXPECT_EQ(group["lane_offsets"].size(),
            pair_.feed.QueryInt("SELECT count(*) FROM feed_state.offsets"));
  const json exported = Runner("/api/offsets/export");
  EXPECT_EQ(exported["offsets"].size(), group["lane_offsets"].size());
  for (const json& lane : exported["offsets"]) EXPECT_EQ(lane["group"], "feed");
}

TEST_F(ApiTest, DeadLettersAreListedWithoutPayloadsAndCanBeSelected) {
  const json letters = Runner("/api/dead-letters")["dead_letters"];
  ASSERT_EQ(letters.size(), 1U);
  EXPECT_EQ(letters[0]["key"], "video/" + Pair::VideoId(7));
  EXPECT_EQ(letters[0]["version"], 2);
  EXPECT_EQ(letters[0]["code"], "EVENT.REFUSED_BY_DATABASE");
  EXPECT_FALSE(letters[0].contains("payload"));
  EXPECT_EQ(Runner("/api/dead-letters?key=" + Pair::VideoId(7))["dead_letters"].size(), 1U);
  EXPECT_EQ(Runner("/api/dead-letters?key=other")["dead_letters"].size(), 0U);
  EXPECT_EQ(Runner("/api/dead-letters?group=other")["dead_letters"].size(), 0U);

  const json rows = Publisher("/api/dead-letters")["dead_rows"];
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["aggregate_id"], "x");
  EXPECT_EQ(rows[0]["table"], kTable);
  EXPECT_FALSE(rows[0].contains("payload"));
  EXPECT_EQ(Publisher("/api/dead-letters?table=other")["dead_rows"].size(), 0U);
}

}  // namespace
}  // namespace lockstep::observability
