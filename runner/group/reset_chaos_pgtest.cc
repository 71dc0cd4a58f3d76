// Resets at random while three runner processes work and are killed, on the emulator, told to let
// late acks count even after a Seek: the read model must end as that of the events since the last
// reset.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <random>

#include "emulator/service/server.h"
#include "offsets/reset.h"
#include "platform/status.h"
#include "postgres/migrator.h"
#include "runner/testing/test_group.h"
#include "sql/migrations.h"

extern char** environ;

namespace lockstep::runner {
namespace {

constexpr Millis kFence{300};
constexpr Millis kTakeover{1'500};
constexpr int kKeys = 12;

GroupOptions ChaosOptions() {
  GroupOptions options;
  options.name = "feed";
  options.subscription = kSubscription;
  options.lanes = 2;
  options.ack_fence = kFence;
  options.seek_takeover = kTakeover;
  return options;
}

// A runner process: this very program, run for this case alone. Killed by its parent.
TEST(ResetChaosChild, DISABLED_Runs) {
  const auto transport = *pubsub::MakeTransport({.emulator_host = std::getenv("CHAOS_EMULATOR")});
  MetricsRegistry metrics;
  const GroupEnvironment environment{.database = std::getenv("CHAOS_DATABASE"),
                                     .state_schema = "feed_state",
                                     .instance = std::getenv("CHAOS_INSTANCE"),
                                     .transport = *transport,
                                     .metrics = metrics,
                                     .poll = Millis(50),
                                     .retry_halt = Millis(100)};
  Group group(ChaosOptions(), std::make_unique<TestProjector>(), environment);
  ASSERT_TRUE(group.Start().ok());
  while (getppid() != 1) std::this_thread::sleep_for(Millis(200));  // ends with its parent
}

class Child {
 public:
  Child(const std::string& database, const std::string& emulator, int number) {
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
    environment.push_back("CHAOS_DATABASE=" + database);
    environment.push_back("CHAOS_EMULATOR=" + emulator);
    environment.push_back(fmt::format("CHAOS_INSTANCE=child-{}", number));
    std::vector<char*> pointers;
    for (std::string& entry : environment) pointers.push_back(entry.data());
    pointers.push_back(nullptr);
    std::string self = "/proc/self/exe", filter = "--gtest_filter=ResetChaosChild.DISABLED_Runs",
                also = "--gtest_also_run_disabled_tests";
    char* arguments[] = {self.data(), filter.data(), also.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, self.c_str(), nullptr, nullptr, arguments, pointers.data()), 0);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

class ResetChaos : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(server_.Start().ok());
    transport_ = *pubsub::MakeTransport({.emulator_host = server_.address()});
    publisher_ = transport_->NewPublisher({});
    ASSERT_TRUE(transport_->admin().CreateTopic({.name = kTopic}).ok());
    ASSERT_TRUE(
        transport_->admin()
            .CreateSubscription(
                {.name = kSubscription, .topic = kTopic, .ordering = true, .retain_acked = true})
            .ok());
    const auto connection = database_.Connect();
    ASSERT_TRUE(postgres::Migrator(*connection, "feed_state", sql::StateMigrations()).Up().ok());
    database_.Run(TestProjector::kTables);
    // Whoever saves an offset wrote the read model in the same transaction.
    database_.Run(R"(
      CREATE TABLE public.epoch_log (written bigint, current bigint);
      CREATE FUNCTION log_epoch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.instance <> '(reset)' THEN
          INSERT INTO public.epoch_log SELECT NEW.epoch, epoch FROM feed_state.consumer_groups;
        END IF;
        RETURN NULL; END $$;
      CREATE TRIGGER log_epoch AFTER INSERT OR UPDATE ON feed_state.offsets
        FOR EACH ROW EXECUTE FUNCTION log_epoch())");
  }

  // Answers when the bus has them.
  void Publish(const std::vector<TestEvent>& events) {
    std::vector<pubsub::Message> messages;
    for (const TestEvent& event : events) messages.push_back(event.Message());
    PublishAndWait(*publisher_, kTopic, std::move(messages));
  }
  // So many more versions of every key.
  void Publish(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      ++version_;
      std::vector<TestEvent> events;
      for (int k = 0; k < kKeys; ++k) {
        events.push_back({.id = fmt::format("k{}", k), .version = version_});
      }
      Publish(events);
    }
  }
  void Reset(WallTime to, offsets::ResetMode mode) {
    const auto connection = database_.Connect();
    const auto done = resets_.Run(*connection, {.seek = state::SeekTarget::To(to),
                                                .mode = mode,
                                                .tables = {"rm.items", "rm.counters"},
                                                .operator_name = "chaos",
                                                .fence = 2 * kFence,
                                                .takeover = kTakeover});
    ASSERT_TRUE(done.ok()) << done.status();
  }
  bool Await(const std::string& sql, int64_t wanted) {
    const auto deadline = Clock::System().Steady() + std::chrono::seconds(60);
    while (database_.QueryInt(sql) != wanted) {
      if (Clock::System().Steady() > deadline) return false;
      std::this_thread::sleep_for(Millis(20));
    }
    return true;
  }

