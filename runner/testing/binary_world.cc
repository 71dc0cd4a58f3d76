#include "runner/testing/binary_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "postgres/migrator.h"
#include "sql/migrations.h"

namespace lockstep::runner {
namespace {

constexpr char kTables[] = R"(
CREATE SCHEMA rm;
CREATE TABLE rm.items (id text PRIMARY KEY, version bigint NOT NULL, a text);
CREATE FUNCTION rm.wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END $$;
CREATE TRIGGER wait BEFORE INSERT OR UPDATE ON rm.items FOR EACH ROW EXECUTE FUNCTION rm.wait();)";

constexpr char kProjection[] = R"(group: feed
subscription: items.feed
projections:
  - name: items
    table: rm.items
    key: id
    version: version
    events:
      ItemChanged: {merge: [a]}
)";

std::string Read(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace

BinaryWorld::BinaryWorld(const std::string& emulator) : projection(kProjection) {
  folder =
      (std::filesystem::temp_directory_path() / ("lockstep-binary." + database.name())).string();
  std::filesystem::create_directory(folder);
  const auto connection = database.Connect();
  EXPECT_TRUE(postgres::Migrator(*connection, "feed_state", sql::StateMigrations()).Up().ok());
  database.Run(kTables);
  emulator_host = emulator;
  if (emulator.empty()) {
    EXPECT_TRUE(server.Start().ok());
    emulator_host = server.address();
  } else {
    project = database.name();
    std::replace(project.begin(), project.end(), '_', '-');
    topic = fmt::format("projects/{}/topics/items", project);
    subscription = fmt::format("projects/{}/subscriptions/items.feed", project);
  }
  transport = *pubsub::MakeTransport({.emulator_host = emulator_host});
  EXPECT_TRUE(transport->admin().CreateTopic({.name = topic}).ok());
  const auto made = transport->admin().CreateSubscription(
      {.name = subscription, .topic = topic, .ordering = true, .retain_acked = true});
  EXPECT_TRUE(made.ok()) << made.status();
  publisher_ = transport->NewPublisher({});
  database_url = database.url();
}

BinaryWorld::~BinaryWorld() { std::filesystem::remove_all(folder); }

void BinaryWorld::WriteFiles() const {
  std::ofstream(folder + "/feed.yaml") << projection;
  std::ofstream(folder + "/runner.yaml") << fmt::format(
      "database: {}\nstate_schema: feed_state\npubsub: {{project: {}, emulator_host: '{}'}}\n"
      "http: {}\n{}groups:\n  - file: feed.yaml\n{}",
      database_url, project, emulator_host, http, settings, group_settings);
}

std::unique_ptr<testing::Process> BinaryWorld::Runner(const std::vector<std::string>& more) {
  WriteFiles();
  std::vector<std::string> arguments = {"--config", folder + "/runner.yaml"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return std::make_unique<testing::Process>("lockstep-runner", arguments);
}

BinaryWorld::Ran BinaryWorld::Ctl(const std::string& arguments) {
  WriteFiles();
  const std::string bin =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin")
          .string();
  const std::string command = fmt::format(
      "'{0}/lockstepctl' --config '{1}/runner.yaml' {2} >'{1}/out' 2>'{1}/err' </dev/null", bin,
      folder, arguments);
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Read(folder + "/out"),
          Read(folder + "/err")};
}

void BinaryWorld::Publish(const std::string& id, int64_t version, const std::string& data,
                          const std::string& event_id) {
  pubsub::Message message = TestEvent{.id = id, .version = version, .event_id = event_id}.Message();
  message.data = data.empty() ? fmt::format(R"({{"id":"{}","a":"{}"}})", id, version) : data;
  std::mutex mu;
  std::condition_variable changed;
  bool done = false;
  publisher_->Publish(topic, {std::move(message)}, [&](const auto& results) {
    EXPECT_TRUE(results.front().ok()) << results.front().status();
    std::lock_guard lock(mu);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mu);
  changed.wait(lock, [&] { return done; });
}

bool BinaryWorld::Await(const std::function<bool()>& condition, Millis at_most) {
  // The world is other processes: they are asked again and again.
  const auto deadline = Clock::System().Steady() + at_most;
  while (!condition()) {
    if (Clock::System().Steady() > deadline) return false;
    std::this_thread::sleep_for(Millis(20));
  }
  return true;
}

bool BinaryWorld::AwaitLog(const testing::Process& process, const std::string& text) {
  const bool found = Await([&] { return process.Errors().find(text) != std::string::npos; });
  EXPECT_TRUE(found) << "no '" << text << "' in:\n" << process.Errors();
  return found;
}

void BinaryWorld::Block() {
  blocker_ = database.Connect();
  EXPECT_TRUE(blocker_->Execute("SELECT pg_advisory_lock(42)").ok());
}
void BinaryWorld::Unblock() { blocker_.reset(); }

bool BinaryWorld::AwaitBlocked() {
  return Await([&] {
    return Count(
               "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT "
               "granted AND database = (SELECT oid FROM pg_database WHERE datname = "
               "current_database())") > 0;
  });
}

std::vector<std::string> BinaryWorld::LeftOver() {
  testing::CollectingSink sink;
  const auto receiver = transport->NewReceiver({.subscription = subscription}, sink);
  EXPECT_TRUE(receiver->Start().ok());
  // What was there before it comes before it, or with it.
  Publish("(marker)", 1);
  const auto marked = [&] {
    const auto all = sink.by_key();
    return all.contains("(marker)");
  };
  EXPECT_TRUE(sink.Await(marked));
  std::vector<std::string> ids;
  for (const auto& delivery : sink.deliveries()) {
    if (delivery.message.ordering_key != "(marker)") ids.push_back(delivery.message.ordering_key);
  }
  receiver->Stop();
  return ids;
}

}  // namespace lockstep::runner
