#include "publisher/observe/readiness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::publisher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using std::chrono::seconds;

constexpr SteadyTime kStart{std::chrono::hours(1)};
const std::vector<std::string> kSubjects = {"shards", "a.b"};

TEST(Readiness, AtTheStartAFaultCountsAtOnce) {
  Readiness readiness(Millis(30'000));
  EXPECT_THAT(readiness.Judge(kSubjects, {{"a.b", "starting"}}, kStart),
              ElementsAre("a.b: starting"));
  EXPECT_THAT(readiness.Judge(kSubjects, {}, kStart + seconds(1)), IsEmpty());
}

TEST(Readiness, OutlivesALostDatabaseByTheGracePeriod) {
  Readiness readiness(Millis(30'000));
  EXPECT_THAT(readiness.Judge(kSubjects, {}, kStart), IsEmpty());
  const std::vector<Trouble> lost = {{"shards", "gone"}, {"a.b", "gone"}};
  EXPECT_THAT(readiness.Judge(kSubjects, lost, kStart + seconds(30)), IsEmpty());
  EXPECT_THAT(readiness.Judge(kSubjects, lost, kStart + seconds(31)),
              ElementsAre("shards: gone", "a.b: gone"));
  EXPECT_THAT(readiness.Judge(kSubjects, {}, kStart + seconds(32)), IsEmpty());
  EXPECT_THAT(readiness.Judge(kSubjects, lost, kStart + seconds(60)), IsEmpty())
      << "a grace period for each time";
}

TEST(Readiness, OneTableDoesNotSpendTheGraceOfAnother) {
  Readiness readiness(Millis(30'000));
  readiness.Judge({"a.b", "c.d"}, {}, kStart);
  readiness.Judge({"a.b", "c.d"}, {{"a.b", "gone"}}, kStart + seconds(29));
  EXPECT_THAT(
      readiness.Judge({"a.b", "c.d"}, {{"a.b", "gone"}, {"c.d", "gone"}}, kStart + seconds(40)),
      ElementsAre("a.b: gone"));
}

}  // namespace
}  // namespace lockstep::publisher
