// docs/iam.md: with roles/pubsub.publisher on the topic and roles/pubsub.subscriber on the
// subscription, and nothing more, publisher and runner do their whole job.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "emulator/service/server.h"
#include "platform/status.h"
#include "pubsub/transport.h"
#include "tests/support/process.h"
#include "tests/support/test_database.h"

namespace lockstep {
namespace {

constexpr char kTopic[] = "projects/lab/topics/shop.events";
constexpr char kSubscription[] = "projects/lab/subscriptions/shop.events.feed";

// What the two roles do not include: every call but Publish, StreamingPull, Pull, Acknowledge,
// ModifyAckDeadline and Seek.
emulator::FaultOptions OnlyPublishAndSubscribe() {
  emulator::FaultOptions faults;
  faults.refuse = 1;
  faults.refuse_status = absl::StatusCode::kPermissionDenied;
  faults.refuse_method =
      "CreateTopic,GetTopic,UpdateTopic,ListTopics,DeleteTopic,ListTopicSubscriptions,"
      "ListTopicSnapshots,CreateSubscription,GetSubscription,UpdateSubscription,"
      "ListSubscriptions,DeleteSubscription,DetachSubscription,ModifyPushConfig,"
      "CreateSnapshot,GetSnapshot,ListSnapshots,UpdateSnapshot,DeleteSnapshot,"
      "GetSchema,ListSchemas,ValidateMessage";
  return faults;
}

constexpr char kGroup[] = R"(
group: feed
subscription: shop.events.feed
settings: {{max_attempts: 1, ack_fence: 200ms, checkpoints: true, checkpoint_every: 1s}}
projections:
  - name: item
    table: feed.item
    key: {{id: {{attribute: aggregate_id}}}}
    version: version
    events:
      Set: {{replace: {{amount: {{field: amount, type: int}}}}}}
)";

constexpr char kRunner[] = R"(
database: {}
state_schema: feed_state
pubsub: {{project: lab, emulator_host: "{}"}}
http: {{enabled: false}}
groups: [{{file: group.yaml}}]
)";

constexpr char kPublisher[] = R"(
database: {}
pubsub: {{project: lab, emulator_host: "{}"}}
relay: {{tables: [shop.outbox], poll_interval: 200ms}}
topics: {{shop.item.set.v1: shop.events}}
heartbeat: {{topics: [shop.item.set.v1], interval: 500ms}}
http: {{enabled: false}}
)";

class BareRights : public ::testing::Test {
 protected:
  BareRights() {
    EXPECT_TRUE(server_.Start().ok());
    auto transport = pubsub::MakeTransport({.emulator_host = server_.address()});
    EXPECT_TRUE(transport.ok());
    EXPECT_TRUE((*transport)->admin().CreateTopic({.name = kTopic}).ok());
    EXPECT_TRUE(
        (*transport)
            ->admin()
            .CreateSubscription(
                {.name = kSubscription, .topic = kTopic, .ordering = true, .retain_acked = true})
            .ok());
    server_.faults().Set(OnlyPublishAndSubscribe());

    db_.Run(
        "CREATE SCHEMA feed; CREATE TABLE feed.item (id text PRIMARY KEY, amount int, "
        "version bigint NOT NULL)");
    EXPECT_EQ(Ctl({"migrate", "up", "--set", "outbox"}), 0);
    EXPECT_EQ(Ctl({"migrate", "up", "--set", "state", "--schema", "feed_state"}), 0);
    EXPECT_EQ(Ctl({"outbox", "create", "shop.outbox"}), 0);
    std::filesystem::create_directory(folder_);
    Write("group.yaml", fmt::format(fmt::runtime(kGroup)));
    Write("runner.yaml", fmt::format(fmt::runtime(kRunner), db_.url(), server_.address()));
    Write("publisher.yaml", fmt::format(fmt::runtime(kPublisher), db_.url(), server_.address()));
  }
  ~BareRights() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }

  int Ctl(std::vector<std::string> arguments) {
    testing::Process ctl("lockstepctl", arguments, {{"LOCKSTEP_DATABASE", db_.url()}});
    const int status = ctl.Wait();
    if (status != 0) ADD_FAILURE() << fmt::format("{}: {}", arguments.back(), ctl.Errors());
    return status;
  }

  void Enqueue(const std::string& key, int version, const std::string& amount) {
    db_.Query(
        "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item', $1, 'Set', "
        "$2::bigint, convert_to($3, 'UTF8'), content_type => 'application/json')",
        postgres::Params(key, version, R"({"amount":)" + amount + "}"));
  }

  // Other processes bring it about; a minute is for a machine that stands still.
  void Await(const std::string& what, const std::function<bool()>& condition) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) {
        FAIL() << "waited in vain for: " << what << "\n"
               << publisher_->Errors() << "\n"
               << runner_->Errors();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  void AwaitRows(const std::string& sql, int64_t count) {
    Await(sql, [&] { return db_.QueryInt("SELECT count(*) FROM " + sql) == count; });
  }
  void AwaitWarning(const std::string& words) {
    Await(words, [&] { return runner_->Errors().find(words) != std::string::npos; });
  }

  emulator::Server server_;
  testing::TestDatabase db_;
  const std::string folder_ =
      (std::filesystem::temp_directory_path() / ("lockstep-rights." + db_.name())).string();
  std::unique_ptr<testing::Process> publisher_;
  std::unique_ptr<testing::Process> runner_;
};

TEST_F(BareRights, PublisherAndRunnerDoTheirWholeJobAndSayWhatIsOff) {
  publisher_ = std::make_unique<testing::Process>(
      "lockstep-publisher", std::vector<std::string>{"--config", folder_ + "/publisher.yaml"});
  runner_ = std::make_unique<testing::Process>(
      "lockstep-runner", std::vector<std::string>{"--config", folder_ + "/runner.yaml"});
  for (int i = 0; i < 20; ++i) Enqueue(fmt::format("k{}", i % 5), 1 + i / 5, fmt::format("{}", i));
  Enqueue("poison", 1, "\"no number\"");
  AwaitRows("feed.item WHERE version = 4", 5);
  AwaitRows("feed_state.dead_letters WHERE state = 'dead'", 1);
  AwaitRows("shop.outbox_pending", 0);
  // Acks arrive: nothing is left to come again, or the reset below would show it.
  AwaitWarning("its ordering and retention go unchecked");
  AwaitWarning("no right to list snapshots");
  AwaitWarning("checkpoints are off");
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM feed_state.checkpoints"), 0);

  // A reset needs Seek, which subscribers may.
  EXPECT_EQ(Ctl({"--config", folder_ + "/runner.yaml", "offsets", "reset", "feed", "--to-earliest",
                 "--empty", "--accept-missing", "--reason", "test", "--yes"}),
            0);
  AwaitRows("feed_state.consumer_groups WHERE epoch = 2 AND seek_state = 'done'", 1);
  AwaitRows("feed.item WHERE version = 4", 5);

  for (const auto& process : {publisher_.get(), runner_.get()}) {
    process->Signal(SIGTERM);
    EXPECT_EQ(process->Wait(), 0) << process->Errors();
  }
  EXPECT_EQ(publisher_->Errors().find("level=error"), std::string::npos) << publisher_->Errors();
}

}  // namespace
}  // namespace lockstep
