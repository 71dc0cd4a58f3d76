#include <gmock/gmock.h>

#include "platform/status.h"
#include "publisher/backfill/source_check.h"
#include "publisher/backfill/source_query.h"
#include "publisher/testing/backfill_test.h"

namespace lockstep::publisher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SourceQueryTest : public BackfillTest {
 protected:
  // The keys in the order of pages of `rows`, up to the highest key.
  std::vector<std::string> Pages(const Declaration& declaration, int rows) {
    const auto query = SourceQuery::Make(*connection_, declaration);
    if (!query.ok()) return {std::string(MessageOf(query.status()))};
    const auto highest = query->Highest(*connection_).value();
    std::vector<std::string> keys;
    std::optional<KeyTexts> after;
    for (bool more = highest.has_value(); more;) {
      const auto page = query->Read(*connection_, after, *highest, rows);
      if (!page.ok()) return {std::string(MessageOf(page.status()))};
      for (const SourceRow& row : page->rows) {
        keys.push_back(fmt::format("{}", fmt::join(row.key, "|")));
      }
      if (!page->rows.empty()) after = page->rows.back().key;
      more = !page->last;
    }
    return keys;
  }
  // The source's own order of one column.
  std::vector<std::string> Sorted(const std::string& sql) {
    std::vector<std::string> keys;
    const auto rows = db_.Query(sql);
    for (int i = 0; i < rows.rows(); ++i) keys.emplace_back(rows.Text(i, 0));
    return keys;
  }
  SourceReport Check(const Declaration& declaration, bool scan = true) {
    const auto report = CheckSource(*connection_, declaration, scan);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.value_or(SourceReport());
  }
  std::string Problems(const Declaration& declaration) {
    return fmt::format("{}", fmt::join(Check(declaration).problems, "\n"));
  }

  std::unique_ptr<postgres::Connection> connection_ = db_.Connect();
};

// Values of every sort of type, in an order of the type and not of its text.
TEST_F(SourceQueryTest, ReadsKeysOfEveryTypeInTheirOwnOrder) {
  const std::vector<std::pair<std::string, std::string>> types = {
      {"bigint", "(random() * 1e6)::bigint * 11 - 3000000"},
      {"uuid", "gen_random_uuid()"},
      {"text", "chr(65 + i % 57) || 'ä' || i"},
      {"text COLLATE \"C\"", "chr(65 + i % 57) || i"},
      {"varchar(20)", "'v ' || i"},
      {"char(8)", "'c' || i"},
      {"timestamptz", "'2026-03-29 00:59:59.999999+00'::timestamptz + i * interval '17 min'"},
      {"date", "'2026-01-01'::date + i"},
      {"numeric", "(i::numeric - 40) / 7"},
      {"double precision", "sqrt(i::float8) * 1e-300"},
      {"bytea", "int4send(i * 65537)"},
      {"interval", "i * interval '1 day 7 s'"},
      {"int[]", "ARRAY[i % 7, i]"},
      {"boolean", "i = 1"},
  };
  for (const auto& [type, value] : types) {
    db_.Run("DROP TABLE IF EXISTS shop.t; CREATE TABLE shop.t (k " + type +
            " PRIMARY KEY, id bigint, version int)");
    db_.Run("INSERT INTO shop.t SELECT " + value + ", i, 1 FROM generate_series(1, " +
            (type == "boolean" ? "2" : "95") + ") i ON CONFLICT DO NOTHING");
    Declaration declaration = Items();
    declaration.table = "shop.t";
    declaration.key = {"k"};
    declaration.fields = {{"id", "id"}};
    EXPECT_EQ(Pages(declaration, 10), Sorted("SELECT k::text FROM shop.t t ORDER BY t.k")) << type;
  }
}

TEST_F(SourceQueryTest, ReadsCompositeKeysOfATableAndOfAQuery) {
  db_.Run(
      "CREATE TABLE shop.t (region text COLLATE \"C\", no int, version int, PRIMARY KEY (region, "
      "no))");
  db_.Run(
      "INSERT INTO shop.t SELECT r, i, 1 FROM unnest(ARRAY['b', 'a', 'B']) r, "
      "generate_series(1, 23) i");
  Declaration declaration = Items();
  declaration.table = "shop.t";
  declaration.key = {"region", "no"};
  declaration.aggregate_id = "no";
  declaration.fields = {{"no", "no"}};
  const auto sorted = Sorted("SELECT region || '|' || no FROM shop.t ORDER BY region, no");
  for (const int rows : {1, 7, 23, 69, 1000}) EXPECT_EQ(Pages(declaration, rows), sorted) << rows;
  declaration.table = "";
  declaration.query = "SELECT * FROM shop.t WHERE no > 20 -- the last";
  EXPECT_THAT(Pages(declaration, 2),
              ElementsAre("B|21", "B|22", "B|23", "a|21", "a|22", "a|23", "b|21", "b|22", "b|23"));
}

