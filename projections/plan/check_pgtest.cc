#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"
#include "projections/testing/test_group.h"

// The declaration against the live table: refused before the first message, with place and cure.
namespace lockstep::projections {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kProto[] = R"(
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
enum Size { SMALL = 0; LARGE = 1; }
message Made {
  string id = 1; int64 big = 2; int32 small = 3; uint64 huge = 4; double real = 5; bool flag = 6;
  bytes raw = 7; Size size = 8; repeated string tags = 9; google.protobuf.Timestamp at = 10;
  google.protobuf.Duration took = 11; map<string, string> labels = 12;
}
)";

std::string Yaml(const std::string& set, const std::string& more = "") {
  return "group: shop\nsubscription: s\ndescriptors: %DESCRIPTORS%\nprojections:\n"
         "  - name: things\n    table: shop.thing\n    key: id\n    version: version\n" +
         more + "    events:\n      Made: {replace: " + set + "}\n";
}

class CheckTest : public ::testing::Test {
 protected:
  // What Check says about a table with these columns (besides key and version).
  std::string Check(const std::string& yaml, const std::string& columns,
                    const std::string& key = "id text PRIMARY KEY",
                    const std::string& version = "version bigint NOT NULL") {
    db_.Run("DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop; CREATE TABLE shop.thing (" +
            key + (version.empty() ? "" : ", " + version) +
            (columns.empty() ? "" : ", " + columns) + ")");
    return CheckLive(yaml);
  }
  std::string CheckLive(const std::string& yaml) {
    const auto loaded = LoadText(yaml, descriptors_->path(), TestGroup::DefaultOptions());
    if (!loaded.ok()) return std::string(MessageOf(loaded.status()));
    const absl::Status checked = loaded->projector->Check(*connection_);
    return checked.ok() ? "OK" : std::string(MessageOf(checked));
  }

  testing::TestDatabase db_;
  std::unique_ptr<postgres::Connection> connection_ = db_.Connect();
  std::unique_ptr<TempFile> descriptors_ = DescriptorsOf(kProto);
};

TEST_F(CheckTest, ComparesEveryTypeWithItsColumn) {
  struct Case {
    const char* field;
    const char* fits;
    const char* refused;
    const char* cure;
  };
  for (const Case& c : std::vector<Case>{
           {"big", "bigint", "integer", "make the column bigint"},
           {"big", "numeric", "boolean", "make the column bigint"},
           {"small", "integer", "smallint", "make the column integer"},
           {"huge", "numeric", "bigint", "make the column numeric(20,0)"},
           {"real", "double precision", "real", "make the column double precision"},
           {"flag", "boolean", "integer", "make the column boolean"},
           {"raw", "bytea", "text", "make the column bytea"},
           {"size", "text", "integer", "make the column text"},
           {"{field: size, as: number}", "integer", "uuid", "make the column integer"},
           {"tags", "text[]", "text", "make the column text[]"},
           {"tags", "character varying[]", "jsonb", "make the column text[]"},
           {"{field: tags, as: jsonb}", "jsonb", "text[]", "make the column jsonb"},
           {"at", "timestamptz", "bigint", "make the column timestamptz"},
           {"at", "date", "interval", "make the column timestamptz"},
           {"took", "interval", "bigint", "make the column interval"},
           {"labels", "jsonb", "bytea", "make the column jsonb"},
           {"id", "uuid", "bigint", "make the column text"},
           {"{field: id, type: bigint}", "bigint", "integer", "make them the same"},
           {"{value: 7}", "bigint", "boolean[]", "value 7 is no boolean[]"},
           {"{value: x}", "text", "bigint", "value x is no bigint"},
           {"{now: true}", "timestamptz", "bigint", "make the column timestamptz"},
           {"{attribute: occurred_at}", "timestamptz", "bigint", "make the column timestamptz"}}) {
    const std::string yaml = Yaml(fmt::format("{{c: {}}}", c.field));
    EXPECT_EQ(Check(yaml, fmt::format("c {}", c.fits)), "OK") << c.field << " into " << c.fits;
    const std::string refused = Check(yaml, fmt::format("c {}", c.refused));
    EXPECT_THAT(refused, HasSubstr(c.cure)) << c.field << " into " << c.refused;
    EXPECT_THAT(refused, HasSubstr("group.yaml:10:")) << c.field;
  }
}

