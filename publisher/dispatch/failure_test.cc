#include "publisher/dispatch/failure.h"

#include <gmock/gmock.h>

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Failure, BlamesTheBusOrTheRow) {
  const std::vector<std::pair<absl::StatusCode, Fault>> cases = {
      {absl::StatusCode::kUnavailable, Fault::kOutage},
      {absl::StatusCode::kDeadlineExceeded, Fault::kOutage},
      {absl::StatusCode::kNotFound, Fault::kOutage},
      {absl::StatusCode::kPermissionDenied, Fault::kOutage},
      {absl::StatusCode::kUnauthenticated, Fault::kOutage},
      {absl::StatusCode::kResourceExhausted, Fault::kOutage},
      {absl::StatusCode::kInvalidArgument, Fault::kRefused},
      {absl::StatusCode::kAborted, Fault::kBehind},
      {absl::StatusCode::kCancelled, Fault::kCancelled},
      {absl::StatusCode::kInternal, Fault::kRow},
      {absl::StatusCode::kUnknown, Fault::kRow},
      {absl::StatusCode::kFailedPrecondition, Fault::kRow}};
  for (const auto& [code, fault] : cases) {
    EXPECT_EQ(FaultOf(absl::Status(code, "")), fault) << absl::StatusCodeToString(code);
  }
}

TEST(Failure, HasTheContractsCodes) {
  EXPECT_EQ(ErrorCode(absl::UnavailableError("")), "PROVIDER.UNAVAILABLE");
  EXPECT_EQ(ErrorCode(absl::DeadlineExceededError("")), "TX.TIMEOUT");
  EXPECT_EQ(ErrorCode(absl::InvalidArgumentError("")), "SCHEMA.VALIDATION_FAILED");
  EXPECT_EQ(ErrorCode(absl::InternalError("")), "UNKNOWN.INTERNAL");
}

TEST(Failure, SummariesAreShortCleanAndFreeOfThePayload) {
  const std::string payload = "name=Ann Smith; card=1234";
  const std::string text = ErrorSummary(
      absl::InternalError("field 'Ann Smith; card' in " + payload + " is bad"), payload, 2048);
  EXPECT_THAT(text, Not(HasSubstr("Ann Smith")));
  EXPECT_THAT(text, Not(HasSubstr("1234")));
  EXPECT_THAT(text, HasSubstr("INTERNAL: field '"));
  EXPECT_THAT(text, HasSubstr("is bad"));
  EXPECT_EQ(ErrorSummary(absl::InternalError(std::string(300, 'x')), "", 64).size(), 64u);
  // A cut never falls inside a character.
  EXPECT_EQ(ErrorSummary(absl::InternalError("éééé"), "", 13), "INTERNAL: é");
  EXPECT_EQ(ErrorSummary(absl::InternalError(std::string("a\0b", 3)), "", 64), "INTERNAL: a?b");
}

}  // namespace
}  // namespace lockstep::publisher
