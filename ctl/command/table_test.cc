#include "ctl/command/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ctl/command/when.h"

namespace lockstep::ctl {
namespace {

using enum Table::Column::Kind;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Terminal, CountsColumnsAndNotBytes) {
  EXPECT_EQ(WidthOf("müll"), 4);
  EXPECT_EQ(WidthOf("日本語"), 6);
  EXPECT_EQ(WidthOf("e\u0301"), 1) << "a combining accent takes no place";
  EXPECT_EQ(WidthOf("\xff"), 1);
  EXPECT_EQ(Cut("日本語", 6), "日本語");
  EXPECT_EQ(Cut("日本語", 5), "日本…");
  EXPECT_EQ(Cut("日本語", 4), "日…");
  EXPECT_EQ(Cut("the end of", 8), "the end…");
}

Table Events() {
  Table table({{"KEY"}, {"VERSION", kNumber}, {"WHEN", kTime}, {"EMPTY"}, {"WHY", kCut}});
  table.Add({"日本", 7, "2026-01-31T12:00:00.123456Z", "", std::string("a long reason\x1b[2J")});
  table.Add({"item/müller", 12345, Json(), Json(), "short"});
  return table;
}

TEST(Table, AlignsWhateverTheKeysAndLeavesOutWhatIsEmpty) {
  EXPECT_EQ(Events().Text(0, /*colour=*/false),
            "KEY          VERSION  WHEN                  WHY\n"
            "日本               7  2026-01-31T12:00:00Z  a long reason\\u001b[2J\n"
            "item/müller    12345                        short\n");
}

TEST(Table, CutsWhatMayBeCutAndNothingElse) {
  const std::string text = Events().Text(56, /*colour=*/false);
  EXPECT_THAT(text, HasSubstr("2026-01-31T12:00:00Z  a long reas…\n"));
  for (const char* whole : {"item/müller", "12345"}) EXPECT_THAT(text, HasSubstr(whole));
}

TEST(Table, ShowsBlocksWhereNoLineIsWideEnough) {
  EXPECT_EQ(Events().Text(30, /*colour=*/false),
            "KEY      日本\n"
            "VERSION  7\n"
            "WHEN     2026-01-31T12:00:00Z\n"
            "WHY      a long reason\\u001b[…\n"
            "\n"
            "KEY      item/müller\n"
            "VERSION  12345\n"
            "WHY      short\n");
}

TEST(Table, PaintsWithoutMovingAnything) {
  Table table({{"STATE"}, {"N", kNumber}});
  table.Add({Table::Cell("dead", StyleOf("dead")), 1});
  EXPECT_EQ(table.Text(0, true), "\033[1mSTATE\033[0m  \033[1mN\033[0m\n\033[31mdead\033[0m   1\n");
  EXPECT_THAT(table.Text(0, false), Not(HasSubstr("\033")));
}

TEST(When, TakesWhatIsPrintedAndWhatPeopleSay) {
  const WallTime now = *ParseTimestamp("2026-01-31T12:00:00Z");
  const auto when = [&](const char* text) {
    const auto time = ParseWhen("--since", text, now);
    return time.ok() ? FormatTimestamp(*time) : std::string(time.status().message());
  };
  EXPECT_EQ(when("2026-01-31T11:00:00+01:00"), "2026-01-31T10:00:00.000000Z");
  EXPECT_EQ(when("5m ago"), "2026-01-31T11:55:00.000000Z");
  EXPECT_EQ(when("1h30m"), "2026-01-31T10:30:00.000000Z");
  EXPECT_EQ(when("now"), "2026-01-31T12:00:00.000000Z");
  EXPECT_THAT(when("yesterday"), HasSubstr("--since: 'yesterday' is not a time"));
  EXPECT_THAT(when(""), HasSubstr("is not a time"));
}

TEST(Json, WritesTimesOfPostgresInRfc3339) {
  EXPECT_EQ(Rfc3339("2026-01-31 12:00:00.5+00"), "2026-01-31T12:00:00.500000Z");
  EXPECT_EQ(Rfc3339("2026-01-31 12:00:00+05:30"), "2026-01-31T06:30:00.000000Z");
  EXPECT_EQ(Rfc3339("infinity"), "infinity");
}

}  // namespace
}  // namespace lockstep::ctl
