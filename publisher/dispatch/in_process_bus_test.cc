#include "publisher/dispatch/in_process_bus.h"

#include <gmock/gmock.h>

#include <future>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

using ::testing::HasSubstr;

RowPtr Row(const std::string& key, int64_t version) {
  auto row = std::make_shared<OutboxRow>();
  row->aggregate_id = key;
  row->version = version;
  row->topic = "t";
  return row;
}

std::vector<DispatchResult> Send(InProcessBus& bus, std::vector<RowPtr> rows) {
  std::promise<std::vector<DispatchResult>> results;
  bus.Dispatch("shop.outbox", "t", std::move(rows),
               [&](std::vector<DispatchResult> got) { results.set_value(std::move(got)); });
  return results.get_future().get();
}

TEST(InProcessBus, EveryHandlerRunsAndFailuresAreJoined) {
  InProcessBus bus;
  int calls = 0;
  bus.Subscribe("t", [&](const Event&) { return ++calls, absl::InternalError("one"); });
  bus.Subscribe("t", [&](const Event&) -> absl::Status { throw std::runtime_error("two"); });
  bus.Subscribe("t", [&](const Event& event) {
    EXPECT_EQ(event.table, "shop.outbox");
    return ++calls, absl::OkStatus();
  });
  const auto results = Send(bus, {Row("k", 1)});
  EXPECT_EQ(calls, 2);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(MessageOf(results[0].status)), HasSubstr("one"));
  EXPECT_THAT(std::string(MessageOf(results[0].status)), HasSubstr("two"));
}

TEST(InProcessBus, NoHandlerIsNoSubscribers) {
  InProcessBus bus;
  bus.Subscribe("other", [](const Event&) { return absl::OkStatus(); });
  const auto results = Send(bus, {Row("k", 1)});
  EXPECT_FALSE(results[0].status.ok());
  EXPECT_EQ(results[0].code, "EVENTBUS_NO_SUBSCRIBERS");
}

TEST(InProcessBus, AFailureStopsItsKeyOnly) {
  InProcessBus bus;
  std::vector<std::string> seen;
  bus.Subscribe("t", [&](const Event& event) {
    seen.push_back(event.row.aggregate_id + std::to_string(event.row.version));
    return seen.back() == "a1" ? absl::InternalError("no") : absl::OkStatus();
  });
  const auto results = Send(bus, {Row("a", 1), Row("a", 2), Row("b", 1)});
  EXPECT_EQ(seen, (std::vector<std::string>{"a1", "b1"}));
  EXPECT_EQ(results[1].status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(results[2].status.ok());
}

TEST(InProcessBus, CancelsWhatHasNotBegun) {
  std::promise<void> begun;
  std::promise<void> go;
  auto bus = std::make_unique<InProcessBus>();
  bus->Subscribe("t", [&](const Event&) {
    begun.set_value();
    go.get_future().wait();
    return absl::OkStatus();
  });
  std::vector<DispatchResult> first;
  std::vector<DispatchResult> second;
  bus->Dispatch("x", "t", {Row("a", 1)}, [&](auto results) { first = std::move(results); });
  bus->Dispatch("x", "t", {Row("a", 2)}, [&](auto results) { second = std::move(results); });
  begun.get_future().wait();
  std::thread destroyer([&] { bus.reset(); });
  go.set_value();
  destroyer.join();
  EXPECT_TRUE(first[0].status.ok());
  EXPECT_FALSE(second.empty());
}

}  // namespace
}  // namespace lockstep::publisher
