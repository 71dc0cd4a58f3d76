// lockstepctl console beside a publisher and a runner: one picture of both, found in their
// databases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/observability/page_look.h"
#include "tests/observability/pair.h"

namespace lockstep::observability {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ConsoleTest : public ::testing::Test {
 protected:
  void StartConsole(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {std::string(LOCKSTEP_BIN) + "/lockstepctl", "console", "--json"});
    console_ = std::make_unique<Process>(std::move(arguments), pair_.directory + "/console.log");
    ASSERT_TRUE(pair_.Await(
        [this] {
          const std::string said = console_->output();
          const size_t at = said.find("http://");
          if (at == std::string::npos) return false;
          url_ = said.substr(at, said.find('"', at) - at);
          return said.find('"', at) != std::string::npos;
        },
        "the console's address"));
  }
  nlohmann::json Picture() {
    const HttpAnswer answer = Get(url_ + "/api/console");
    return answer.status == 200 ? nlohmann::json::parse(answer.body) : nlohmann::json::object();
  }
  nlohmann::json Part(const char* list) {
    const auto picture = Picture();
    return picture.contains(list) ? picture[list] : nlohmann::json::array();
  }

  Pair pair_;
  std::unique_ptr<Process> console_;
  std::string url_;
};

TEST_F(ConsoleTest, ShowsWhatItFindsInTheDatabasesAsOnePictureAndWhoHasGoneSilent) {
  pair_.StartPublisher();
  pair_.StartRunner();
  for (int video = 1; video <= 5; ++video) pair_.Enqueue(video, 1);
  pair_.Await([&] { return pair_.Version(5) == 1; }, "the first events");
  StartConsole(
      {"--find", pair_.source.url(), "--find", pair_.feed.url(), "--schema", "feed_state"});
  pair_.Await(
      [&] {
        const auto groups = Part("groups");
        return groups.size() == 1 && groups[0]["topic"].is_string() && Part("sources").size() == 1;
      },
      "publisher and runner in the picture");
  const auto picture = Picture();
  EXPECT_EQ(picture["sources"][0]["table"], kTable);
  EXPECT_EQ(picture["groups"][0]["name"], "feed");
  EXPECT_THAT(picture["sources"][0]["to"].dump(), HasSubstr(picture["groups"][0]["topic"].dump()))
      << "the publisher's topic is the one that the group reads";
  EXPECT_EQ(picture["instances"].size(), 2U) << picture["instances"].dump(1);
  EXPECT_EQ(picture.dump().find("password"), std::string::npos);
  LookAtPage(url_, "console", {"From source to group", kTable, "caught up", "2 of 2 instances"});
  // It only reads: there is nothing but GET, and its sessions could not write.
  EXPECT_EQ(Get(url_ + "/metrics").status, 404);

  pair_.runner->Signal(SIGKILL);
  pair_.runner->Wait();
  pair_.Await(
      [&] {
        const auto instances = Part("instances");
        return instances.size() == 2 && instances[0]["answers"] == false;
      },
      "a runner that does not answer");
  const auto silent = Picture()["instances"][0];
  EXPECT_EQ(silent["role"], "runner");
  EXPECT_TRUE(silent["since"].is_string()) << silent;
  EXPECT_TRUE(Picture()["groups"].empty()) << "what it said last may be wrong by now";
  LookAtPage(url_, "console-silent", {"does not answer", "1 of 2 instances"});
}

TEST_F(ConsoleTest, SaysWhatIsMissingBeforeItBegins) {
  EXPECT_THAT(pair_.Ctl({"console"}).output, HasSubstr("nobody to ask: name instances"));
  EXPECT_THAT(pair_.Ctl({"console", "--runner", "file:///x"}).output,
              AllOf(HasSubstr("--runner file:///x"), HasSubstr("http")));
}

}  // namespace
}  // namespace lockstep::observability
