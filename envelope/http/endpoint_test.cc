#include "envelope/http/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "platform/status.h"

namespace lockstep::envelope {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class EndpointTest : public ::testing::Test {
 protected:
  ~EndpointTest() override { std::filesystem::remove_all(folder_); }
  std::string File(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(folder_);
    const std::string path = folder_ + "/" + name;
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
    return path;
  }
  const Attributes event_{{"event_id", "e1"}, {"content_type", "application/json"}};
  const std::string folder_ = (std::filesystem::temp_directory_path() /
                               ("endpoint_test." + std::to_string(getpid()) + "." +
                                ::testing::UnitTest::GetInstance()->current_test_info()->name()))
                                  .string();
};

TEST_F(EndpointTest, AddsTheHeadersOfItsFileAndFollowsIt) {
  EndpointOptions options;
  options.headers_file = File("headers", "# ours\nAuthorization: Bearer one\n");
  auto endpoint = Endpoint::Open("https://example.com/", options);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_THAT((*endpoint)->RequestFor(event_, nullptr)->secret_headers,
              Contains("Authorization: Bearer one"));
  File("headers", "Authorization: Bearer another\n");
  EXPECT_THAT((*endpoint)->RequestFor(event_, nullptr)->secret_headers,
              Contains("Authorization: Bearer another"));
}

TEST_F(EndpointTest, RefusesHeadersThatAreLockstepsOwnAndNeverQuotesAValue) {
  for (const char* line : {"Content-Length: 12345", "lockstep-event-id: 12345", "ce-id: 12345",
                           "Idempotency-Key: 12345", "no colon 12345", ": 12345",
                           "X-Empty:", "Bad Name: 12345", "X-Odd: \x01 12345"}) {
    EndpointOptions options;
    options.headers_file = File("headers", line);
    const auto endpoint = Endpoint::Open("https://example.com/", options);
    EXPECT_FALSE(endpoint.ok()) << line;
    EXPECT_THAT(std::string(MessageOf(endpoint.status())), Not(HasSubstr("12345")));
  }
}

TEST_F(EndpointTest, SignsWhenItHasSecrets) {
  EndpointOptions options;
  options.secret_file = File("secret", "0123456789abcdef0123456789abcdef");
  auto endpoint = Endpoint::Open("https://example.com/", options);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_THAT((*endpoint)->RequestFor(event_, std::make_shared<std::string>("{}"))->headers,
              Contains(StartsWith("Lockstep-Signature: t=")));
}

}  // namespace
}  // namespace lockstep::envelope
