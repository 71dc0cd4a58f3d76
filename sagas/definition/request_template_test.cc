#include "sagas/definition/request_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"

namespace lockstep::sagas {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Json& Context() {
  static const Json context = Json::parse(R"({
    "input": {"order_id": "o/1 ?#%ü", "n": 7, "yes": true, "list": [1, {"deep": [2]}], "nothing": null,
              "up": "..", "empty": "", "secret": "s3cret", "first name": "Ada", "a.b": 1},
    "steps": {"reserve": {"id": "r1", "items": ["x", "y"]}, "scalar": 5},
    "saga": {"id": "0190", "tenant": null, "key": "k", "definition": "order", "version": 3}})");
  return context;
}

struct Case {
  std::string part;
  std::string filled;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.part; }

class FillsRequest : public ::testing::TestWithParam<Case> {};

TEST_P(FillsRequest, AsTheTemplateSays) {
  const auto filled = FillRequest(Json::parse(GetParam().part), Context());
  ASSERT_TRUE(filled.ok()) << filled.status();
  EXPECT_EQ(*filled, Json::parse(GetParam().filled)) << *filled;
}

INSTANTIATE_TEST_SUITE_P(
    Templates, FillsRequest,
    ::testing::Values(
        Case{R"({"id": "$.steps.reserve.id", "n": "$.input.n", "also": "plain"})",
             R"({"id": "r1", "n": 7, "also": "plain"})"},
        Case{R"({"deep": [{"list": "$.input.list"}, "$.input.list[1].deep[0]"]})",
             R"({"deep": [{"list": [1, {"deep": [2]}]}, 2]})"},
        Case{R"(["$.input.nothing", "$.input.missing?", "$.steps.gone.id?", "$.input.n.x?"])",
             R"([null, null, null, null])"},
        Case{R"(["$$.input.n", "$$$.x", "$", "$x", " $.input.n", "a $.input.n"])",
             R"(["$.input.n", "$$$.x", "$", "$x", " $.input.n", "a $.input.n"])"},
        Case{R"(["$.input[\"first name\"]", "$.input[\"a.b\"]", "$.steps.scalar"])",
             R"(["Ada", 1, 5])"},
        Case{R"("$.saga")",
             R"({"id": "0190", "tenant": null, "key": "k", "definition": "order", "version": 3})"},
        Case{R"([1, 2.5, true, null, {}, []])", R"([1, 2.5, true, null, {}, []])"},
        // A key is never a path, and no name is special.
        Case{R"({"$.input.n": 1, "__proto__": {"x": "$.input.n"}})",
             R"({"$.input.n": 1, "__proto__": {"x": 7}})"}));

TEST(FillRequest, IsTheInputWithoutATemplate) {
  EXPECT_EQ(*FillRequest(nullptr, Context()), Context()["input"]);
  EXPECT_EQ(*FillRequest(nullptr, Json::object()), nullptr);
  EXPECT_EQ(*FillRequest(Json::object(), Context()), Json::object());
}

TEST(FillRequest, NamesThePathThatHasNoValue) {
  for (const char* path :
       {"$.input.missing", "$.steps.gone.id", "$.input.list[2]", "$.input.n.x", "$.input[0]",
        "$.steps.reserve.items.length", "$.input.constructor", "$.other"}) {
    const auto filled = FillRequest({{"a", path}}, Context());
    EXPECT_EQ(filled.status().code(), absl::StatusCode::kNotFound) << path;
    EXPECT_THAT(std::string(MessageOf(filled.status())), HasSubstr(path));
  }
}

TEST(FillRequest, RefusesWhatIsNoPath) {
  for (const char* path : {"$.", "$.input.", "$.input x", "$.input.a b", "$.input[", "$.input?x"}) {
    EXPECT_EQ(FillRequest(path, Context()).status().code(), absl::StatusCode::kInvalidArgument)
        << path;
  }
}

