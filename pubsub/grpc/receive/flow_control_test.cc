#include "pubsub/grpc/receive/flow_control.h"

#include <gtest/gtest.h>

#include "pubsub/grpc/channel/timers.h"
#include "pubsub/grpc/receive/stream_state.h"

namespace lockstep::pubsub::grpc_client {
namespace {

TEST(FlowControl, HoldsStreamsBackByCountAndByBytes) {
  FlowControl flow({2, 100});
  int resumed = 0;
  const auto resume = [&] { ++resumed; };
  flow.Take({1, 10});
  EXPECT_TRUE(flow.MayRead(resume));
  flow.Take({1, 10});
  EXPECT_FALSE(flow.MayRead(resume));
  flow.Give({1, 10});
  EXPECT_EQ(resumed, 1);
  flow.Take({0, 90});
  EXPECT_FALSE(flow.MayRead(resume));
  flow.Give({0, 1});
  EXPECT_EQ(resumed, 2);
}

TEST(FlowControl, LetsEverybodyReadOnceItIsOpen) {
  FlowControl flow({1, 100});
  flow.Take({5, 0});
  bool resumed = false;
  EXPECT_FALSE(flow.MayRead([&] { resumed = true; }));
  flow.Open();
  EXPECT_TRUE(resumed);
  EXPECT_TRUE(flow.MayRead([] {}));
}

TEST(StreamState, TellsTheFirstThatComesAndTheLastThatGoes) {
  std::vector<absl::StatusCode> told;
  StreamState state([&](const absl::Status& status) { told.push_back(status.code()); });
  bool first = false;
  bool second = false;
  state.OnStream(absl::OkStatus(), &first);
  state.OnStream(absl::OkStatus(), &second);
  state.OnStream(absl::UnavailableError("x"), &first);
  state.OnStream(absl::UnavailableError("x"), &second);
  state.OnStream(absl::NotFoundError("x"), &second);
  state.OnStream(absl::OkStatus(), &second);
  using Code = absl::StatusCode;
  EXPECT_EQ(told, (std::vector{Code::kOk, Code::kUnavailable, Code::kNotFound, Code::kOk}));
}

TEST(Timers, RunInTheOrderOfTheirTimes) {
  std::mutex mu;
  std::condition_variable changed;
  std::string order;
  Timers timers;
  const auto note = [&](char c) {
    return [&, c] {
      std::scoped_lock lock(mu);
      order += c;
      changed.notify_all();
    };
  };
  Timer third(timers);
  Timer second(timers);
  Timer never(timers);
  third.Set(Millis(40), note('c'));
  second.Set(Millis(5), note('x'));
  second.Set(Millis(20), note('b'));  // instead of the first
  timers.Now(note('a'));
  never.Set(Millis(30), note('x'));
  never.Cancel();
  std::unique_lock lock(mu);
  changed.wait(lock, [&] { return order.size() == 3; });
  EXPECT_EQ(order, "abc");
}

TEST(Timers, CancelWaitsForTheFunctionThatRuns) {
  Timers timers;
  std::atomic<bool> started = false;
  std::atomic<bool> ended = false;
  Timer timer(timers);
  timer.Set(Millis(0), [&] {
    started = true;
    started.notify_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // long enough to be met
    ended = true;
  });
  started.wait(false);
  timer.Cancel();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace lockstep::pubsub::grpc_client
