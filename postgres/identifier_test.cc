#include "postgres/identifier.h"

#include <gtest/gtest.h>

namespace lockstep::postgres {
namespace {

TEST(QuoteLiteral, DoublesWhatWouldEndIt) {
  EXPECT_EQ(QuoteLiteral("plain"), "'plain'");
  EXPECT_EQ(QuoteLiteral("it's"), "'it''s'");
  EXPECT_EQ(QuoteLiteral("a\\'b"), "E'a\\\\''b'");
}

TEST(Identifier, QuotesWhatCouldEndIt) {
  EXPECT_EQ(QuoteIdentifier("plain"), "\"plain\"");
  EXPECT_EQ(QuoteIdentifier("a\"; DROP TABLE x; --"), "\"a\"\"; DROP TABLE x; --\"");
}

TEST(QualifiedName, TakesPlainAndQuotedParts) {
  EXPECT_EQ(QualifiedName::Parse("catalog.video_outbox")->Quoted(), "\"catalog\".\"video_outbox\"");
  EXPECT_EQ(QualifiedName::Parse("\"odd.schema\".\"ta\"\"ble\"")->name, "ta\"ble");
}

TEST(QualifiedName, ReadsBackWhatItShows) {
  for (const QualifiedName& name :
       {QualifiedName{"catalog", "video_outbox"}, QualifiedName{"odd.schema", "ta\"ble"},
        QualifiedName{"with space", "x'; DROP TABLE y.z; --"}}) {
    EXPECT_EQ(*QualifiedName::Parse(name.ToString()), name) << name.ToString();
  }
  EXPECT_EQ((QualifiedName{"catalog", "video_outbox"}).ToString(), "catalog.video_outbox");
}

TEST(QualifiedName, RefusesWhatIsNoTable) {
  for (const char* text : {"", "table", "a.b.c", ".t", "s.", "\"s.t"}) {
    EXPECT_FALSE(QualifiedName::Parse(text).ok()) << text;
  }
  EXPECT_FALSE(QualifiedName::Parse("s." + std::string(64, 'x')).ok());
}

TEST(FillNames, ReplacesTheNamesThatItIsGivenAndNothingElse) {
  EXPECT_EQ(FillNames("SELECT '{}'::int[], '{a,b}' FROM {state}.inbox, {state}.t{",
                      {{"state", R"("s")"}, {"table", "x"}}),
            R"(SELECT '{}'::int[], '{a,b}' FROM "s".inbox, "s".t{)");
  EXPECT_EQ(FillNames("{a}{b}", {{"a", "{b}"}, {"b", "1"}}), "{b}1");
}

}  // namespace
}  // namespace lockstep::postgres
