#include "web/status_page.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "platform/log/masking.h"

namespace lockstep::web {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;) answer.append(buffer, n);
  close(fd);
  return answer;
}

json Body(const std::string& answer) {
  return json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
}

class StatusPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    http_.Handle("/probe", [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; });
    ASSERT_TRUE(http_.Start().ok());
  }
  void TearDown() override { http_.Stop(); }

  HttpServer http_{HttpOptions{}};
  std::atomic<int> asked_ = 0;
  StatusPage page_{
      http_, [this] {
        ++asked_;
        return json{{"role", "runner"}, {"groups", {{{"name", "feed"}, {"lag_ms", 12}}}}};
      }};
};

TEST_F(StatusPageTest, OnlyReadersOfPageAndApiCountAsReaders) {
  constexpr Millis kLong = std::chrono::hours(1);
  EXPECT_THAT(Get(http_.port(), "/probe"), StartsWith("HTTP/1.1 200"));
  EXPECT_FALSE(page_.AskedWithin(kLong));
  Get(http_.port(), "/api/lag");
  EXPECT_TRUE(page_.AskedWithin(kLong));
}

TEST_F(StatusPageTest, WhoLoadsThePageIsAReader) {
  Get(http_.port(), "/");
  EXPECT_TRUE(page_.AskedWithin(std::chrono::hours(1)));
}

TEST_F(StatusPageTest, ServesThePageFromTheBinary) {
  const std::string page = Get(http_.port(), "/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html"));
  for (const char* asset : {"/status.css", "/status.js", "/dom.js", "/chart.js", "/format.js",
                            "/runner_view.js", "/publisher_view.js", "/trace.js"}) {
    const std::string answer = Get(http_.port(), asset);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200")) << asset;
    // The name of SVG's namespace is the one address that may stand there; nobody fetches it.
    std::string text = answer;
    if (const size_t at = text.find("http://www.w3.org/2000/svg"); at != std::string::npos)
      text.erase(at, 26);
    EXPECT_THAT(text, Not(HasSubstr("http://"))) << asset;
    EXPECT_THAT(text, Not(HasSubstr("https://"))) << asset;
  }
}

// On the page and in every part of the API, and in the notes that are made of them.
TEST(StatusPage, MasksWhoseEventsTheyAre) {
  MaskKeys(true);
  HttpServer http{HttpOptions{}};
  StatusPage page(http, [] {
    return json{
        {"config", {{{"key", "relay.shards"}, {"value", "1"}}}},
        {"groups",
         {{{"name", "feed"},
           {"parked_keys",
            {{{"key", "video@acme/ann"}, {"why", "ann"}, {"events", 2}, {"dead_letter", 1}}}},
           {"dead_letters",
            {{{"id", 1},
              {"key", "video@acme/ann"},
              {"ordering_key", "ann"},
              {"reason", "ann"},
              {"code", "EVENT.MAPPING_FAILED"}}}}}}},
        {"outboxes",
         {{{"table", "shop.outbox"},
           {"dead", 1},
           {"dead_rows",
            {{{"sequence", 3},
              {"aggregate_id", "ann"},
              {"tenant_id", "acme"},
              {"reason", "ann"}}}}}}}};
  });
  ASSERT_TRUE(http.Start().ok());
  page.Refresh();
  for (const char* path : {"/api/status", "/api/dead-letters", "/api/lag"}) {
    const std::string answer = Get(http.port(), path);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(answer, Not(HasSubstr("ann"))) << path;
    EXPECT_THAT(answer, Not(HasSubstr("acme"))) << path;
  }
  EXPECT_THAT(Get(http.port(), "/api/status"), HasSubstr("relay.shards"));
  EXPECT_THAT(Get(http.port(), "/api/dead-letters"), HasSubstr("EVENT.MAPPING_FAILED"));
  http.Stop();
  MaskKeys(false);
}

TEST_F(StatusPageTest, AnswersFromTheLastRoundAndAsksNobodyMeanwhile) {
  EXPECT_THAT(Get(http_.port(), "/api/status"), StartsWith("HTTP/1.1 503"))
      << "before the first round";
  page_.Refresh();
  for (int i = 0; i < 3; ++i) {
    const json document = Body(Get(http_.port(), "/api/status"));
    EXPECT_EQ(document["groups"][0]["lag_ms"], 12);
    EXPECT_EQ(document["attention"], json::array());
  }
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(Body(Get(http_.port(), "/api/lag"))["groups"][0]["lag_ms"], 12);
  EXPECT_TRUE(Body(Get(http_.port(), "/api/offsets")).contains("groups"));
  EXPECT_TRUE(Body(Get(http_.port(), "/api/offsets/export")).contains("offsets"));
  EXPECT_TRUE(Body(Get(http_.port(), "/api/dead-letters?group=feed")).contains("dead_letters"));
}

TEST_F(StatusPageTest, RefreshesByItself) {
  ASSERT_TRUE(page_.Start().ok());
  while (asked_ < 1) std::this_thread::yield();
  page_.Stop();
  page_.Stop();
  EXPECT_THAT(Get(http_.port(), "/api/status"), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace lockstep::web
