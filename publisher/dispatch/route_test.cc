#include "publisher/dispatch/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Route, IsABusAUrlOrADispatcherByName) {
  EXPECT_EQ(ParseRoute("catalog.events")->name, "bus:catalog.events");
  EXPECT_EQ(ParseRoute("bus:catalog.events")->target, "catalog.events");
  EXPECT_EQ(ParseRoute("projects/p/topics/t")->target, "projects/p/topics/t");
  EXPECT_EQ(ParseRoute("https://example.com/in")->kind, Route::Kind::kHttp);
  EXPECT_EQ(ParseRoute("custom:search")->target, "search");
}

TEST(Route, RefusesWhatItDoesNotKnow) {
  for (const char* text :
       {"", "bus:", "custom:", "custom:a b", "ftp://example.com", "kafka:topic", "http:example.com",
        "http//example.com", "bus:/x", "https://user:secret@example.com/"}) {
    EXPECT_FALSE(ParseRoute(text).ok()) << text;
  }
}

TEST(Route, IsCalledByAUrlWithoutItsQuery) {
  const auto one = ParseRoute("https://example.com/in?key=secret");
  const auto other = ParseRoute("https://example.com/in?key=another");
  EXPECT_THAT(one->name, Not(HasSubstr("secret")));
  EXPECT_NE(one->name, other->name);
  EXPECT_EQ(one->target, "https://example.com/in?key=secret");
}

TEST(Routes, AreSomeAndNoneOfThemTwiceAndOneToTheBus) {
  EXPECT_TRUE(ParseRoutes({"a", "https://example.com/", "custom:b"}).ok());
  EXPECT_FALSE(ParseRoutes({}).ok());
  EXPECT_FALSE(ParseRoutes({"a", "bus:a"}).ok());
  EXPECT_FALSE(ParseRoutes({"a", "b"}).ok());
  EXPECT_FALSE(ParseRoutes({"https://example.com/", "https://example.com/"}).ok());
}

TEST(Routes, ToTheBusAreFoundAmongOthers) {
  EXPECT_EQ(BusTopics({{"x", {"https://example.com/", "a"}}, {"y", "custom:b"}, {"z", "c"}}),
            (std::map<std::string, std::string>{{"x", "a"}, {"z", "c"}}));
}

}  // namespace
}  // namespace lockstep::publisher
