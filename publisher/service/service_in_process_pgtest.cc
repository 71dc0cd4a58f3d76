// A publisher whose bus is in its own process.
#include <gmock/gmock.h>

#include <atomic>
#include <future>

#include "platform/log/log.h"
#include "publisher/dispatch/in_process_bus.h"
#include "publisher/testing/service_test.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;

TEST_F(ServiceTest, NobodyWhoListensIsNoSubscribersAndSpendsNoAttempt) {
  InProcessBus bus;
  const auto running = Make(Config(), &bus);
  ASSERT_TRUE(running->service->Start().ok());
  Enqueue("k", 1);
  ASSERT_TRUE(AwaitRows("error_code = 'EVENTBUS_NO_SUBSCRIBERS' AND attempts = 0", 1));
  std::atomic<int> heard = 0;
  bus.Subscribe("shop.events", [&](const Event&) { return ++heard, absl::OkStatus(); });
  ASSERT_TRUE(AwaitRows("published_at IS NOT NULL AND last_error IS NULL", 1));
  EXPECT_EQ(heard, 1);
}

TEST_F(ServiceTest, AHandlerHearsEverythingAboutItsEvent) {
  InProcessBus bus;
  std::promise<OutboxRow> heard;
  std::string table;
  bus.Subscribe("shop.events", [&](const Event& event) {
    table = event.table;
    heard.set_value(event.row);
    return absl::OkStatus();
  });
  const auto running = Make(Config(), &bus);
  ASSERT_TRUE(running->service->Start().ok());
  const int64_t sequence = db_.QueryInt(
      "SELECT lockstep.enqueue('shop.outbox', 'shop.events', 'item', 'k', 'T', 1, 'p', event_id => "
      "'00000000-0000-4000-8000-000000000001', tenant_id => 'acme', traceparent => '00-a-b-01', "
      "tracestate => 'x=1')");
  const OutboxRow row = heard.get_future().get();
  EXPECT_EQ(table, kTable);
  EXPECT_EQ(row.sequence, sequence);
  EXPECT_EQ(row.event_id.value(), "00000000-0000-4000-8000-000000000001");
  EXPECT_EQ(row.tenant_id, "acme");
  EXPECT_EQ(row.topic, "shop.events");
  EXPECT_EQ(row.attempts, 0);
  EXPECT_EQ(row.traceparent, "00-a-b-01");
  EXPECT_EQ(row.tracestate, "x=1");
  running->service->Stop();
}

TEST_F(ServiceTest, AnEventThatTheBusHasAlreadyIsAsGoodAsPublished) {
  InProcessBus bus;
  bus.Subscribe("shop.events", [](const Event&) { return absl::AlreadyExistsError("seen"); });
  const log::Level level = log::CurrentLevel();
  log::SetLevel(log::Level::kInfo);
  ::testing::internal::CaptureStderr();
  const auto running = Make(Config(), &bus);
  ASSERT_TRUE(running->service->Start().ok());
  EnqueueMany("k", 3);
  const bool published = AwaitRows("published_at IS NOT NULL AND attempts = 0", 3);
  running->service->Stop();
  const std::string lines = ::testing::internal::GetCapturedStderr();
  log::SetLevel(level);
  EXPECT_TRUE(published);
  EXPECT_THAT(lines, HasSubstr("code=outbox_flush_known"));
  EXPECT_THAT(RenderMetrics(running->metrics),
              HasSubstr("outbox_dispatch_total{result=\"success\",table=\"shop.outbox\",topic="
                        "\"shop.events\"} 3"));
}

}  // namespace
}  // namespace lockstep::publisher