TEST_F(SourceQueryTest, EndsAtTheHighestKeyThatItWasGiven) {
  Fill(10);
  const auto query = SourceQuery::Make(*connection_, Items()).value();
  db_.Run("INSERT INTO shop.items VALUES (11, 'later', NULL, 1)");
  const auto page = query.Read(*connection_, KeyTexts{"7"}, {"10"}, 100).value();
  ASSERT_EQ(page.rows.size(), 3U);
  EXPECT_TRUE(page.last);
  EXPECT_EQ(page.rows[0].payload, R"({"id":8,"name":"item 8"})");
}

TEST_F(SourceQueryTest, WideRowsMakeShortPages) {
  db_.Run(
      "INSERT INTO shop.items SELECT i, repeat('x', 3000000), NULL, 1 FROM generate_series(1, 20) "
      "i");
  const auto query = SourceQuery::Make(*connection_, Items()).value();
  const auto page = query.Read(*connection_, std::nullopt, {"20"}, 100).value();
  EXPECT_LT(page.rows.size(), 8U);
  EXPECT_GT(page.rows.size(), 1U);
  EXPECT_FALSE(page.last);
  EXPECT_EQ(Pages(Items(), 100).size(), 20U);
}

TEST_F(SourceQueryTest, BytesGoAsBase64) {
  db_.Run(
      "CREATE DOMAIN shop.photo AS bytea; CREATE TABLE shop.t (id int PRIMARY KEY, a bytea, b "
      "shop.photo, version int)");
  db_.Run("INSERT INTO shop.t SELECT 1, decode(repeat('00ff', 60), 'hex'), '\\x0001', 1");
  Declaration declaration = Items();
  declaration.table = "shop.t";
  declaration.fields = {{"a", "a"}, {"b", "b"}};
  const auto query = SourceQuery::Make(*connection_, declaration).value();
  const auto page = query.Read(*connection_, std::nullopt, {"1"}, 10).value();
  EXPECT_THAT(page.rows[0].payload, HasSubstr("\"b\":\"AAE=\""));
  EXPECT_THAT(page.rows[0].payload, ::testing::Not(HasSubstr("\\n")));
}

TEST_F(SourceQueryTest, FindsTheRowsOfGivenKeys) {
  Fill(10);
  const auto query = SourceQuery::Make(*connection_, Items()).value();
  const auto page = query.ReadKeys(*connection_, {{"3"}, {"99"}, {"007"}}).value();
  ASSERT_EQ(page.rows.size(), 2U);
  std::map<int64_t, std::string> found;
  for (const SourceRow& row : page.rows) found[row.n] = row.key[0];
  EXPECT_EQ(found, (std::map<int64_t, std::string>{{1, "3"}, {3, "7"}}));
}

TEST_F(SourceQueryTest, WideRowsOfGivenKeysComeAFewAtATime) {
  Fill(10);
  db_.Run("UPDATE shop.items SET name = repeat('x', 5 << 20) WHERE id <= 6");
  const auto query = SourceQuery::Make(*connection_, Items()).value();
  std::vector<KeyTexts> keys;
  for (int i = 10; i > 0; --i) keys.push_back({fmt::format("{}", i)});
  const auto page = query.ReadKeys(*connection_, keys).value();
  EXPECT_EQ(page.rows.size(), 8U);
  EXPECT_EQ(page.keys, 8U);
  EXPECT_EQ(page.rows.back().key, keys[7]);
  EXPECT_LT(page.bytes, 21 << 20);
  EXPECT_FALSE(page.last);
  EXPECT_EQ(query.ReadKeys(*connection_, {{"9"}, {"99"}})->keys, 2U);
}

TEST_F(SourceQueryTest, AQueryCanNotWrite) {
  Fill(3);
  Declaration declaration = Items();
  declaration.table = "";
  declaration.query = "SELECT * FROM shop.items) q; DELETE FROM shop.items; --";
  EXPECT_FALSE(SourceQuery::Make(*connection_, declaration).ok());
  db_.Run(
      "CREATE FUNCTION shop.spoil() RETURNS bigint LANGUAGE sql AS "
      "'DELETE FROM shop.items RETURNING 1::bigint'");
  declaration.query =
      "SELECT id, name, tenant, coalesce(shop.spoil(), version) AS version FROM shop.items";
  EXPECT_THAT(Pages(declaration, 2)[0], HasSubstr("read-only"));
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.items"), 3);
}

