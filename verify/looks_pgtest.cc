// What a second look makes of rows that differed, while both sides go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/testing/verify_test.h"

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// When a side was first and last looked at, in its session: nothing can be written.
constexpr char kLook[] = R"(CREATE FUNCTION public.look() RETURNS bool VOLATILE LANGUAGE sql AS $$
  SELECT set_config('look.last', clock_timestamp()::text, false) <>
         set_config('look.first', coalesce(nullif(current_setting('look.first', true), ''),
                                           clock_timestamp()::text), false) || '.' $$)";

int64_t LookedAt(postgres::Connection& session, const std::string& which) {
  const auto at = session.Number(fmt::format(
      "SELECT (extract(epoch FROM current_setting('look.{}')::timestamptz) * 1000000)::bigint",
      which));
  EXPECT_TRUE(at.ok()) << at.status();
  return at.value_or(0);
}

// What was under way at the first look arrives before the second.
TEST_F(VerifyTest, AChangeUnderWayIsNoDifference) {
  Tables("(id bigint PRIMARY KEY, version int, title text)",
         "(id bigint PRIMARY KEY, version bigint, title text)");
  OnBoth(kThousand);
  source_.Run(
      "UPDATE public.t SET version = 4 WHERE id <= 10; DELETE FROM public.t WHERE id = 20;"
      "INSERT INTO public.t VALUES (3000, 1)");
  passed_ = [&] {
    replica_.Run(
        "UPDATE public.t SET version = 4 WHERE id <= 10; DELETE FROM public.t WHERE id = 20;"
        "INSERT INTO public.t VALUES (3000, 1)");
    // Meanwhile the source goes on; the replica need not have that.
    source_.Run(
        "UPDATE public.t SET version = 5 WHERE id <= 10; DELETE FROM public.t WHERE id = 3000");
    passed_ = [&] {
      replica_.Run("DELETE FROM public.t WHERE id = 3000");
      return absl::OkStatus();
    };
    return absl::OkStatus();
  };
  const VerifyResult result = Run();
  EXPECT_THAT(Lines(result), IsEmpty());
  EXPECT_EQ(result.first_look, 12);
  EXPECT_EQ(result.moving, 0);
  EXPECT_EQ(passes_, 2);
}

// It stood still at an old version while everything else arrived.
TEST_F(VerifyTest, AKeyThatStaysBehindIsFoundAlthoughTheSourceMovesOn) {
  Tables("(id bigint PRIMARY KEY, version int, title text)",
         "(id bigint PRIMARY KEY, version bigint, title text)");
  OnBoth(kThousand);
  source_.Run("UPDATE public.t SET version = 4 WHERE id = 5");
  passed_ = [&] {
    source_.Run("UPDATE public.t SET version = 9 WHERE id = 5");
    return absl::OkStatus();
  };
  EXPECT_THAT(Lines(Run()), ElementsAre("behind 5 9 3"));
}

TEST_F(VerifyTest, ARowThatComesAndGoesIsLookedAtAgainAndThenCalledMoving) {
  Tables("(id bigint PRIMARY KEY, version int)", "(id bigint PRIMARY KEY, version int)");
  replica_.Run("INSERT INTO public.t VALUES (1, 1)");
  int version = 1;
  passed_ = [&] {
    replica_.Run(fmt::format("UPDATE public.t SET version = {}", ++version));
    return absl::OkStatus();
  };
  options_.looks = 3;
  const VerifyResult result = Run();
  EXPECT_THAT(Lines(result), IsEmpty());
  EXPECT_EQ(result.moving, 1);
  EXPECT_EQ(passes_, 3);
}

// The replica has had the delete; that the row was made anew is under way.
TEST_F(VerifyTest, ARowThatWasDeletedAndMadeAnewIsNotMissing) {
  Tables("(id bigint PRIMARY KEY, version int)", "(id bigint PRIMARY KEY, version int)");
  source_.Run("INSERT INTO public.t VALUES (1, 5)");
  passed_ = [&] {
    source_.Run("UPDATE public.t SET version = 7");
    passed_ = [&] {
      replica_.Run("INSERT INTO public.t VALUES (1, 7)");
      return absl::OkStatus();
    };
    return absl::OkStatus();
  };
  const VerifyResult result = Run();
  EXPECT_THAT(Lines(result), IsEmpty());
  EXPECT_EQ(result.moving, 0);
  EXPECT_EQ(passes_, 2);
}

