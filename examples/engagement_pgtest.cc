#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "examples/trending/trending.h"
#include "platform/status.h"
#include "projections/declare/group_file.h"
#include "projections/testing/test_group.h"

// The engagement example: a merge table and a counting table of the same events, in protobuf and in
// JSON, with a projection in C++ beside them.
namespace lockstep::projections {
namespace {

using ::testing::ElementsAre;

const std::string kFolder = LOCKSTEP_EXAMPLES "/engagement/";

Event Engagement(const std::string& type, const std::string& user, const std::string& video,
                 int64_t version, int seconds, bool protobuf) {
  std::string payload;
  if (protobuf) {
    const auto text = [&](char tag, const std::string& value) {
      payload += tag;
      payload += static_cast<char>(value.size());
      payload += value;
    };
    text(0x0a, user);
    text(0x12, video);
    if (seconds > 0)
      payload += {0x18, static_cast<char>(seconds), 0x20, static_cast<char>(seconds)};
  } else {
    payload = fmt::format(R"({{"user_id":"{}","videoId":"{}","seconds":{},"totalSeconds":"{}"}})",
                          user, video, seconds, seconds);
  }
  return MakeEvent("engagement.events." + type, user + "/" + video, version, payload,
                   protobuf ? "application/protobuf" : "application/json");
}

class EngagementTest : public ::testing::TestWithParam<bool> {
 protected:
  EngagementTest() : connection_(db_.Connect()) {
    std::ifstream in(kFolder + "read_model.sql");
    std::stringstream text;
    text << in.rdbuf();
    db_.Run(text.str());
    db_.Run(
        "CREATE TABLE engagement_read.trending (video_id text PRIMARY KEY,"
        " score double precision NOT NULL, scored_at timestamptz NOT NULL)");
    LoadOptions options;
    options.code["engagement"].push_back(std::make_shared<examples::Trending>());
    auto group = LoadGroup(kFolder + "engagement.yaml", options);
    EXPECT_TRUE(group.ok()) << group.status();
    projector_ = std::move(group->projector);
    EXPECT_TRUE(projector_->Check(*connection_).ok()) << projector_->Check(*connection_);
  }
  Event Make(const std::string& type, const std::string& user, int64_t version, int seconds = 0) {
    return Engagement(type, user, "v1", version, seconds, GetParam());
  }

  testing::TestDatabase db_;
  std::unique_ptr<postgres::Connection> connection_;
  std::unique_ptr<Projector> projector_;
};

TEST_P(EngagementTest, FeedsRowsCountersAndTheScore) {
  const auto first = ApplyTo(*projector_, *connection_,
                             {Make("Watched", "ann", 1, 30), Make("Liked", "ann", 2),
                              Make("Watched", "bob", 1, 5), Make("Liked", "bob", 2)});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = ApplyTo(*projector_, *connection_, {Make("Unliked", "bob", 3)});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(RowsOf(db_,
                     "SELECT user_id, video_id, watched_seconds, liked, version"
                     " FROM engagement_read.user_video ORDER BY 1"),
              ElementsAre("ann|v1|30|t|2", "bob|v1|5|f|3"));
  EXPECT_THAT(RowsOf(db_,
                     "SELECT video_id, views, watch_seconds, likes"
                     " FROM engagement_read.video_counts"),
              ElementsAre("v1|2|35|1"));
  EXPECT_THAT(RowsOf(db_, "SELECT video_id, score FROM engagement_read.trending"),
              ElementsAre("v1|2"));
}

TEST_P(EngagementTest, LetsTheScoreFade) {
  Event late = Make("Liked", "bob", 1);
  late.occurred_at += std::chrono::hours(24);
  ASSERT_TRUE(ApplyTo(*projector_, *connection_, {Make("Liked", "ann", 1)}).ok());
  ASSERT_TRUE(ApplyTo(*projector_, *connection_, {late}).ok());
  EXPECT_THAT(RowsOf(db_, "SELECT score FROM engagement_read.trending"), ElementsAre("1.5"));
}

INSTANTIATE_TEST_SUITE_P(Formats, EngagementTest, ::testing::Bool(),
                         [](const auto& format) { return format.param ? "Protobuf" : "Json"; });

}  // namespace
}  // namespace lockstep::projections
