#include "web/console/poller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "platform/daemon/http_server.h"

namespace lockstep::web {
namespace {

using ::testing::HasSubstr;

class PollerTest : public ::testing::Test {
 protected:
  // A daemon that says it is this one.
  std::unique_ptr<HttpServer> Serve(const std::string& body, int port = 0) {
    auto http = std::make_unique<HttpServer>(HttpOptions{.port = port});
    http->Handle("/api/status", [body](const HttpRequest&) { return HttpResponse{.body = body}; });
    EXPECT_TRUE(http->Start().ok());
    return http;
  }
  Asked WaitFor(size_t at, const std::function<bool(const Asked&)>& good) {
    for (int i = 0; i < 3'000; ++i) {
      const auto all = poller_.Look();
      if (at < all.size() && good(all[at])) return all[at];
      std::this_thread::sleep_for(Millis(10));
    }
    ADD_FAILURE() << "it did not come";
    return {};
  }

  Poller poller_{Millis(20)};
};

bool Silent(const Asked& asked) { return asked.since != WallTime() && !asked.answers; }
bool Answers(const Asked& asked) { return asked.answers; }

TEST_F(PollerTest, AsksAllAndOneThatEndsIsSilentSinceThen) {
  auto first = Serve(R"({"role":"runner","instance":"r1"})");
  const auto second = Serve(R"({"role":"publisher","instance":"p1"})");
  poller_.Follow({{.address = first->url()}, {.address = second->url() + "/"}});
  ASSERT_TRUE(poller_.Start().ok());
  const Asked answered = WaitFor(0, Answers);
  EXPECT_EQ(answered.told["instance"], "r1");
  WaitFor(1, Answers);
  const Asked later =
      WaitFor(0, [&](const Asked& asked) { return asked.answered_at > answered.answered_at; });
  EXPECT_EQ(later.since, answered.since) << "it has answered all the time";
  const int port = first->port();
  first.reset();
  const Asked silent = WaitFor(0, Silent);
  EXPECT_GE(silent.since, answered.answered_at);
  EXPECT_GE(silent.since, silent.answered_at);
  EXPECT_FALSE(silent.fault.empty());
  EXPECT_EQ(silent.told["instance"], "r1") << "what it was stays known";
  EXPECT_TRUE(poller_.Look()[1].answers);
  first = Serve(R"({"role":"runner","instance":"r1"})", port);
  WaitFor(0, Answers);
}

TEST_F(PollerTest, OneThatHangsKeepsNobodyWaiting) {
  HttpServer hangs{HttpOptions{}};
  hangs.HandleLater("/api/status", [](const HttpRequest&, const HttpReply&) {});
  ASSERT_TRUE(hangs.Start().ok());
  const auto good = Serve(R"({"role":"runner","instance":"r1"})");
  poller_.Follow({{.address = hangs.url()}, {.address = good->url()}});
  ASSERT_TRUE(poller_.Start().ok());
  WaitFor(1, Answers);
  EXPECT_FALSE(poller_.Look()[0].answers);
}

TEST_F(PollerTest, WhatIsNoStatusIsSaidInASentence) {
  const auto other = Serve("<html>");
  const auto large = Serve(R"({"role":")" + std::string(3 << 20, 'x') + "\"}");
  poller_.Follow({{.address = other->url()},
                  {.address = large->url()},
                  {.address = "file:///etc/passwd"},
                  {.address = other->url(), .name = "another"}});
  ASSERT_TRUE(poller_.Start().ok());
  EXPECT_THAT(WaitFor(0, Silent).fault, HasSubstr("no Lockstep"));
  EXPECT_THAT(WaitFor(1, Silent).fault, HasSubstr("too large"));
  EXPECT_THAT(WaitFor(2, Silent).fault, HasSubstr("http"));
  EXPECT_EQ(poller_.Look().size(), 4U);
}

TEST_F(PollerTest, AsksNoMoreThanItMayAndForgetsWhoLeft) {
  std::vector<Instance> many;
  for (int i = 0; i < 250; ++i)
    many.push_back({.address = "http://127.0.0.1:1/" + std::to_string(i)});
  poller_.Follow(many);
  EXPECT_EQ(poller_.Look().size(), Poller::kMostInstances);
  EXPECT_EQ(poller_.left_out(), 50U);
  poller_.Follow({many[3]});
  EXPECT_EQ(poller_.Look().size(), 1U);
}

}  // namespace
}  // namespace lockstep::web