  testing::TestDatabase database_;
  emulator::Server server_;
  std::unique_ptr<pubsub::Transport> transport_;
  std::unique_ptr<pubsub::Publisher> publisher_;
  const offsets::Resets resets_{state::Schema("feed_state"), ConsumerGroup("feed")};
  int64_t version_ = 0;
};

TEST_F(ResetChaos, EndsAsTheEventsSinceTheLastResetSay) {
  std::mt19937 random(7);
  emulator::FaultOptions faults;
  faults.delay_acks = 0.3;
  faults.ack_delay = kFence;
  faults.duplicate = 0.05;
  server_.faults().Set(faults);
  std::vector<std::unique_ptr<Child>> children;
  int number = 0;
  const auto spawn = [&] {
    return std::make_unique<Child>(database_.url(), server_.address(), ++number);
  };
  for (int i = 0; i < 3; ++i) children.push_back(spawn());
  Publish(10);
  ASSERT_TRUE(Await("SELECT count(*) FROM feed_state.consumer_groups", 1));
  std::vector<WallTime> cuts{WallTime()};
  for (int turn = 0; turn < 4; ++turn) {
    Publish(10);
    cuts.push_back(Clock::System().Now());
    if (random() % 2 == 0) children[random() % 3] = spawn();
    const bool empty = random() % 2 == 0;
    Reset(cuts[random() % cuts.size()],
          empty ? offsets::ResetMode::kEmpty : offsets::ResetMode::kKeep);
    if (random() % 2 == 0) children[random() % 3] = spawn();
    Publish(10);
    // Every other epoch gets as far as its Seek before the next reset comes.
    if (turn % 2 == 0) {
      ASSERT_TRUE(
          Await("SELECT count(*) FROM feed_state.consumer_groups WHERE seek_state = 'done'", 1));
      Publish(10);
    }
  }
  const int64_t before = version_;
  const WallTime cut = Clock::System().Now();
  Publish(15);
  children[0] = spawn();
  Reset(cut, offsets::ResetMode::kEmpty);
  Publish(5);
  EXPECT_TRUE(
      Await(fmt::format("SELECT count(*) FROM rm.items WHERE version = {}", version_), kKeys))
      << database_.QueryInt("SELECT min(version) FROM rm.items") << " of " << version_;
  EXPECT_TRUE(
      Await(fmt::format("SELECT count(*) FROM rm.counters WHERE n = {}", version_ - before), kKeys))
      << database_.QueryInt("SELECT min(n) FROM rm.counters") << " of " << version_ - before;
  EXPECT_EQ(database_.QueryInt("SELECT count(*) FROM epoch_log WHERE written <> current"), 0);
  EXPECT_GT(database_.QueryInt("SELECT count(DISTINCT written) FROM epoch_log"), 1);
}

// The emulator answers acks at once and lets them count later, after a Seek too (which the service
// rules out). So they must have landed before the Seek, or they ack what it has brought back and
// nobody has seen yet: with `.fence = Millis(1)` in Reset this case fails.
TEST_F(ResetChaos, AcksThatArriveLateLoseNothing) {
  constexpr int kEvents = 4;
  emulator::FaultOptions faults;
  faults.delay_acks = 1;
  faults.ack_delay = Millis(600);
  server_.faults().Set(faults);
  MetricsRegistry metrics;
  const GroupEnvironment environment{.database = database_.url(),
                                     .state_schema = "feed_state",
                                     .instance = "slow",
                                     .transport = *transport_,
                                     .metrics = metrics,
                                     .poll = Millis(50),
                                     .retry_halt = Millis(100)};
  GroupOptions options = ChaosOptions();
  options.lanes = 1;
  options.max_batch = 1;
  options.max_outstanding_messages = 1;  // what waits is still with the bus when the acks land
  Group group(options, std::make_unique<TestProjector>(), environment);
  ASSERT_TRUE(group.Start().ok());
  for (int i = 0; i < kEvents; ++i) {
    Publish({{.id = fmt::format("e{}", i), .payload = Running("SELECT pg_sleep(0.1)")}});
  }
  ASSERT_TRUE(Await("SELECT count(*) FROM rm.items", kEvents));
  Reset(WallTime(), offsets::ResetMode::kEmpty);
  EXPECT_TRUE(Await("SELECT count(*) FROM rm.items", kEvents));
  EXPECT_EQ(database_.QueryInt("SELECT count(*) FROM rm.counters WHERE n = 1"), kEvents);
}

}  // namespace
}  // namespace lockstep::runner
