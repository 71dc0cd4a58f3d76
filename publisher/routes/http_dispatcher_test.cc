#include "publisher/routes/http_dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>

#include "platform/status.h"
#include "publisher/dispatch/failure.h"
#include "tests/support/http_test_server.h"

namespace lockstep::publisher {
namespace {

using ::lockstep::testing::HttpTestServer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RowPtr RowOf(const std::string& key, int64_t version) {
  OutboxRow row;
  row.sequence = version;
  row.event_id = EventId("00000000-0000-0000-0000-00000000000" + std::to_string(version));
  row.topic = "shop.events";
  row.aggregate_type = "item";
  row.aggregate_id = key;
  row.event_type = "ItemChanged";
  row.version = version;
  row.payload = R"({"secret":"4111111111111111"})";
  row.content_type = "application/json";
  row.attributes = R"({"region":"eu"})";
  row.occurred_at = "2026-01-01T00:00:00.000000Z";
  return std::make_shared<const OutboxRow>(row);
}

class HttpDispatcherTest : public ::testing::Test {
 protected:
  std::vector<DispatchResult> Send(const std::string& url, std::vector<RowPtr> rows) {
    envelope::EndpointOptions options;
    options.settings.allow_private = true;
    options.settings.timeout = timeout_;
    HttpDispatcher dispatcher(
        url, std::shared_ptr<envelope::Endpoint>(envelope::Endpoint::Open(url, options).value()),
        client_);
    std::promise<std::vector<DispatchResult>> promise;
    dispatcher.Dispatch("shop.outbox", "shop.events", std::move(rows),
                        [&](std::vector<DispatchResult> results) { promise.set_value(results); });
    return promise.get_future().get();
  }

  Millis timeout_{10'000};
  http::Client client_;
};

TEST_F(HttpDispatcherTest, SendsTheRowsOfAKeyOneAfterAnother) {
  std::mutex mu;
  std::map<std::string, std::string> order;
  std::map<std::string, int> at_once;
  HttpTestServer server([&](const HttpTestServer::Seen& seen) {
    const std::string key = seen.headers.at("lockstep-aggregate-id");
    {
      const std::scoped_lock lock(mu);
      EXPECT_EQ(++at_once[key], 1);
      order[key] += seen.headers.at("lockstep-version");
    }
    std::this_thread::yield();
    const std::scoped_lock lock(mu);
    --at_once[key];
    return HttpTestServer::Ok();
  });
  std::vector<RowPtr> rows;
  for (const char* key : {"a", "b", "c"}) {
    for (int version = 1; version <= 5; ++version) rows.push_back(RowOf(key, version));
  }
  for (const DispatchResult& result : Send(server.url(), rows)) {
    EXPECT_TRUE(result.status.ok()) << result.status;
  }
  EXPECT_EQ(order["a"], "12345");
  EXPECT_EQ(order["b"], "12345");
  EXPECT_EQ(order["c"], "12345");
  const auto seen = server.seen().front();
  EXPECT_EQ(seen.headers.at("idempotency-key"), seen.headers.at("lockstep-event-id"));
  EXPECT_EQ(seen.headers.at("lockstep-region"), "eu");
  EXPECT_EQ(seen.body, R"({"secret":"4111111111111111"})");
}

TEST_F(HttpDispatcherTest, SendsNothingBehindARowThatFailedButOtherKeys) {
  HttpTestServer server([](const HttpTestServer::Seen& seen) {
    const bool bad = seen.headers.at("lockstep-aggregate-id") == "a" &&
                     seen.headers.at("lockstep-version") == "2";
    return bad ? HttpTestServer::Status(422, "", "no such item: 4111111111111111")
               : HttpTestServer::Ok();
  });
  const auto results =
      Send(server.url(), {RowOf("a", 1), RowOf("a", 2), RowOf("a", 3), RowOf("b", 1)});
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_EQ(results[1].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(results[1].code, kHttpRefused);
  EXPECT_FALSE(results[1].doubtful);
  EXPECT_THAT(std::string(MessageOf(results[1].status)), HasSubstr("422"));
  EXPECT_THAT(std::string(MessageOf(results[1].status)), Not(HasSubstr("41111111")));
  EXPECT_EQ(results[2].status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(results[3].status.ok());
  EXPECT_EQ(server.seen().size(), 3U);
}

TEST_F(HttpDispatcherTest, TellsOutagesFromRefusals) {
  const auto answer = [&](const std::string& bytes) {
    HttpTestServer server([&](const auto&) { return bytes; });
    return Send(server.url(), {RowOf("a", 1)})[0];
  };
  for (const int status : {408, 425, 429, 500, 503, 301}) {
    EXPECT_EQ(FaultOf(answer(HttpTestServer::Status(status)).status), Fault::kOutage) << status;
  }
  const DispatchResult busy = answer(HttpTestServer::Status(429, "Retry-After: 12\r\n"));
  EXPECT_EQ(busy.retry_after, Millis(12'000));
  EXPECT_TRUE(answer(HttpTestServer::Status(404)).doubtful);
  EXPECT_FALSE(answer(HttpTestServer::Status(400)).doubtful);
  timeout_ = Millis(100);
  EXPECT_EQ(ErrorCode(answer(HttpTestServer::kHang).status), "TX.TIMEOUT");
}

TEST_F(HttpDispatcherTest, RefusesARowThatCanBeNoRequest) {
  HttpTestServer server([](const auto&) { return HttpTestServer::Ok(); });
  OutboxRow bad = *RowOf("a", 1);
  bad.content_type = "text/plain\r\nX-Evil: 1";
  const auto results = Send(server.url(), {std::make_shared<const OutboxRow>(bad), RowOf("a", 2)});
  EXPECT_EQ(results[0].code, kRowRefused);
  EXPECT_EQ(results[1].status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(server.seen().empty());
}

}  // namespace
}  // namespace lockstep::publisher
