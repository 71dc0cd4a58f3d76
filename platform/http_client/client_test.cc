#include "platform/http_client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>

#include "platform/status.h"
#include "tests/support/free_port.h"
#include "tests/support/http_test_server.h"

namespace lockstep::http {
namespace {

using ::lockstep::testing::FreePort;
using ::lockstep::testing::HttpTestServer;
using ::testing::HasSubstr;

std::shared_ptr<Settings> Local() {
  auto settings = std::make_shared<Settings>();
  settings->allow_private = true;
  return settings;
}

Request To(const std::string& url, std::shared_ptr<const Settings> settings = Local()) {
  return {.url = ParseUrl(url).value(),
          .headers = {"Content-Type: text/plain"},
          .body = std::make_shared<std::string>("hello"),
          .settings = std::move(settings)};
}

absl::StatusOr<Answer> Ask(Client& client, Request request) {
  std::promise<absl::StatusOr<Answer>> promise;
  client.Send(std::move(request),
              [&](absl::StatusOr<Answer> answer) { promise.set_value(std::move(answer)); });
  return promise.get_future().get();
}

TEST(HttpClient, PostsAndKeepsItsConnection) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok("taken"); });
  Client client;
  for (int i = 0; i < 3; ++i) {
    const auto answer = Ask(client, To(server.url("/in?a=b")));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "taken");
  }
  const auto seen = server.seen();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].method, "POST");
  EXPECT_EQ(seen[0].path, "/in?a=b");
  EXPECT_EQ(seen[0].body, "hello");
  EXPECT_EQ(seen[0].headers.at("content-type"), "text/plain");
  EXPECT_EQ(seen[2].connection, 1);
}

TEST(HttpClient, GetsWithoutABodyAndPostsAgainOverTheSameConnection) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok("taken"); });
  Client client;
  Request get = To(server.url("/in"));
  get.get = true;
  for (const bool posts : {false, true, false}) {
    ASSERT_TRUE(Ask(client, posts ? To(server.url("/in")) : get).ok());
  }
  const auto seen = server.seen();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].method, "GET");
  EXPECT_EQ(seen[0].body, "");
  EXPECT_EQ(seen[1].method, "POST");
  EXPECT_EQ(seen[1].body, "hello");
  EXPECT_EQ(seen[2].method, "GET");
  EXPECT_EQ(seen[2].body, "");
}

TEST(HttpClient, SendsBodiesOfAnyBytesAndSize) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  Client client;
  std::string large(3'000'000, '\0');
  large[17] = '\xFF';
  Request request = To(server.url());
  request.body = std::make_shared<std::string>(large);
  ASSERT_TRUE(Ask(client, std::move(request)).ok());
  Request empty = To(server.url());
  empty.body = nullptr;
  ASSERT_TRUE(Ask(client, std::move(empty)).ok());
  EXPECT_EQ(server.seen()[0].body, large);
  EXPECT_EQ(server.seen()[1].body, "");
}

TEST(HttpClient, FollowsNoRedirect) {
  HttpTestServer other([](const auto&) { return HttpTestServer::Ok(); });
  HttpTestServer server([&](const auto&) {
    return HttpTestServer::Status(302, "Location: " + other.url() + "\r\n");
  });
  Client client;
  EXPECT_EQ(Ask(client, To(server.url()))->status, 302);
  EXPECT_TRUE(other.seen().empty());
}

TEST(HttpClient, ReadsRetryAfter) {
  HttpTestServer server(
      [](const auto&) { return HttpTestServer::Status(429, "RETRY-AFTER: 7\r\n", "slow down"); });
  Client client;
  const auto answer = Ask(client, To(server.url()));
  EXPECT_EQ(answer->status, 429);
  EXPECT_EQ(answer->retry_after, Millis(7000));
}

TEST(HttpClient, TakesSecretsOutOfARefusalThatQuotesThem) {
  std::string seen;
  HttpTestServer server([&](const HttpTestServer::Seen& request) {
    seen = request.headers.at("authorization");
    return HttpTestServer::Status(400, "",
                                  fmt::format("'{}' at {} is unknown", seen, request.path));
  });
  Client client;
  Request request = To(server.url("/in?token=geheim7"));
  request.secret_headers = {"Authorization: Bearer 4711081547110815"};
  const auto answer = Ask(client, std::move(request));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(seen, "Bearer 4711081547110815");
  EXPECT_EQ(answer->body, "'…' at /in… is unknown");
}

