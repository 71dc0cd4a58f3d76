#include "publisher/observe/readiness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::publisher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using std::chrono::seconds;

constexpr SteadyTime kStart{std::chrono::hours(1)};
const std::vector<Health> kWell = {{"shards", {}}, {"a.b", {}}};

TEST(Readiness, AtTheStartAFaultCountsAtOnce) {
  Readiness readiness(Millis(30'000));
  EXPECT_THAT(
      readiness.Judge({{"shards", {}}, {"a.b", absl::UnavailableError("starting")}}, kStart),
      ElementsAre("a.b: starting"));
  EXPECT_THAT(readiness.Judge(kWell, kStart + seconds(1)), IsEmpty());
}

TEST(Readiness, OutlivesALostDatabaseByTheGracePeriod) {
  Readiness readiness(Millis(30'000));
  EXPECT_THAT(readiness.Judge(kWell, kStart), IsEmpty());
  const std::vector<Health> lost = {{"shards", absl::UnavailableError("gone")},
                                    {"a.b", absl::UnavailableError("gone")}};
  EXPECT_THAT(readiness.Judge(lost, kStart + seconds(30)), IsEmpty());
  EXPECT_THAT(readiness.Judge(lost, kStart + seconds(31)),
              ElementsAre("shards: gone", "a.b: gone"));
  EXPECT_THAT(readiness.Judge(kWell, kStart + seconds(32)), IsEmpty());
  EXPECT_THAT(readiness.Judge(lost, kStart + seconds(60)), IsEmpty())
      << "a grace period for each time";
}

// A loop that hangs with its database can't say so before its statement is given up.
TEST(Readiness, TheGracePeriodBeginsWhenThePartWasLastSeenAtWork) {
  Readiness readiness(Millis(30'000));
  for (const int second : {1, 10, 25}) {
    EXPECT_THAT(readiness.Judge({{"a.b", {}, kStart}}, kStart + seconds(second)), IsEmpty());
  }
  const std::vector<Health> lost = {{"a.b", absl::UnavailableError("gone"), kStart + seconds(26)}};
  EXPECT_THAT(readiness.Judge(lost, kStart + seconds(30)), IsEmpty());
  EXPECT_THAT(readiness.Judge(lost, kStart + seconds(31)), ElementsAre("a.b: gone"));
}

TEST(Readiness, OneTableDoesNotSpendTheGraceOfAnother) {
  Readiness readiness(Millis(30'000));
  readiness.Judge({{"a.b", {}}, {"c.d", {}}}, kStart);
  readiness.Judge({{"a.b", absl::UnavailableError("gone")}, {"c.d", {}}}, kStart + seconds(29));
  EXPECT_THAT(readiness.Judge({{"a.b", absl::UnavailableError("gone")},
                               {"c.d", absl::UnavailableError("gone")}},
                              kStart + seconds(40)),
              ElementsAre("a.b: gone"));
}

}  // namespace
}  // namespace lockstep::publisher
