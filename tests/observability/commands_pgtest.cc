// Every command that the page prints can be typed as it stands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/observability/pair.h"

namespace lockstep::observability {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class CommandsTest : public ::testing::Test {
 protected:
  // The notes of a page, those that others hold among them.
  static nlohmann::json Flat(const nlohmann::json& status) {
    nlohmann::json all = nlohmann::json::array();
    for (const auto& note : status.value("attention", nlohmann::json::array())) {
      all.push_back(note);
      for (const auto& one : note.value("notes", nlohmann::json::array())) all.push_back(one);
    }
    return all;
  }
  // Types all commands of both pages and answers them.
  std::vector<std::string> TypeAll() {
    std::vector<std::string> typed;
    for (const std::string& url : {pair_.publisher_url, pair_.runner_url}) {
      const auto status = pair_.Status(url);
      for (const auto& note : Flat(status)) {
        EXPECT_FALSE(note["commands"].empty()) << note["title"];
        for (const auto& step : note["commands"]) {
          if (std::string(step["what"]).starts_with("Or ")) continue;  // one or the other
          const std::string command = step["command"];
          const Ran ran = pair_.Type(command);
          EXPECT_EQ(ran.status, 0) << command << "\n" << ran.output;
          typed.push_back(command);
        }
      }
    }
    return typed;
  }
  // The command of a note on the runner's page, by the beginning of what it is for.
  std::string Command(const std::string& title, const std::string& what) {
    const auto status = pair_.Status(pair_.runner_url);
    for (const auto& note : Flat(status)) {
      if (note["title"] != title) continue;
      for (const auto& step : note["commands"]) {
        if (std::string(step["what"]).starts_with(what)) return step["command"];
      }
    }
    ADD_FAILURE() << "nothing to type about " << title;
    return "false";
  }
  bool Await(const std::function<bool()>& condition, const char* what) {
    return pair_.Await(condition, what);
  }

  Pair pair_;
};

TEST_F(CommandsTest, OfParkedKeysDeadRowsAndATopicOutOfReach) {
  pair_.StartPublisher();
  pair_.StartRunner();
  for (int video : {7, 8}) pair_.Enqueue(video, 1);
  pair_.EnqueueRaw(7, 2, "video.events.VideoUpdated", R"({"video_id":"no uuid"})");
  pair_.Enqueue(7, 3);
  pair_.Enqueue(8, 3);  // version 2 never comes
  pair_.source.Run(
      "SELECT lockstep.enqueue('catalog.video_outbox', 'no.such.topic.v1', 'video', 'y', 't', 1, "
      "'')");
  pair_.source.Run(
      "BEGIN; SELECT lockstep.enqueue('catalog.video_outbox', 'catalog.video.changed.v1', 'video', "
      "'x', 't', 1, ''); UPDATE catalog.video_outbox SET attributes = (SELECT "
      "jsonb_object_agg('a' || i, 'b') FROM generate_series(1, 101) i) WHERE aggregate_id = 'x'; "
      "COMMIT");
  ASSERT_TRUE(Await(
      [&] {
        const auto titles = pair_.Attention(pair_.runner_url);
        return titles.size() == 1 && titles[0] == "2 keys of group feed are parked";
      },
      "two keys, told together"));
  ASSERT_TRUE(Await([&] { return pair_.Attention(pair_.publisher_url).size() == 2; },
                    "a dead row and a topic out of reach"));
  // Somebody has cured the event: now the page's command brings it in.
  pair_.feed.Run("UPDATE feed_state.dead_letters SET payload = convert_to('{\"video_id\":\"" +
                 Pair::VideoId(7) + "\",\"title\":\"cured\"}', 'UTF8')");
  const std::vector<std::string> typed = TypeAll();
  EXPECT_THAT(typed, Contains(HasSubstr(" dead-letters replay ")));
  EXPECT_THAT(typed, Contains(HasSubstr(" parked show 'video/")));
  EXPECT_THAT(typed, Contains(HasSubstr(" outbox replay 'catalog.video_outbox' ")));
  EXPECT_THAT(typed, Contains(HasSubstr(" outbox list 'catalog.video_outbox' --state pending")));
  EXPECT_TRUE(Await([&] { return pair_.Version(7) == 3; }, "the parked event"));
}

TEST_F(CommandsTest, OfADeadLetterThatIsGivenUp) {
  pair_.StartPublisher();
  pair_.StartRunner();
  pair_.Enqueue(7, 1);
  pair_.EnqueueRaw(7, 2, "video.events.VideoUpdated", R"({"video_id":"no uuid"})");
  pair_.Enqueue(7, 3);
  const std::string title = "Key video/" + Pair::VideoId(7) + " of group feed is parked";
  ASSERT_TRUE(Await(
      [&] {
        const auto titles = pair_.Attention(pair_.runner_url);
        return std::find(titles.begin(), titles.end(), title) != titles.end() &&
               pair_.Group().value("parked_events", 0) == 1;
      },
      "its note"));
  const Ran ran = pair_.Type(Command(title, "Or give it up"));
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_TRUE(Await([&] { return pair_.Version(7) == 3; }, "what waited behind it"));
  EXPECT_TRUE(Await([&] { return pair_.Attention(pair_.runner_url).empty(); }, "a clean page"));
}

TEST_F(CommandsTest, OfAHaltedGroupAndASilentPublisher) {
  std::string file = ReadFile(pair_.directory + "/runner.yaml");
  WriteFile(pair_.directory + "/runner.yaml", file + "    dead_letter_budget: 1\n");
  pair_.StartPublisher();
  pair_.StartRunner();
  pair_.Enqueue(1, 1);
  ASSERT_TRUE(Await([&] { return pair_.Version(1) == 1; }, "the first event"));
  ASSERT_TRUE(Await([&] { return pair_.Group()["heartbeat_age_ms"].is_number(); }, "a heartbeat"));
  pair_.StopPublisher();
  ASSERT_TRUE(Await([&] { return pair_.Group().value("state", "") == "no heartbeat"; }, "silence"));
  pair_.publisher_url = pair_.runner_url;  // it is gone
  EXPECT_THAT(TypeAll(), Contains(HasSubstr(" lag")));

  pair_.StartPublisher();
  for (int video = 2; video <= 5; ++video) {
    pair_.EnqueueRaw(video, 1, "video.events.VideoCreated", R"({"video_id":"no uuid"})");
  }
  ASSERT_TRUE(Await([&] { return pair_.Group().value("state", "") == "halted"; }, "the budget"));
  EXPECT_EQ(Get(pair_.runner_url + "/readyz").status, 503);
  EXPECT_THAT(Get(pair_.runner_url + "/readyz").body, HasSubstr("more than 1 dead letters"));
  const auto lag = pair_.Lag();
  EXPECT_EQ(lag["state"], "halted") << lag;
  pair_.feed.Run(
      "UPDATE feed_state.dead_letters SET payload = convert_to('{\"video_id\":\"' || ordering_key "
      "|| "
      "'\",\"title\":\"cured\"}', 'UTF8')");
  const std::vector<std::string> typed = TypeAll();
  EXPECT_THAT(typed, Contains(HasSubstr(" projection check '")));
  EXPECT_THAT(typed, Contains(HasSubstr(" dead-letters list --group 'feed'")));
}

}  // namespace
}  // namespace lockstep::observability