TEST(HttpClient, CutsOffALongAnswerAndCountsItAsOne) {
  HttpTestServer server(
      [](const auto&) { return HttpTestServer::Ok(std::string(10'000'000, 'x')); });
  Client client;
  const auto answer = Ask(client, To(server.url()));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body.size(), Settings().keep_body);
}

TEST(HttpClient, TakesAnAnswerThatEndsTooEarlyForNone) {
  HttpTestServer server([](const auto&) {
    return std::string("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this") +
           HttpTestServer::kClose;
  });
  Client client;
  EXPECT_EQ(Ask(client, To(server.url())).status().code(), absl::StatusCode::kUnavailable);
}

TEST(HttpClient, TakesAnythingButHttpForNone) {
  HttpTestServer server(
      [](const auto&) { return std::string("220 smtp ready\r\n") + HttpTestServer::kClose; });
  Client client;
  EXPECT_EQ(Ask(client, To(server.url())).status().code(), absl::StatusCode::kUnavailable);
}

TEST(HttpClient, TakesNoAnswerWithEndlessHeaders) {
  HttpTestServer server([](const auto&) {
    std::string answer = "HTTP/1.1 200 OK\r\n";
    for (int i = 0; i < 20'000; ++i) answer += "X-Filler: 0123456789\r\n";
    return answer + "\r\n" + HttpTestServer::kClose;
  });
  Client client;
  EXPECT_EQ(Ask(client, To(server.url())).status().code(), absl::StatusCode::kUnavailable);
}

TEST(HttpClient, GivesUpOnAServerThatHangs) {
  HttpTestServer server([](const auto&) { return std::string(HttpTestServer::kHang); });
  auto settings = Local();
  settings->timeout = Millis(200);
  Client client;
  const auto answer = Ask(client, To(server.url(), settings));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(MessageOf(answer.status())), HasSubstr("200ms"));
}

TEST(HttpClient, SaysWhenNobodyListens) {
  Client client;
  const auto answer = Ask(client, To("http://127.0.0.1:" + std::to_string(FreePort()) + "/"));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
}

TEST(HttpClient, SendsAgainWhenAKeptConnectionWasClosed) {
  std::atomic<int> count = 0;
  HttpTestServer server([&](const auto&) {
    return ++count == 1 ? HttpTestServer::Ok() + HttpTestServer::kClose : HttpTestServer::Ok();
  });
  Client client;
  ASSERT_TRUE(Ask(client, To(server.url())).ok());
  EXPECT_TRUE(Ask(client, To(server.url())).ok());
}