TEST_F(CheckTest, NamesWhatIsMissing) {
  EXPECT_THAT(CheckLive(Yaml("[big]")),
              HasSubstr("table shop.thing does not exist; lockstepctl projection ddl"));
  EXPECT_THAT(
      Check(Yaml("{bigg: big}"), "big bigint"),
      HasSubstr("table shop.thing has no column 'bigg'; did you mean 'big'? Or: ALTER TABLE "
                "\"shop\".\"thing\" ADD COLUMN \"bigg\" bigint"));
  EXPECT_THAT(Check(Yaml("[big]"), "big bigint", "id text PRIMARY KEY", ""),
              HasSubstr("table shop.thing has no column 'version'"));
  EXPECT_THAT(Check(Yaml("[big]"), "big bigint", "id text"),
              HasSubstr("no primary key or unique index on exactly (id)"));
  EXPECT_THAT(Check(Yaml("[big]"), "big bigint", "id text, UNIQUE (id) DEFERRABLE"),
              HasSubstr("no primary key or unique index on exactly (id)"));
  EXPECT_THAT(
      Check(Yaml("[big]"), "big bigint, other text NOT NULL"),
      HasSubstr("column shop.thing.other is NOT NULL without a default, and no event maps"));
  EXPECT_EQ(Check(Yaml("[big]"), "big bigint, other text NOT NULL DEFAULT ''"), "OK");
}

TEST_F(CheckTest, LooksAtTheBookkeepingColumns) {
  EXPECT_THAT(Check(Yaml("[big]"), "big bigint", "id text PRIMARY KEY", "version int NOT NULL"),
              HasSubstr("version column shop.thing.version is integer; make it bigint"));
  EXPECT_THAT(Check(Yaml("[big]"), "big bigint", "id text PRIMARY KEY", "version bigint"),
              HasSubstr("version column shop.thing.version may be NULL"));
  EXPECT_THAT(Check(Yaml("[big]", "    updated_at: u\n"), "big bigint, u text"),
              HasSubstr("column shop.thing.u is text; make it timestamptz"));
  EXPECT_THAT(Check(Yaml("[big]", "    deleted_at: d\n"), "big bigint, d timestamptz NOT NULL"),
              HasSubstr("DROP NOT NULL"));
  EXPECT_THAT(Check(Yaml("[big]"), "big bigint GENERATED ALWAYS AS (version * 2) STORED"),
              HasSubstr("is generated by the database"));
  EXPECT_THAT(
      Check(Yaml("[big]", "    deleted_at: d\n") + "      Gone: {message: shop.Made, delete: }\n",
            "big bigint NOT NULL, d timestamptz"),
      HasSubstr("a soft delete of a row that is not there could not be stored"));
}

TEST_F(CheckTest, WantsCountersThatCanCount) {
  const std::string yaml =
      "group: shop\nsubscription: s\ndescriptors: %DESCRIPTORS%\nprojections:\n"
      "  - {name: n, table: shop.thing, key: id, events: {Made: {increment: {n: {value: 1}}}}}\n";
  EXPECT_EQ(Check(yaml, "n bigint", "id text PRIMARY KEY", ""), "OK");
  EXPECT_THAT(Check(yaml, "n text", "id text PRIMARY KEY", ""),
              HasSubstr("which nothing can be added to; make it bigint"));
}

TEST_F(CheckTest, MissesNoRight) {
  Check(Yaml("[big]"), "big bigint");
  db_.Run("CREATE ROLE reader_" + db_.name() + " LOGIN; GRANT USAGE ON SCHEMA shop TO reader_" +
          db_.name() + "; GRANT SELECT, INSERT ON shop.thing TO reader_" + db_.name());
  postgres::ConnectionOptions options;
  options.url = db_.UrlAs("reader_" + db_.name());
  connection_ = *postgres::Connection::Open(options);
  EXPECT_THAT(CheckLive(Yaml("[big]")),
              HasSubstr(fmt::format("role reader_{} may not UPDATE on shop.thing; GRANT UPDATE",
                                    db_.name())));
  connection_.reset();
  db_.Run("DROP OWNED BY reader_" + db_.name() + "; DROP ROLE reader_" + db_.name());
}

TEST_F(CheckTest, ListsEveryMismatchAtOnce) {
  const std::string words = Check(Yaml("[big, flag, tags]"), "big integer, flag text");
  EXPECT_THAT(words, HasSubstr("field big (int64) does not fit"));
  EXPECT_THAT(words, HasSubstr("no column 'tags'"));
  EXPECT_THAT(words, Not(HasSubstr("flag")));
}

TEST_F(CheckTest, RefusesAFieldThatWasRenumberedOrRetypedSinceTheLastStart) {
  ASSERT_TRUE(MigrateState(*connection_).ok());
  ASSERT_EQ(Check(Yaml("[big]"), "big numeric"), "OK");
  const auto with = [&](const std::string& field) {
    descriptors_ = DescriptorsOf(
        "syntax = \"proto3\"; package shop; message Made { string id = 1; " + field + " }");
    return CheckLive(Yaml("[big]"));
  };
  EXPECT_EQ(with("int64 big = 2; string added = 3;"), "OK");
  EXPECT_THAT(with("int64 big = 3;"),
              HasSubstr("field big of shop.Made was renumbered (int64, number 2) and is int64, "
                        "number 3, now"));
  EXPECT_THAT(with("int32 big = 2;"), HasSubstr("field big of shop.Made was retyped"));
  EXPECT_THAT(with("int64 other = 2;"), HasSubstr("message shop.Made has no field 'big'"));
  EXPECT_EQ(with("int64 big = 2;"), "OK");
}

}  // namespace
}  // namespace lockstep::projections
