#include "envelope/attributes.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Attributes, AreAMapOfTheirNames) {
  Attributes attributes{{"b", "1"}, {"a", "2"}, {"b", "3"}};
  EXPECT_EQ(attributes.size(), 2u);
  EXPECT_EQ(attributes.at("b"), "1") << "the first of two counts";
  EXPECT_THROW(attributes.at("c"), std::out_of_range);
  attributes["b"] = "4";
  attributes["c"] = "5";
  EXPECT_EQ(attributes.find("b")->second, "4");
  EXPECT_FALSE(attributes.emplace("c", "6").second);
  EXPECT_EQ(attributes.at("c"), "5");
  EXPECT_EQ(attributes.erase("a"), 1u);
  EXPECT_FALSE(attributes.contains("a"));
  EXPECT_EQ(erase_if(attributes, [](const auto& item) { return item.second == "5"; }), 1u);
  EXPECT_EQ(attributes, (Attributes{{"b", "4"}}));
}

TEST(Attributes, AreEqualInAnyOrder) {
  const Attributes one{{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(one, (Attributes{{"b", "2"}, {"a", "1"}}));
  EXPECT_FALSE(one == (Attributes{{"a", "1"}, {"b", "3"}}));
  EXPECT_FALSE(one == (Attributes{{"a", "1"}, {"c", "2"}}));
  EXPECT_FALSE(one == (Attributes{{"a", "1"}}));
}

}  // namespace
}  // namespace lockstep