TEST_F(SourceQueryTest, EachUnfitSourceIsASentence) {
  Declaration declaration = Items();
  declaration.table = "shop.gone";
  EXPECT_THAT(Problems(declaration), HasSubstr("shop.gone can't be read"));
  declaration = Items();
  declaration.version = "versio";
  EXPECT_THAT(Problems(declaration), HasSubstr("column q.versio does not exist"));
  declaration = Items();
  declaration.version = "name";
  EXPECT_THAT(Problems(declaration), HasSubstr("must be a smallint, integer or bigint"));
  declaration = Items();
  declaration.table = "";
  declaration.query = "SELECT to_json(id) AS id, name, version FROM shop.items";
  EXPECT_THAT(Problems(declaration), HasSubstr("can't be sorted"));
  declaration.query = "SELEC";
  EXPECT_THAT(Problems(declaration), HasSubstr("syntax error"));
}

TEST_F(SourceQueryTest, ChecksRowByRow) {
  Fill(3);
  EXPECT_THAT(Check(Items()).problems, IsEmpty());
  EXPECT_EQ(Check(Items()).rows, 3);
  EXPECT_THAT(Check(Items()).warnings, IsEmpty());
  db_.Run("ALTER TABLE shop.items ADD deleted_at timestamptz");
  EXPECT_THAT(Check(Items()).warnings,
              ElementsAre(HasSubstr("shop.items has a column deleted_at, which is not sent")));
  Declaration marked = Items();
  marked.fields.emplace_back("deleted_at", "deleted_at");
  EXPECT_THAT(Check(marked).warnings, IsEmpty());
  db_.Run("ALTER TABLE shop.items DROP deleted_at");
  db_.Run(
      "ALTER TABLE shop.items DROP CONSTRAINT items_pkey; ALTER TABLE shop.items ALTER id DROP NOT "
      "NULL; "
      "INSERT INTO shop.items VALUES (2, 'twin', NULL, 1), (NULL, 'none', NULL, NULL)");
  const std::string problems = Problems(Items());
  EXPECT_THAT(problems, HasSubstr("1 rows of shop.items have NULL in the key (id)"));
  EXPECT_THAT(problems, HasSubstr("NULL, 0 or less in version"));
  EXPECT_THAT(problems, HasSubstr("is not unique: (2)"));
  EXPECT_THAT(Check(Items(), /*scan=*/false).warnings, ::testing::SizeIs(2));
  // Across the border of two pages, too.
  for (const int rows : {1, 2, 10}) {
    db_.Run("DELETE FROM shop.items WHERE id IS NULL");
    EXPECT_THAT(Pages(Items(), rows)[0], HasSubstr("is not unique: two rows have (2)")) << rows;
  }
}

TEST_F(SourceQueryTest, FindsRowsWhoseVersionIsBehindTheOutbox) {
  Fill(8);
  Enqueue("5", 1);
  EXPECT_EQ(Problems(Items()), "");
  Enqueue("5", 2);
  Enqueue({.key = "6", .version = 9, .tenant = "acme"});  // another aggregate
  EXPECT_THAT(
      Problems(Items()),
      HasSubstr("1 rows of shop.items have a version behind that of an event in shop.outbox "
                "(5 has 1 and an event of 2)"));
  db_.Run("UPDATE shop.items SET tenant = 'acme' WHERE id IN (5, 6)");
  Declaration declaration = Items();
  declaration.tenant = "tenant";
  EXPECT_THAT(Problems(declaration), HasSubstr("(6 has 1 and an event of 9)"));
}

// Of two snapshots of one aggregate and version a consumer would drop the second.
TEST_F(SourceQueryTest, RefusesTwoRowsOfOneAggregate) {
  db_.Run(
      "CREATE TABLE shop.lines (line int PRIMARY KEY, id text NOT NULL, tenant text, version int); "
      "INSERT INTO shop.lines VALUES (1, 'a', 't', 1), (2, 'b', 't', 1), (3, 'a', 'u', 1), "
      "(4, 'c', NULL, 1)");
  Declaration lines = Items();
  lines.table = "shop.lines";
  lines.key = {"line"};
  lines.fields = {{"id", "id"}};
  EXPECT_THAT(Problems(lines), HasSubstr("two rows of shop.lines are of the aggregate item/a"));
  lines.tenant = "tenant";
  EXPECT_EQ(Problems(lines), "");
  // An index that lets NULLs repeat proves nothing.
  db_.Run(
      "CREATE UNIQUE INDEX ON shop.lines (tenant, id); INSERT INTO shop.lines VALUES "
      "(5, 'c', NULL, 2)");
  EXPECT_THAT(Problems(lines), HasSubstr("of the aggregate item/c"));
  lines.table = "";
  lines.query = "SELECT DISTINCT ON (id, tenant) * FROM shop.lines ORDER BY id, tenant, version";
  EXPECT_EQ(Problems(lines), "");
}

}  // namespace
}  // namespace lockstep::publisher
