#include "platform/http_client/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"

namespace lockstep::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Outcome = Verdict::Outcome;

Verdict JudgeStatus(int status) { return Judge(Answer{.status = status}, ""); }

TEST(Judge, SaysWhomAnAnswerBlames) {
  for (const int status : {200, 201, 202, 204, 299}) {
    EXPECT_EQ(JudgeStatus(status).outcome, Outcome::kDone) << status;
  }
  for (const int status : {408, 425, 429, 500, 502, 503, 504, 599, 301, 302, 304, 307, 308}) {
    EXPECT_EQ(JudgeStatus(status).outcome, Outcome::kOutage) << status;
  }
  for (const int status : {400, 409, 411, 413, 415, 422, 431, 499}) {
    EXPECT_EQ(JudgeStatus(status).outcome, Outcome::kRefused) << status;
    EXPECT_FALSE(JudgeStatus(status).maybe_endpoint) << status;
  }
  for (const int status : {401, 403, 404, 405, 407, 410}) {
    EXPECT_EQ(JudgeStatus(status).outcome, Outcome::kRefused) << status;
    EXPECT_TRUE(JudgeStatus(status).maybe_endpoint) << status;
  }
  EXPECT_EQ(Judge(absl::UnavailableError("no route"), "").outcome, Outcome::kOutage);
}

// As docs/idempotency.md has services answer a request whose earlier try is at work still.
TEST(Judge, AConflictThatAsksToComeAgainIsNoRefusal) {
  const Verdict verdict = Judge(Answer{.status = 409, .retry_after = Millis(0)}, "");
  EXPECT_EQ(verdict.outcome, Outcome::kOutage);
  EXPECT_EQ(verdict.retry_after, Millis(0));
  EXPECT_EQ(Judge(Answer{.status = 422, .retry_after = Millis(0)}, "").outcome, Outcome::kRefused);
}

TEST(Judge, HonoursRetryAfterOfAnOutageOnly) {
  EXPECT_EQ(Judge(Answer{.status = 429, .retry_after = Millis(7000)}, "").retry_after,
            Millis(7000));
  EXPECT_EQ(Judge(Answer{.status = 400, .retry_after = Millis(7000)}, "").retry_after,
            std::nullopt);
}

TEST(Judge, SaysWhatToDoAboutARedirect) {
  EXPECT_THAT(JudgeStatus(302).words, HasSubstr("never followed"));
}

TEST(RetryAfter, IsSecondsOrADate) {
  const WallTime now{std::chrono::seconds(1'767'225'600)};  // 2026-01-01
  EXPECT_EQ(ParseRetryAfter(" 120 ", now), Millis(120'000));
  EXPECT_EQ(ParseRetryAfter("Thu, 01 Jan 2026 00:00:30 GMT", now), Millis(30'000));
  EXPECT_EQ(ParseRetryAfter("Wed, 31 Dec 2025 00:00:30 GMT", now), Millis(0));
  EXPECT_EQ(ParseRetryAfter("99999999999999999999999", now), kLongestRetryAfter);
  EXPECT_EQ(ParseRetryAfter("86400", now), kLongestRetryAfter);
  for (const char* text : {"", "soon", "-5", "1.5", "+5", "20260101"}) {
    const auto parsed = ParseRetryAfter(text, now);
    EXPECT_TRUE(!parsed.has_value() || *parsed <= kLongestRetryAfter) << text;
  }
  EXPECT_EQ(ParseRetryAfter("-5", now), std::nullopt);
  EXPECT_EQ(ParseRetryAfter("soon", now), std::nullopt);
}

TEST(BodySummary, IsShortPrintableAndNeverWhatWasSent) {
  const std::string sent = R"({"card":"4111111111111111"})";
  const std::string summary = BodySummary("bad request: " + sent + "\n\x1b[2J", sent);
  EXPECT_THAT(summary, Not(HasSubstr("41111111")));
  EXPECT_THAT(summary, HasSubstr("bad request"));
  EXPECT_THAT(summary, Not(HasSubstr("\x1b")));
  EXPECT_LE(BodySummary(std::string(10'000'000, 'x'), "").size(), 200U);
  EXPECT_LE(BodySummary(std::string(1'000, '\x01'), "").size(), 200U);
}

}  // namespace
}  // namespace lockstep::http
