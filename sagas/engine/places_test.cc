#include "sagas/engine/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lockstep::sagas {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PlacesTest : public ::testing::Test {
 protected:
  std::vector<std::string> told_;
  Places places_{0, [this](const std::string& saga) { told_.push_back(saga); }};
};

TEST_F(PlacesTest, ThereAreSoManyAndWhoWaitsIsToldOnce) {
  places_.Set({{"pay", 2}});
  Place one = places_.Take("pay", "a");
  const Place other = places_.Take("pay", "a");
  EXPECT_NE(one, nullptr);
  EXPECT_NE(other, nullptr);
  EXPECT_EQ(places_.Take("pay", "b"), nullptr);
  EXPECT_EQ(places_.Take("pay", "b"), nullptr);
  EXPECT_EQ(places_.Take("pay", "c"), nullptr);
  Place copy = one;
  one.reset();
  EXPECT_THAT(told_, IsEmpty()) << "a copy holds it";
  copy.reset();
  EXPECT_THAT(told_, ElementsAre("b"));
  EXPECT_NE(one = places_.Take("pay", "b"), nullptr);
  one.reset();
  EXPECT_THAT(told_, ElementsAre("b", "c"));
}

TEST_F(PlacesTest, WhatHasNoLimitHasTheOneOfAllOthers) {
  std::vector<Place> held;
  for (int i = 0; i < 100; ++i) held.push_back(places_.Take("any", "a"));
  for (int i = 0; i < 100; ++i) held.push_back(places_.Take("", "a"));
  for (const Place& place : held) EXPECT_NE(place, nullptr);
  Places hosts(1, [](const std::string&) {});
  hosts.Set({{"all", 2}});
  const Place first = hosts.Take("http://a:80", "a");
  EXPECT_EQ(hosts.Take("http://a:80", "a"), nullptr);
  EXPECT_NE(hosts.Take("http://b:80", "a"), nullptr);
  const Place both[] = {hosts.Take("all", "a"), hosts.Take("all", "a")};
  EXPECT_EQ(hosts.Take("all", "a"), nullptr);
}

}  // namespace
}  // namespace lockstep::sagas
