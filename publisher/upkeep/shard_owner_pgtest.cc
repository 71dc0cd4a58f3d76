#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>

#include "publisher/testing/relay_test.h"
#include "publisher/upkeep/shard_owner.h"

namespace lockstep::publisher {
namespace {

OwnershipOptions Quick() {
  OwnershipOptions options;
  options.ping_interval = Millis(50);
  options.session_timeout = Millis(10'000);
  return options;
}

class ShardOwnerTest : public RelayTest {
 protected:
  struct Member {
    std::unique_ptr<Running> running;
    std::unique_ptr<ShardOwner> owner;

    size_t Shards() {
      std::scoped_lock lock(running->events.mu);
      return running->events.shards.size();
    }
    void Stop() {
      running->relay->Stop();
      owner->Stop();
    }
  };

  std::unique_ptr<Member> Join(const std::string& name, int shards,
                               OwnershipOptions ownership = Quick(),
                               std::unique_ptr<Dispatcher> dispatcher = nullptr) {
    auto member = std::make_unique<Member>();
    RelayOptions options = Options();
    options.single_active = shards == 1;
    options.shards = shards;
    member->running = StartRelay(options, name, std::move(dispatcher));
    member->owner = std::make_unique<ShardOwner>(ownership, db_.url(),
                                                 std::vector{member->running->relay.get()});
    EXPECT_TRUE(member->owner->Start().ok());
    return member;
  }

  static bool Await(Member& member, const std::function<bool(size_t)>& shards) {
    return member.running->events.Await(
        [&] { return shards(member.running->events.shards.size()); });
  }
};

TEST_F(ShardOwnerTest, OneIsActiveAndAnotherTakesOver) {
  auto first = Join("first", 1);
  ASSERT_TRUE(Await(*first, [](size_t held) { return held == 1; }));
  auto second = Join("second", 1);
  EnqueueMany("k", 5);
  ASSERT_TRUE(AwaitPublished(5));
  EXPECT_EQ(second->running->events.claimed, 0);
  EXPECT_EQ(second->Shards(), 0u);
  first->Stop();
  ASSERT_TRUE(Await(*second, [](size_t held) { return held == 1; }));
  Enqueue("k", 6);
  ASSERT_TRUE(AwaitPublished(6));
  second->Stop();
  EXPECT_EQ(Published(), "k:1 k:2 k:3 k:4 k:5 k:6");
}

TEST_F(ShardOwnerTest, AFellowPublisherIsNoStranger) {
  const auto one = ShardLocks::Open(db_.url(), Millis(10'000));
  const auto other = ShardLocks::Open(db_.url(), Millis(10'000));
  ASSERT_TRUE(one.ok() && other.ok());
  const int64_t outbox = (*one)->Find(*postgres::QualifiedName::Parse(kTable))->oid;
  const auto stranger = [&] { return (*(*other)->Look({outbox}))[0].stranger; };
  ASSERT_TRUE((*one)->Join(outbox).ok());
  ASSERT_EQ((*one)->Take(outbox, {0}, 1)->size(), 1U);
  EXPECT_EQ(stranger(), "");
  ASSERT_TRUE((*one)->Leave(outbox).ok());
  EXPECT_THAT(stranger(), ::testing::HasSubstr("lockstep-publisher shards"));
}

// A publisher that starts holds shards for a moment before it is a member.
TEST_F(ShardOwnerTest, WhoWasSeenOnceIsNoStrangerYet) {
  const auto starting = ShardLocks::Open(db_.url(), Millis(10'000));
  ASSERT_TRUE(starting.ok());
  const int64_t outbox = (*starting)->Find(*postgres::QualifiedName::Parse(kTable))->oid;
  ASSERT_TRUE((*starting)->SetShardCount(outbox, 16).ok());
  ASSERT_EQ((*starting)->Take(outbox, {0}, 1)->size(), 1U);
  OwnershipOptions rare = Quick();
  rare.ping_interval = Millis(5'000);
  const auto a = Join("a", 16, rare);
  ASSERT_TRUE(Await(*a, [](size_t held) { return held == 15; })) << "it has looked";
  EXPECT_EQ(a->owner->Stranger(kTable), "");
}

TEST_F(ShardOwnerTest, PublishersShareShardsAsTheyComeAndGo) {
  auto a = Join("a", 16);
  ASSERT_TRUE(Await(*a, [](size_t held) { return held == 16; }));
  auto b = Join("b", 16);
  ASSERT_TRUE(Await(*b, [](size_t held) { return held == 8; }));
  ASSERT_TRUE(Await(*a, [](size_t held) { return held == 8; }));
  auto c = Join("c", 16);
  ASSERT_TRUE(Await(*c, [](size_t held) { return held >= 4; }));
  ASSERT_TRUE(Await(*a, [](size_t held) { return held <= 6; }));
  ASSERT_TRUE(Await(*b, [](size_t held) { return held <= 6; }));
  for (int key = 0; key < 64; ++key) Enqueue(fmt::format("k{}", key), 1);
  ASSERT_TRUE(AwaitPublished(64));
  b->Stop();
  c->Stop();
  ASSERT_TRUE(Await(*a, [](size_t held) { return held == 16; }));
  EXPECT_EQ(bus_.published().size(), 64u);  // each once
}

TEST_F(ShardOwnerTest, ALostSessionLosesItsShardsAndComesBack) {
  auto a = Join("a", 1);
  ASSERT_TRUE(Await(*a, [](size_t held) { return held == 1; }));
  db_.Run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
      "current_database() AND application_name = 'lockstep-publisher shards'");
  ASSERT_TRUE(Await(*a, [](size_t held) { return held == 0; }));
  ASSERT_TRUE(Await(*a, [](size_t held) { return held == 1; }));
}

// Its Dispatch does not return until told: the loop that calls it hangs.
class Hanging : public Dispatcher {
 public:
  explicit Hanging(std::atomic<bool>& go) : go_(go) {}
  // Also when the test has failed: the relay that hangs in it must end.
  struct Release {
    ~Release() {
      go = true;
      go.notify_all();
    }
    std::atomic<bool>& go;
  };
  void Dispatch(const std::string&, const std::string&, std::vector<RowPtr> rows,
                Done done) override {
    go_.wait(false);
    done(std::vector<DispatchResult>(rows.size(), {absl::CancelledError("too late"), "", ""}));
  }

 private:
  std::atomic<bool>& go_;
};

TEST_F(ShardOwnerTest, AHungOwnerGivesUpItsShardsByItself) {
  std::atomic<bool> go = false;
  OwnershipOptions ownership = Quick();
  ownership.watchdog = Millis(1'500);
  auto hung = Join("hung", 1, ownership, std::make_unique<Hanging>(go));
  const Hanging::Release release{go};
  ASSERT_TRUE(Await(*hung, [](size_t held) { return held == 1; }));
  auto other = Join("other", 1, Quick());
  Enqueue("k", 1);
  ASSERT_TRUE(Await(*other, [](size_t held) { return held == 1; }));
  Enqueue("elsewhere", 1);
  ASSERT_TRUE(AwaitPublished(1));  // k waits for the hung one's lease, the rest goes on
  EXPECT_EQ(Published(), "elsewhere:1");
  go = true;
  go.notify_all();
  ASSERT_TRUE(AwaitPublished(2));
}

TEST_F(ShardOwnerTest, TheNumberOfShardsChangesOnlyWithEveryLockInHand) {
  auto one = Join("one", 1);
  ASSERT_TRUE(Await(*one, [](size_t held) { return held == 1; }));
  auto four = Join("four", 4);
  for (int key = 0; key < 8; ++key) Enqueue(fmt::format("k{}", key), 1);
  ASSERT_TRUE(AwaitPublished(8));
  EXPECT_EQ(db_.QueryInt("SELECT shards FROM lockstep.outboxes"), 1);
  one->Stop();
  four->Stop();
  auto alone = Join("alone", 4);
  ASSERT_TRUE(Await(*alone, [](size_t held) { return held == 4; }));
  EXPECT_EQ(db_.QueryInt("SELECT shards FROM lockstep.outboxes"), 4);
}

}  // namespace
}  // namespace lockstep::publisher