// Else a row that is made, replicated and deleted between the two would look like a ghost.
TEST_F(VerifyTest, TheFirstLookReadsTheReplicaBeforeTheSource) {
  Tables("(id bigint PRIMARY KEY, version int)", "(id bigint PRIMARY KEY, version int)");
  OnBoth(kLook);
  source_.Run("INSERT INTO public.t VALUES (1, 1)");
  replica_.Run("INSERT INTO public.t VALUES (2, 1)");
  from_ = "(SELECT * FROM public.t WHERE public.look())";
  int64_t source = 0, replica = 0;
  passed_ = [&] {
    source = LookedAt(*at_source_, "last");
    replica = LookedAt(*at_replica_, "last");
    return absl::OkStatus();
  };
  EXPECT_THAT(Lines(Run()), ElementsAre("missing 1 1 -", "ghost 2 - 1"));
  EXPECT_GT(replica, 0);
  EXPECT_GT(source, replica);
}

TEST_F(VerifyTest, WhatWasOnlyCountedIsNoDifferenceWhenAllThatWasLookedAtArrived) {
  Tables("(id bigint PRIMARY KEY, version int)", "(id bigint PRIMARY KEY, version int)");
  source_.Run("INSERT INTO public.t VALUES (1, 1), (2, 1), (3, 1)");
  options_.most = 1;
  passed_ = [&] {
    replica_.Run("INSERT INTO public.t VALUES (1, 1), (2, 1), (3, 1)");
    return absl::OkStatus();
  };
  const VerifyResult result = Run();
  EXPECT_THAT(Lines(result), IsEmpty());
  EXPECT_EQ(result.more, 2);
  EXPECT_THAT(result.unconfirmed, HasSubstr("compare again"));
}

TEST_F(VerifyTest, WithoutAPositionDifferencesAreSaidToBeUnconfirmed) {
  Tables("(id bigint PRIMARY KEY, version int)", "(id bigint PRIMARY KEY, version int)");
  source_.Run("INSERT INTO public.t VALUES (1, 1)");
  passed_ = [] { return absl::FailedPreconditionError("no runner is alive"); };
  const VerifyResult result = Run();
  EXPECT_THAT(Lines(result), ElementsAre("missing 1 1 -"));
  EXPECT_EQ(result.unconfirmed, "no runner is alive");
}

// Else a row that is made and replicated between the two would look like one that is ahead.
TEST_F(VerifyTest, TheSecondLookReadsTheReplicaBeforeTheSource) {
  Tables("(id bigint PRIMARY KEY, version int)", "(id bigint PRIMARY KEY, version int)");
  OnBoth(kLook);
  source_.Run("INSERT INTO public.t VALUES (1, 1)");
  replica_.Run("INSERT INTO public.t VALUES (2, 1)");
  from_ = "(SELECT * FROM public.t WHERE public.look())";
  passed_ = [&] {
    for (auto* const session : {at_source_.get(), at_replica_.get()}) {
      EXPECT_TRUE(session->Run("SET look.first = ''").ok());
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(Lines(Run()), ElementsAre("missing 1 1 -", "ghost 2 - 1"));
  EXPECT_GT(LookedAt(*at_source_, "first"), LookedAt(*at_replica_, "last"));
}

TEST_F(VerifyTest, AStopEndsItBeforeTheNextRangeAndBeforeTheSecondLook) {
  Tables("(id bigint PRIMARY KEY, version int)", "(id bigint PRIMARY KEY, version int)");
  source_.Run("INSERT INTO public.t VALUES (1, 1)");
  passed_ = [&] {
    stop_.request_stop();
    return absl::FailedPreconditionError("it was stopped");
  };
  EXPECT_TRUE(absl::IsCancelled(Try().status())) << "what was seen once is not told as a find";
  passes_ = 0;
  EXPECT_TRUE(absl::IsCancelled(Try().status()));
  EXPECT_EQ(passes_, 0);
}

}  // namespace
}  // namespace lockstep::verify
