#include "emulator/wire/names.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::emulator {
namespace {

TEST(Names, TakesWellFormedOnesApart) {
  const auto name = ResourceName::Parse("projects/my-project/topics/video.events", "topics");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->project, "my-project");
  EXPECT_EQ(name->id, "video.events");
  EXPECT_TRUE(ResourceName::Parse("projects/example.com:shop/topics/a-_.~+%z", "topics").ok());
  EXPECT_TRUE(ResourceName::Parse("projects/p/topics/a" + std::string(254, '1'), "topics").ok());
}

TEST(Names, RefusesMalformedOnes) {
  for (const std::string name :
       {"", "topic", "projects/p", "projects/p/topics", "projects/p/topics/",
        "projects//topics/abc", "projects/p/topics/ab", "projects/p/topics/1abc",
        "projects/p/topics/googabc", "projects/p/topics/a b c", "projects/p/topics/abc/def",
        "projects/p/subscriptions/abc", "project/p/topics/abc", "projects/p q/topics/abc",
        "projects/p/topics/äbc", "projects/p/topics/_deleted-topic_", "_deleted-topic_",
        "/projects/p/topics/abc"}) {
    EXPECT_EQ(ResourceName::Parse(name, "topics").status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_FALSE(ResourceName::Parse("projects/p/topics/a" + std::string(255, '1'), "topics").ok());
}

TEST(Names, ChecksProjects) {
  EXPECT_TRUE(CheckProject("projects/p").ok());
  for (const std::string name : {"", "p", "projects/", "projects/p/", "projects/p/topics"}) {
    EXPECT_FALSE(CheckProject(name).ok()) << name;
  }
}

}  // namespace
}  // namespace lockstep::emulator
