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

TEST(Text, TruncatesToWhatPostgresTakesAsText) {
  using namespace std::string_view_literals;
  EXPECT_EQ(Truncate("a\0b"sv, 99), "a?b");
  EXPECT_EQ(Truncate("a\xFF\xC3", 99), "a??");
  EXPECT_EQ(Truncate("\xED\xA0\x80", 99), "???");  // a surrogate
  EXPECT_TRUE(ValidUtf8(Truncate("a\xF4\x90\x80\x80z", 3)));
}

}  // namespace
}  // namespace lockstep