TEST(HttpClient, RefusesPrivateAddressesHoweverTheyAreWritten) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  HttpTestServer server6([](const auto&) { return HttpTestServer::Ok(); }, /*ipv6=*/true);
  Client client;
  const auto closed = std::make_shared<Settings>();
  const std::string port = ":" + std::to_string(server.port()) + "/";
  for (const std::string host :
       {"127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "localhost",
        "LOCALHOST", "localhost.", "0.0.0.0", "0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "169.254.169.254", "10.0.0.1", "%31%32%37.0.0.1"}) {
    const auto url = ParseUrl("http://" + host + port);
    if (!url.ok()) continue;  // refused earlier
    Request request = To(server.url(), closed);
    request.url = *url;
    const auto answer = Ask(client, std::move(request));
    EXPECT_FALSE(answer.ok()) << host;
    EXPECT_TRUE(answer.status().code() == absl::StatusCode::kPermissionDenied ||
                host == "localhost." || host == "LOCALHOST" || host.starts_with('%'))
        << host << ": " << answer.status();
  }
  const auto v6 = Ask(client, To("http://[::1]:" + std::to_string(server6.port()) + "/", closed));
  EXPECT_EQ(v6.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(server.seen().empty());
  EXPECT_TRUE(server6.seen().empty());
  EXPECT_TRUE(Ask(client, To("http://localhost" + port)).ok());
}

TEST(HttpClient, ReachesNoPrivateAddressOverAConnectionThatWasKeptForAnother) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  Client client;
  const std::string url = "http://localhost:" + std::to_string(server.port()) + "/";
  ASSERT_TRUE(Ask(client, To(url)).ok());
  const auto closed = std::make_shared<Settings>();
  EXPECT_EQ(Ask(client, To(url, closed)).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(server.seen().size(), 1U);
  EXPECT_TRUE(Ask(client, To(url)).ok());
}

TEST(HttpClient, UsesNoProxyOfTheEnvironment) {
  HttpTestServer proxy([](const auto&) { return HttpTestServer::Ok(); });
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  setenv("http_proxy", proxy.url().c_str(), 1);
  setenv("ALL_PROXY", proxy.url().c_str(), 1);
  Client client;
  EXPECT_TRUE(Ask(client, To(server.url())).ok());
  unsetenv("http_proxy");
  unsetenv("ALL_PROXY");
  EXPECT_TRUE(proxy.seen().empty());
  auto through = Local();
  through->proxy = proxy.url();
  EXPECT_TRUE(Ask(client, To(server.url(), through)).ok());
  EXPECT_EQ(proxy.seen().size(), 1U);
}

TEST(HttpClient, ReachesNoPrivateAddressThroughAProxy) {
  HttpTestServer proxy([](const auto&) { return HttpTestServer::Ok(); });
  auto settings = std::make_shared<Settings>();
  settings->proxy = proxy.url();
  Client client;
  ASSERT_TRUE(Ask(client, To("http://example.com/", settings)).ok());  // the connection is kept
  EXPECT_EQ(Ask(client, To("http://169.254.169.254/", settings)).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(proxy.seen().size(), 1U);
}

TEST(HttpClient, KeepsToItsLimitsAndAnswersAll) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  Client client({.max_requests = 8, .max_requests_per_origin = 4});
  constexpr int kRequests = 500;
  std::atomic<int> left = kRequests;
  std::atomic<int> good = 0;
  std::promise<void> all;
  for (int i = 0; i < kRequests; ++i) {
    client.Send(To(server.url()), [&](const absl::StatusOr<Answer>& answer) {
      good += answer.ok() ? 1 : 0;
      if (--left == 0) all.set_value();
    });
  }
  all.get_future().wait();
  EXPECT_EQ(good, kRequests);
  EXPECT_LE(server.most_at_once(), 4);
  EXPECT_GT(server.most_at_once(), 0);
}

TEST(HttpClient, ServesOthersWhileOneServerHangs) {
  HttpTestServer hangs([](const auto&) { return std::string(HttpTestServer::kHang); });
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  Client client({.max_requests = 8, .max_requests_per_origin = 4});
  for (int i = 0; i < 20; ++i) client.Send(To(hangs.url()), [](const auto&) {});
  EXPECT_TRUE(Ask(client, To(server.url())).ok());
}

TEST(HttpClient, TellsAllThatIsUnderWayOrWaitsWhenItIsStopped) {
  HttpTestServer hangs([](const auto&) { return std::string(HttpTestServer::kHang); });
  std::atomic<int> cancelled = 0;
  const auto count = [&](const absl::StatusOr<Answer>& answer) {
    if (absl::IsCancelled(answer.status())) ++cancelled;
  };
  Client client({.max_requests = 2, .max_requests_per_origin = 2});
  for (int i = 0; i < 10; ++i) client.Send(To(hangs.url()), count);
  client.Stop();
  EXPECT_EQ(cancelled, 10);
  client.Send(To(hangs.url()), count);
  EXPECT_EQ(cancelled, 11);
  client.Stop();
}

TEST(HttpClient, LetsAnAnswerSendTheNextRequest) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  Client client;
  std::promise<void> all;
  std::function<void(int)> next = [&](int left) {
    client.Send(To(server.url()), [&, left](const auto&) {
      if (left == 0) return all.set_value();
      next(left - 1);
    });
  };
  next(50);
  all.get_future().wait();
  EXPECT_EQ(server.seen().size(), 51U);
}

TEST(HttpClient, SurvivesAnExceptionOfWhoeverWaited) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  Client client;
  client.Send(To(server.url()), [](const auto&) { throw std::runtime_error("oops"); });
  EXPECT_TRUE(Ask(client, To(server.url())).ok());
}

}  // namespace
}  // namespace lockstep::http
