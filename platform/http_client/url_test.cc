#include "platform/http_client/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"

namespace lockstep::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Url, HasItsParts) {
  const auto url = ParseUrl("https://example.com/hooks?a=b");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->text, "https://example.com/hooks?a=b");
  EXPECT_EQ(url->host, "example.com");
  EXPECT_EQ(url->port, 443);
  EXPECT_EQ(url->origin, "https://example.com:443");
  EXPECT_EQ(ParseUrl("http://[::1]:8080/x")->host, "::1");
  EXPECT_EQ(ParseUrl("http://[::1]:8080/x")->origin, "http://[::1]:8080");
}

TEST(Url, RefusesWhatIsNoAddressToSendTo) {
  for (const char* text :
       {"", "ftp://example.com/", "file:///etc/passwd", "example.com", "http://", "https:///path",
        "http:/example.com/", "http://user:secret@example.com/", "http://user@example.com/",
        "http://@example.com/", "http://example.com/#part", "http://exa mple.com/",
        "http://example.com/\r\nHost: x", "http://example.com:0/", "http://example.com:99999/",
        "http://ex\xC3\xA4mple.com/", "gopher://127.0.0.1/", "http://example.com\\@127.0.0.1/"}) {
    EXPECT_FALSE(ParseUrl(text).ok()) << text;
  }
  EXPECT_FALSE(ParseUrl("http://example.com/" + std::string(3000, 'a')).ok());
}

TEST(Url, NeverShowsAPassword) {
  const auto url = ParseUrl("http://user:secret@example.com/");
  EXPECT_THAT(std::string(MessageOf(url.status())), Not(HasSubstr("secret")));
  EXPECT_THAT(std::string(MessageOf(url.status())), HasSubstr("headers_file"));
}

TEST(Url, NeverShowsAQuery) {
  for (const char* text : {"http://example.com/a b?token=secret", "ftp://example.com/?secret",
                           "http://u:p@example.com/?token=secret"}) {
    EXPECT_THAT(std::string(MessageOf(ParseUrl(text).status())), Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace lockstep::http
