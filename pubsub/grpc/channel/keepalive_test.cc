#include "pubsub/grpc/channel/keepalive.h"

#include <gtest/gtest.h>

#include <condition_variable>

#include "pubsub/grpc/testing/ends_early.h"

namespace lockstep::pubsub::grpc_client {
namespace {

class KeepaliveTest : public ::testing::Test {
 protected:
  void OnPing() {
    {
      std::scoped_lock lock(mu_);
      ++pings_;
      changed_.notify_all();
    }
    if (on_ping) on_ping();
  }
  void OnHangUp() {
    std::scoped_lock lock(mu_);
    ++hung_up_;
    changed_.notify_all();
  }
  bool AwaitPings(int count) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return pings_ >= count; });
  }
  bool AwaitHangUp() {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return hung_up_ > 0; });
  }
  int hung_up() {
    std::scoped_lock lock(mu_);
    return hung_up_;
  }

  std::function<void()> on_ping;  // set before keepalive_.Begin
  std::mutex mu_;
  std::condition_variable changed_;
  int pings_ = 0;
  int hung_up_ = 0;
  Timers timers_;
  Keepalive keepalive_{Millis(10), timers_, [this] { OnPing(); }, [this] { OnHangUp(); }};
};

TEST_F(KeepaliveTest, HangsUpOnAServerThatAnsweredAndThenDidNot) {
  int seen = 0;
  on_ping = [&] {
    if (++seen <= 2) keepalive_.OnResponse(false);
  };
  keepalive_.Begin();
  ASSERT_TRUE(AwaitHangUp());
  EXPECT_GE(seen, 3);
}

TEST_F(KeepaliveTest, LeavesAServerAloneThatKnowsNoPings) {
  int seen = 0;
  on_ping = [&] {
    if (++seen < 3) keepalive_.OnResponse(true);  // messages come, answers don't
  };
  keepalive_.Begin();
  const bool pinged = AwaitPings(6);
  keepalive_.End();  // before `seen` goes
  EXPECT_TRUE(pinged);
  EXPECT_EQ(hung_up(), 0);
}

TEST_F(KeepaliveTest, SilenceMeansNothingWhileNothingIsRead) {
  on_ping = [&] {
    keepalive_.OnResponse(false);
    keepalive_.Pause();
  };
  keepalive_.Begin();
  ASSERT_TRUE(AwaitPings(1));
  // As long as three pings would take.
  bool passed = false;
  Timer timer(timers_);
  timer.Set(Millis(30), [&] {
    std::scoped_lock lock(mu_);
    passed = true;
    changed_.notify_all();
  });
  std::unique_lock lock(mu_);
  ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return passed; }));
  EXPECT_EQ(pings_, 1);
  EXPECT_EQ(hung_up_, 0);
}

TEST_F(KeepaliveTest, ItsEndWaitsForAPingThatIsJustSent) {
  EndsEarly ends;
  on_ping = [&] { ends.Begin([this] { keepalive_.End(); }); };
  keepalive_.Begin();
  EXPECT_FALSE(ends.Await());
}

TEST_F(KeepaliveTest, IsSilentAfterItsEnd) {
  keepalive_.Begin();
  ASSERT_TRUE(AwaitPings(1));
  keepalive_.End();
  std::scoped_lock lock(mu_);
  EXPECT_EQ(hung_up_, 0);
}

}  // namespace
}  // namespace lockstep::pubsub::grpc_client
