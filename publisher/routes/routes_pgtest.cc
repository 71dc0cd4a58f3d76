// A whole publisher whose topics go to HTTP endpoints, to the bus and to dispatchers of its own.
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>

#include "platform/status.h"
#include "publisher/dispatch/in_process_bus.h"
#include "publisher/observe/relay_status.h"
#include "publisher/testing/service_test.h"
#include "tests/support/http_test_server.h"

namespace lockstep::publisher {
namespace {

using ::lockstep::testing::HttpTestServer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class RoutesTest : public ServiceTest {
 protected:
  PublisherConfig To(const Routes& routes) {
    PublisherConfig config = Config();
    config.topics["shop.events"] = routes;
    config.routes.defaults.settings.allow_private = true;
    config.routes.defaults.settings.timeout = Millis(2'000);
    return config;
  }
  // Versions by key, in the order of their arrival.
  static std::map<std::string, std::string> Versions(const HttpTestServer& server) {
    std::map<std::string, std::string> versions;
    for (const auto& seen : server.seen()) {
      versions[seen.headers.at("lockstep-aggregate-id")] +=
          seen.headers.at("lockstep-version") + " ";
    }
    return versions;
  }
  int64_t Put(const std::string& key, int version, const std::string& payload) {
    return db_.QueryInt(fmt::format(
        "SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', '{}', 'T', {}, '{}', "
        "target_space => 'search')",
        key, version, payload));
  }
};

TEST_F(RoutesTest, AnEndpointGetsEveryRowOfAKeyInOrder) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  const auto running = Make(To(server.url("/in")));
  for (const char* key : {"a", "b", "c"}) EnqueueMany(key, 20);
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 60));
  std::string all;
  for (int i = 1; i <= 20; ++i) all += std::to_string(i) + " ";
  for (const auto& [key, versions] : Versions(server)) EXPECT_EQ(versions, all) << key;
}

TEST_F(RoutesTest, AnOutageSpendsNothingAndPausesAsLongAsItsRetryAfterSays) {
  std::atomic<int> asked = 0;
  HttpTestServer server([&](const auto&) {
    return ++asked <= 2 ? HttpTestServer::Status(503, asked == 1 ? "Retry-After: 1\r\n" : "")
                        : HttpTestServer::Ok();
  });
  const auto running = Make(To(server.url()));
  ASSERT_TRUE(running->service->Start().ok());
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NULL AND error_code = 'PROVIDER.UNAVAILABLE'", 1));
  const auto status = running->service->Tables()[0].relay.topics.at("shop.events");
  EXPECT_THAT(status.outage, HasSubstr("503"));
  ASSERT_THAT(status.routes, SizeIs(1));
  EXPECT_THAT(status.routes[0].outage, HasSubstr("503"));
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL AND attempts = 0", 1));
  EXPECT_EQ(asked, 3);
}

TEST_F(RoutesTest, ARefusalKillsTheRowAtOnceAndItsSuccessorsWait) {
  std::atomic<bool> mended = false;
  HttpTestServer server([&](const HttpTestServer::Seen& seen) {
    return seen.headers.at("lockstep-version") == "2" && !mended
               ? HttpTestServer::Status(422, "", "title is missing")
               : HttpTestServer::Ok();
  });
  const auto running = Make(To(server.url()));
  EnqueueMany("k", 3);
  EnqueueMany("other", 1);
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(
      AwaitRows("dead_at IS NOT NULL AND error_code = 'HTTP.REFUSED' AND attempts = 1 AND "
                "last_error LIKE '%422%title is missing%'",
                1));
  EXPECT_EQ(Versions(server)["k"], "1 2 ");
  mended = true;
  db_.Run(
      "SELECT lockstep.replay('shop.outbox', array_agg(sequence), 'me') FROM shop.outbox_status "
      "WHERE "
      "dead_at IS NOT NULL");
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 4));
  EXPECT_EQ(Versions(server)["k"], "1 2 2 3 ");
}

TEST_F(RoutesTest, AnEndpointThatRefusesEverybodyKillsNothing) {
  std::atomic<bool> mended = false;
  HttpTestServer server(
      [&](const auto&) { return mended ? HttpTestServer::Ok() : HttpTestServer::Status(404); });
  const auto running = Make(To(server.url()));
  for (const char* key : {"a", "b", "c", "d"}) Enqueue(key, 1);
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(lockstep::testing::Eventually([&] { return server.seen().size() > 12; }));
  EXPECT_EQ(Count("dead_at IS NOT NULL"), 0);
  mended = true;
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 4));
}

TEST_F(RoutesTest, AnEndpointThatHangsKeepsOtherTopicsWaitingNoSecondTime) {
  HttpTestServer hanging([](const auto&) { return HttpTestServer::kHang; });
  HttpTestServer good([](const auto&) { return HttpTestServer::Ok(); });
  PublisherConfig config = To(good.url());
  config.topics["shop.slow"] = hanging.url();
  config.routes.defaults.settings.timeout = Millis(4'000);
  config.tables[0].max_in_flight = 20;
  config.tables[0].batch_size = 10;
  const auto running = Make(config);
  db_.Run(
      "SELECT lockstep.enqueue('shop.outbox', 'shop.slow', 'item', 'slow' || i, 'T', 1, 'x') FROM "
      "generate_series(1, 100) i");
  ASSERT_TRUE(running->service->Start().ok());
  // The first rows to hang fill its hands; then it knows.
  ASSERT_TRUE(testing::Eventually([&] { return hanging.seen().size() > 20; }));
  const SteadyTime began = Clock::System().Steady();
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1));
  EXPECT_LT(Clock::System().Steady() - began, std::chrono::seconds(2));
}