TEST(FillRequest, IsBoundedInDepth) {
  const auto nested = [](Json value, int depth) {
    for (int i = 0; i < depth; ++i) {
      Json outer = Json::object();
      outer["a"] = std::move(value);
      value = std::move(outer);
    }
    return value;
  };
  EXPECT_TRUE(FillRequest(nested("$.input.n", kMaxTemplateDepth), Context()).ok());
  EXPECT_THAT(std::string(MessageOf(FillRequest(nested(1, 100'000), Context()).status())),
              HasSubstr("deeper than 16 levels"));
  const Json deep = {{"input", nested(1, 5'000)}};
  EXPECT_THAT(std::string(MessageOf(FillRequest("$.input", deep).status())),
              HasSubstr("$.input is deeper than 64 levels"));
  EXPECT_FALSE(FillRequest(nullptr, deep).ok());
}

TEST(FillRequest, IsBoundedInSize) {
  // 60 KiB of input, asked for a thousand times.
  const Json context = {{"input", {{"text", std::string(60 << 10, 'x')}}}};
  Json many = Json::array();
  for (int i = 0; i < 1'000; ++i) many.push_back("$.input.text");
  const auto filled = FillRequest(many, context);
  EXPECT_THAT(std::string(MessageOf(filled.status())), HasSubstr("more than 256 KiB"));
  EXPECT_TRUE(FillRequest(Json::array({"$.input.text", "$.input.text"}), context).ok());
}

struct UrlCase {
  std::string url;
  std::string filled;
};
void PrintTo(const UrlCase& value, std::ostream* out) { *out << value.url; }

class FillsUrl : public ::testing::TestWithParam<UrlCase> {};

TEST_P(FillsUrl, PercentEncoded) {
  const auto filled = FillUrl(GetParam().url, Context());
  ASSERT_TRUE(filled.ok()) << filled.status();
  EXPECT_EQ(*filled, GetParam().filled);
}

INSTANTIATE_TEST_SUITE_P(
    Addresses, FillsUrl,
    ::testing::Values(
        UrlCase{"https://shop.example/charge", "https://shop.example/charge"},
        UrlCase{"https://shop.example/orders/{$.input.order_id}",
                "https://shop.example/orders/o%2F1%20%3F%23%25%C3%BC"},
        UrlCase{"https://shop.example/{$.input.n}/{$.input.yes}?id={$.steps.reserve.id}",
                "https://shop.example/7/true?id=r1"},
        UrlCase{"https://shop.example/v{$.input.n}/x?c={$.input.coupon?}",
                "https://shop.example/v7/x?c="},
        UrlCase{"https://shop.example/?up={$.input.up}", "https://shop.example/?up=.."},
        UrlCase{"https://shop.example/a{$.input.up}", "https://shop.example/a.."}));

TEST(FillUrl, KeepsAValueInItsPlace) {
  for (const char* url : {"https://shop.example/orders/{$.input.up}",
                          "https://shop.example/orders/{$.input.up}/items",
                          "https://shop.example/orders/.%2e/{$.input.n}"}) {
    const auto filled = FillUrl(url, Context());
    EXPECT_THAT(std::string(MessageOf(filled.status())), HasSubstr("another address")) << url;
  }
}

TEST(FillUrl, RefusesValuesThatAreNoPartOfAnAddress) {
  const auto says = [](const std::string& url) {
    return std::string(MessageOf(FillUrl(url, Context()).status()));
  };
  EXPECT_THAT(says("https://a.example/{$.input.list}"),
              HasSubstr("$.input.list is a list or a map"));
  EXPECT_THAT(says("https://a.example/{$.input.empty}"), HasSubstr("$.input.empty is empty"));
  EXPECT_THAT(says("https://a.example/{$.input.nothing}"), HasSubstr("has no value"));
  EXPECT_EQ(FillUrl("https://a.example/{$.input.gone}", Context()).status().code(),
            absl::StatusCode::kNotFound);
  const Json longs = {{"input", {{"x", std::string(1'000, 'x')}}}};
  const auto filled = FillUrl("https://a.example/{$.input.x}/{$.input.x}/{$.input.x}", longs);
  EXPECT_THAT(std::string(MessageOf(filled.status())), HasSubstr("2048 characters"));
}

TEST(FillUrl, SaysWhatIsWrongWithBraces) {
  for (const char* url : {"https://a.example/{id}", "https://a.example/}", "https://a.example/{",
                          "https://a.example/{$.input.n", "https://a.example/{$.input.n x}"}) {
    EXPECT_EQ(FillUrl(url, Context()).status().code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_FALSE(PathsOfUrl(url).ok()) << url;
  }
}

TEST(FillUrl, NeverQuotesAValue) {
  for (const char* url :
       {"https://a.example/x{$.input.secret}/..", "https://a.example:{$.input.secret}/"}) {
    const auto filled = FillUrl(url, Context());
    EXPECT_FALSE(filled.ok()) << url;
    EXPECT_THAT(std::string(MessageOf(filled.status())), Not(HasSubstr("s3cret")));
  }
}

}  // namespace
}  // namespace lockstep::sagas
