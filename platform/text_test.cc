#include "platform/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Text, SplitsListsAsPeopleWriteThem) {
  EXPECT_THAT(SplitList(" a, b,,c ", ','), ::testing::ElementsAre("a", "b", "c"));
  EXPECT_THAT(SplitList("", ','), ::testing::IsEmpty());
}

TEST(Text, TruncatesBetweenCharacters) {
  EXPECT_EQ(Truncate("grün", 3), "gr");
  EXPECT_EQ(Truncate("grün", 4), "grü");
  EXPECT_EQ(Truncate("grün", 99), "grün");
}

}  // namespace
}  // namespace lockstep