TEST_F(RoutesTest, ARouteThatFailsDoesNotMakeTheOthersRepeat) {
  std::atomic<bool> away = true;
  HttpTestServer good([](const auto&) { return HttpTestServer::Ok(); });
  HttpTestServer bad(
      [&](const auto&) { return away ? HttpTestServer::Status(500) : HttpTestServer::Ok(); });
  const auto running = Make(To({"shop.events", good.url(), bad.url()}));
  ASSERT_TRUE(running->service->Start().ok());
  EnqueueMany("k", 3);
  ASSERT_TRUE(AwaitRows(fmt::format("published_at IS NULL AND taken_by ? '{}' AND taken_by ? "
                                    "'bus:shop.events' AND NOT taken_by ? '{}'",
                                    good.url(), bad.url()),
                        3));
  away = false;
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL AND message_id IS NOT NULL AND attempts = 0", 3));
  EXPECT_EQ(Versions(good)["k"], "1 2 3 ");
  EXPECT_TRUE(lockstep::testing::Eventually([&] { return sink_.deliveries().size() == 3; }));
}

TEST_F(RoutesTest, ARouteThatWasTakenAwayHoldsNoRowUp) {
  HttpTestServer good([](const auto&) { return HttpTestServer::Ok(); });
  HttpTestServer bad([&](const auto&) { return HttpTestServer::Status(500); });
  {
    const auto running = Make(To({good.url(), bad.url()}));
    ASSERT_TRUE(running->service->Start().ok());
    Enqueue("k", 1);
    ASSERT_TRUE(AwaitRows("taken_by <> '{}'", 1));
  }
  const auto running = Make(To(good.url()));
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 1));
  EXPECT_EQ(good.seen().size(), 1U);
}

TEST_F(RoutesTest, APrivateAddressThatIsNotAllowedIsAnOutageThatSaysWhatToDo) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  PublisherConfig config = To("http://localhost:" + std::to_string(server.port()) + "/");
  config.routes.defaults.settings.allow_private = false;
  const auto running = Make(config);
  ASSERT_TRUE(running->service->Start().ok());
  Enqueue("k", 1);
  ASSERT_TRUE(
      AwaitRows("last_error LIKE '%allow_private%' AND dead_at IS NULL AND attempts = 0", 1));
  EXPECT_TRUE(server.seen().empty());
}

TEST_F(RoutesTest, ADispatcherOfTheProgramIsARouteByItsName) {
  InProcessBus own;
  std::atomic<int> heard = 0;
  own.Subscribe("shop.events", [&](const Event&) { return ++heard, absl::OkStatus(); });
  NoBus none;
  const auto running = Make(To("custom:own"), &none);
  EXPECT_THAT(std::string(MessageOf(running->service->Start())), HasSubstr("AddRoute"));
  const auto again = Make(To("custom:own"), &none);
  again->service->AddRoute("own", own);
  ASSERT_TRUE(again->service->Start().ok());
  EnqueueMany("k", 3);
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 3));
  EXPECT_EQ(heard, 3);
}

TEST_F(RoutesTest, ContentThatWasSentToASpaceIsNotSentAgain) {
  db_.Run("SELECT lockstep.set_dedup_window('shop.outbox', '1 hour')");
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  const auto running = Make(To({server.url(), "shop.events"}));
  Put("a", 1, "x");
  Put("b", 1, "x");  // in the same claim
  Put("b", 2, "y");
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 3));
  Put("c", 1, "x");
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL", 4));
  EXPECT_EQ(server.seen().size(), 2U);
  EXPECT_EQ(db_.QueryInt("SELECT count(DISTINCT message_id) FROM shop.outbox_status"), 2);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.outbox_audit WHERE action = "
                         "'outbox_flush_dedup_hit'"),
            2);
  EXPECT_THAT(RenderMetrics(running->metrics),
              HasSubstr("outbox_dedup_hits_total{table=\"shop.outbox\"} 2"));
}

TEST_F(RoutesTest, WhenTheFirstOfAContentDiesTheSecondIsSent) {
  db_.Run("SELECT lockstep.set_dedup_window('shop.outbox', '1 hour')");
  HttpTestServer server([](const HttpTestServer::Seen& seen) {
    return seen.headers.at("lockstep-aggregate-id") == "a" ? HttpTestServer::Status(400)
                                                           : HttpTestServer::Ok();
  });
  const auto running = Make(To(server.url()));
  Put("a", 1, "x");
  Put("b", 1, "x");
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL AND aggregate_id = 'b'", 1));
  EXPECT_EQ(Count("dead_at IS NOT NULL AND aggregate_id = 'a'"), 1);
}

TEST_F(RoutesTest, WhoIsHeldBehindADeadRowKeepsNoOtherKeyWaitingForItsContent) {
  db_.Run("SELECT lockstep.set_dedup_window('shop.outbox', '1 hour')");
  HttpTestServer server([](const HttpTestServer::Seen& seen) {
    return seen.body == "bad" ? HttpTestServer::Status(400) : HttpTestServer::Ok();
  });
  const auto running = Make(To(server.url()));
  Put("a", 1, "bad");
  Put("a", 2, "x");
  Put("b", 3, "x");  // (of two versions, the lower is the first)
  ASSERT_TRUE(running->service->Start().ok());
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL AND aggregate_id = 'b'", 1));
  EXPECT_EQ(Count("aggregate_id = 'a' AND version = 2 AND available_at = 'infinity'"), 1);
}

}  // namespace
}  // namespace lockstep::publisher
