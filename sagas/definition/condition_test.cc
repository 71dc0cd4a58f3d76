#include "sagas/definition/condition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"

namespace lockstep::sagas {
namespace {

using ::testing::HasSubstr;

const Json& Context() {
  static const Json context = Json::parse(R"({
    "input": {"total": 10, "exact": 10.0, "big": 9007199254740993, "huge": 18446744073709551615,
              "neg": -1, "name": "Ada", "ümlaut": "ß", "free": false, "gold": true, "none": null,
              "items": [{"id": "a"}, {"id": "b"}], "a b": 1, "__proto__": {"x": true},
              "map": {"a": 1, "b": [2]}, "pam": {"b": [2.0], "a": 1}, "one": "1", "empty": ""},
    "steps": {"check": {"verdict": "known", "score": 0.75}},
    "saga": {"id": "1", "tenant": null, "key": "k", "definition": "order", "version": 3}})");
  return context;
}

struct Case {
  std::string text;
  bool holds;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.text; }

class ConditionHolds : public ::testing::TestWithParam<Case> {};

TEST_P(ConditionHolds, AsItReads) {
  const auto condition = Condition::Parse(GetParam().text);
  ASSERT_TRUE(condition.ok()) << condition.status();
  EXPECT_EQ(condition->Holds(Context()), GetParam().holds) << GetParam().text;
  EXPECT_EQ(condition->Holds(Context()), GetParam().holds) << "twice is the same";
}

INSTANTIATE_TEST_SUITE_P(
    Values, ConditionHolds,
    ::testing::Values(Case{"true", true}, Case{"false", false}, Case{"null", false},
                      Case{"1", false}, Case{"'true'", false}, Case{"$.input.gold", true},
                      Case{"$.input.free", false}, Case{"$.input.total", false},
                      Case{"$.input.name", false}, Case{"$.input.missing", false},
                      Case{"$.input.missing?", false}, Case{"not $.input.missing", true},
                      Case{"not not $.input.gold", true}, Case{"($.input.gold)", true},
                      Case{"((not $.input.free))", true}, Case{" \t\n$.input.gold\r\n ", true}));

INSTANTIATE_TEST_SUITE_P(
    Numbers, ConditionHolds,
    ::testing::Values(Case{"$.input.total > 0", true}, Case{"$.input.total>0", true},
                      Case{"$.input.total == 10.0", true}, Case{"$.input.exact == 10", true},
                      Case{"$.input.total != 10", false}, Case{"$.input.total >= 10", true},
                      Case{"$.input.total <= 10", true}, Case{"$.input.total < 10", false},
                      Case{"-1 == $.input.neg", true}, Case{"$.input.neg < $.input.huge", true},
                      Case{"$.input.neg == $.input.huge", false},
                      Case{"$.input.huge > $.input.neg", true},
                      Case{"$.input.big == 9007199254740993", true},
                      Case{"$.input.big == 9007199254740992", false},
                      Case{"$.input.big > 9007199254740992", true},
                      Case{"$.steps.check.score >= 7.5e-1", true}, Case{"1e3 == 1000", true},
                      Case{"-0 == 0", true}, Case{"-0.0 == 0", true}));

INSTANTIATE_TEST_SUITE_P(
    TextsAndOthers, ConditionHolds,
    ::testing::Values(
        Case{"$.input.name == 'Ada'", true}, Case{"$.input.name < 'Bob'", true},
        Case{"$.input.name < 'Ad'", false}, Case{"'z' < 'ß'", true},
        Case{"$.input.ümlaut == 'ß'", true}, Case{"'it''s' == 'it''s'", true},
        Case{"'' == $.input.empty", true}, Case{"'and' == 'and'", true},
        Case{"$.input.none == null", true}, Case{"$.input.missing == null", true},
        Case{"$.input.name != null", true}, Case{"$.input.none != null", false},
        Case{"$.saga.tenant == null", true}, Case{"$.saga.version >= 3", true},
        Case{"$.steps.other.id == null", true}, Case{"$.input.items[1].id == 'b'", true},
        Case{"$.input.items[2].id == null", true}, Case{"$.input[\"a b\"] == 1", true},
        Case{"$.input.__proto__.x", true}, Case{"$.input.constructor == null", true},
        Case{"$.input.items.length == null", true}, Case{"$.input.map == $.input.pam", true},
        Case{"$.input.map != $.input.items", true},
        // Of different types: never equal, never in an order, never an error.
        Case{"$.input.total == '10'", false}, Case{"$.input.total != '10'", true},
        Case{"$.input.one < 2", false}, Case{"$.input.one > 0", false},
        Case{"$.input.gold > false", false}, Case{"null < 1", false}, Case{"null >= null", false},
        Case{"$.input.items < $.input.map", false}));

INSTANTIATE_TEST_SUITE_P(
    Binding, ConditionHolds,
    ::testing::Values(
        Case{"true or false and false", true}, Case{"(true or false) and false", false},
        Case{"not true or true", true}, Case{"not (true or true)", false},
        Case{"not $.input.total == 11", true}, Case{"false or false or true", true},
        Case{"true and true and false", false},
        Case{"$.input.total > 0 and not ($.input.free or $.steps.check.verdict == 'new')", true},
        Case{"$.input.free-or == null", true}, Case{"not(true)", false}));

struct Bad {
  std::string text;
  std::string says;
};
void PrintTo(const Bad& value, std::ostream* out) { *out << value.text; }

class ConditionRefuses : public ::testing::TestWithParam<Bad> {};

TEST_P(ConditionRefuses, WithPlaceAndCure) {
  const auto condition = Condition::Parse(GetParam().text);
  ASSERT_FALSE(condition.ok()) << GetParam().text;
  EXPECT_THAT(std::string(MessageOf(condition.status())), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, ConditionRefuses,
    ::testing::Values(
        Bad{"", "at character 1: a path or a value is wanted"},
        Bad{"$.input.a ==", "at character 13: a path or a value"},
        Bad{"$.input.a = 1", "at character 11: '=' is no comparison; write =="},
        Bad{"$.input.a && true", "at character 11: '&&' is written and"},
        Bad{"true || true", "'||' is written or"}, Bad{"!true", "'!' is written not"},
        Bad{"$.input.a == \"x\"", "single quotes"}, Bad{"'open", "has no end"},
        Bad{"'open''", "has no end"}, Bad{"(true", "a ')' is missing"}, Bad{"true)", "not ')'"},
        Bad{"1 < 2 < 3", "put 'and' between"}, Bad{"(true) == true", "no parentheses"},
        Bad{"input.total > 0", "'input' is neither a path"}, Bad{"$input", "'$' is neither a path"},
        Bad{"$.", "a name is wanted after '$.'"}, Bad{"$.input..a", "a name is wanted after '.'"},
        Bad{"$.input[x]", "in brackets"}, Bad{"$.input[-1]", "in brackets"},
        Bad{"$.input[99999999999999999999]", "in brackets"}, Bad{"$.input[\"a]", "does not end"},
        Bad{"$.input[0", "a ']' is missing"}, Bad{"01 == 1", "is no number"},
        Bad{"1e999 > 0", "is no number"}, Bad{"- 1", "is no number"}, Bad{"1-1", "is no number"},
        Bad{"True", "'True' is neither"}, Bad{"truex", "'truex' is neither"},
        Bad{"nota", "'nota' is neither"}, Bad{"true true", "not 'true'"},
        Bad{"system('x')", "'system' is neither"}, Bad{"$.input.a; drop", "not ';'"},
        Bad{"\xff", "no UTF-8"}, Bad{"“x”", "is neither a path"}));

TEST(Condition, IsBoundedInDepthAndLength) {
  const auto nested = [](int depth) {
    return std::string(depth, '(') + "true" + std::string(depth, ')');
  };
  EXPECT_TRUE(Condition::Parse(nested(Condition::kMaxDepth)).ok());
  EXPECT_THAT(std::string(MessageOf(Condition::Parse(nested(400)).status())),
              HasSubstr("more than 32 levels"));
  std::string nots;
  for (int i = 0; i < 200; ++i) nots += "not ";
  EXPECT_THAT(std::string(MessageOf(Condition::Parse(nots + "true").status())),
              HasSubstr("more than 32 levels"));
  EXPECT_THAT(std::string(MessageOf(Condition::Parse(std::string(2'000, ' ') + "true").status())),
              HasSubstr("more than 1024 bytes"));
  // As many as fit, side by side: no deeper for it.
  std::string many = "true";
  while (many.size() + 8 < Condition::kMaxBytes) many += " or true";
  EXPECT_TRUE(Condition::Parse(many)->Holds(Context()));
}

TEST(Condition, ComparesValuesOfAnyDepth) {
  Json deep;
  for (int i = 0; i < 2'000; ++i) deep = Json::array({std::move(deep)});
  const Json context = {{"input", {{"a", deep}, {"b", deep}}}};
  EXPECT_TRUE(Condition::Parse("$.input.a == $.input.b")->Holds(context));
}

TEST(Condition, HoldsForNothingInContextsThatAreNone) {
  const auto condition = Condition::Parse("$.input.a == null and $.steps.b.c == null");
  for (const char* context : {"null", "[]", "7", "{}", R"({"input": 3, "steps": []})"}) {
    EXPECT_TRUE(condition->Holds(Json::parse(context))) << context;
  }
}

}  // namespace
}  // namespace lockstep::sagas
