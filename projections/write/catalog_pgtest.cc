#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "platform/status.h"
#include "projections/testing/test_group.h"
#include "video/events/video_events.pb.h"

// The video catalogue of examples/, in protobuf and in JSON.
namespace lockstep::projections {
namespace {

using ::testing::ElementsAre;

constexpr char kVideo[] = "11111111-1111-4111-8111-111111111111";

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

std::string Yaml() {
  std::string yaml = ReadFile(LOCKSTEP_EXAMPLES "/catalog/catalog.yaml");
  const std::string name = ": video_events.pb";
  return yaml.replace(yaml.find(name), name.size(),
                      ": " LOCKSTEP_EXAMPLES "/catalog/video_events.pb");
}

Event Proto(const std::string& type, int64_t version, const google::protobuf::Message& message) {
  return MakeEvent(type, kVideo, version, message.SerializeAsString(), "application/protobuf");
}

class CatalogTest : public ::testing::Test {
 protected:
  CatalogTest() { group_.db().Run(ReadFile(LOCKSTEP_EXAMPLES "/catalog/read_model.sql")); }

  std::vector<std::string> Videos() {
    return group_.Rows(
        "SELECT title, description, duration_seconds, published_at, version, "
        "deleted_at IS NOT NULL FROM catalog_read.video_projection");
  }

  TestGroup group_{Yaml()};
};

TEST_F(CatalogTest, FitsItsTable) { EXPECT_TRUE(group_.Check().ok()) << group_.Check(); }

TEST_F(CatalogTest, FollowsAVideoThroughItsLifeInProtobuf) {
  video::events::VideoCreated created;
  created.set_video_id(kVideo);
  created.set_title("First");
  created.set_description("about");
  created.set_duration_seconds(90);
  created.mutable_published_at()->set_seconds(1'700'000'000);
  created.mutable_published_at()->set_nanos(500'000'000);
  EXPECT_THAT(group_.Apply({Proto("video.events.VideoCreated", 1, created)}),
              ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Videos(), ElementsAre("First|about|90|2023-11-14 22:13:20.5+00|1|f"));

  video::events::VideoUpdated updated;
  updated.set_video_id(kVideo);
  updated.set_title("Second");
  EXPECT_THAT(group_.Apply({Proto("video.events.VideoUpdated", 2, updated)}),
              ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Videos(), ElementsAre("Second|about|90|2023-11-14 22:13:20.5+00|2|f"));

  video::events::VideoDeleted deleted;
  deleted.set_video_id(kVideo);
  deleted.set_reason("spam");
  EXPECT_THAT(group_.Apply({Proto("video.events.VideoDeleted", 3, deleted)}),
              ElementsAre(Outcome::kApplied));
  EXPECT_THAT(Videos(), ElementsAre("Second|about|90|2023-11-14 22:13:20.5+00|3|t"));

  // A late older event changes nothing; the stored version with another event is a fork.
  EXPECT_THAT(group_.Apply({Proto("video.events.VideoUpdated", 2, updated)}),
              ElementsAre(Outcome::kSuperseded));
  EXPECT_THAT(group_.Apply({Proto("video.events.VideoUpdated", 3, updated)}),
              ElementsAre(Outcome::kConflict));
  EXPECT_THAT(Videos(), ElementsAre("Second|about|90|2023-11-14 22:13:20.5+00|3|t"));
}

TEST_F(CatalogTest, FoldsABatchOfOneVideoIntoOneRow) {
  video::events::VideoCreated created;
  created.set_video_id(kVideo);
  created.set_title("First");
  video::events::VideoUpdated updated;
  updated.set_video_id(kVideo);
  updated.set_description("late");
  EXPECT_THAT(group_.Apply({Proto("video.events.VideoCreated", 1, created),
                            Proto("video.events.VideoUpdated", 2, updated)}),
              ElementsAre(Outcome::kApplied, Outcome::kApplied));
  EXPECT_THAT(Videos(), ElementsAre("First|late|0|~|2|f"));
}

TEST_F(CatalogTest, FollowsAVideoThroughItsLifeInJson) {
  const auto json = [](const std::string& type, int64_t version, const std::string& rest) {
    return MakeEvent(type, kVideo, version, fmt::format(R"({{"video_id":"{}"{}}})", kVideo, rest));
  };
  group_.Apply({json("video.events.VideoCreated", 1,
                     R"(,"title":"First","durationSeconds":"9007199254740993",)"
                     R"("published_at":"2023-11-14T22:13:20.5Z")")});
  EXPECT_THAT(Videos(), ElementsAre("First||9007199254740993|2023-11-14 22:13:20.5+00|1|f"));
  // Absent is not null, and null is.
  group_.Apply(
      {json("video.events.VideoUpdated", 2, R"(,"description":"more","published_at":null)")});
  EXPECT_THAT(Videos(), ElementsAre("First|more|9007199254740993|~|2|f"));
  group_.Apply({json("video.events.VideoDeleted", 3, R"(,"reason":"spam")")});
  EXPECT_THAT(Videos(), ElementsAre("First|more|9007199254740993|~|3|t"));
}

// The payload is an Event, and what happened is the member of its oneof.
TEST_F(CatalogTest, TakesTheEventsOutOfTheirEnvelope) {
  std::string yaml = Yaml();
  yaml.insert(yaml.find("\nprojections:"),
              "\nenvelope: {message: video.events.Event, oneof: payload}");
  const auto enveloped = LoadText(yaml, "", TestGroup::DefaultOptions());
  ASSERT_TRUE(enveloped.ok()) << enveloped.status();
  auto connection = group_.db().Connect();
  video::events::Event event;
  event.set_event_type(video::events::VIDEO_CREATED);
  event.mutable_created()->set_video_id(kVideo);
  event.mutable_created()->set_title("First");
  const auto created =
      ApplyTo(*enveloped->projector, *connection, {Proto("video.events.VideoCreated", 1, event)});
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_THAT(Videos(), ElementsAre("First||0|~|1|f"));
  const auto updated = ApplyTo(
      *enveloped->projector, *connection,
      {MakeEvent("video.events.VideoUpdated", kVideo, 2,
                 fmt::format(R"({{"event_type":"VIDEO_UPDATED","updated":{{"video_id":"{}",)"
                             R"("title":"Second"}}}})",
                             kVideo))});
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_THAT(Videos(), ElementsAre("Second||0|~|2|f"));
}

TEST_F(CatalogTest, ParksAMergeThatSkipsAVersionAndNoSnapshot) {
  EXPECT_TRUE(group_.projector().ParksOnGap(MakeEvent("video.events.VideoUpdated", kVideo, 3, "")));
  EXPECT_FALSE(
      group_.projector().ParksOnGap(MakeEvent("video.events.VideoCreated", kVideo, 3, "")));
  EXPECT_FALSE(
      group_.projector().ParksOnGap(MakeEvent("video.events.VideoDeleted", kVideo, 3, "")));
}

}  // namespace
}  // namespace lockstep::projections
