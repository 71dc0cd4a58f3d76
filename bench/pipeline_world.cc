#include "bench/pipeline_world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "pubsub/transport.h"

extern char** environ;

namespace lockstep::bench {
namespace {

constexpr char kTopic[] = "projects/bench/topics/bench.events";
constexpr char kSubscription[] = "projects/bench/subscriptions/bench.events.feed";

constexpr char kReadModel[] = R"(
CREATE SCHEMA bench;
CREATE TABLE bench.video (video_id uuid PRIMARY KEY, title text, version bigint NOT NULL))";

constexpr char kProjection[] = R"(group: bench
subscription: bench.events.feed
projections:
  - name: videos
    table: bench.video
    key: {video_id: {field: video_id, type: uuid}}
    version: version
    events:
      Created: {replace: [title]}
)";

void Ctl(const std::string& database, const std::string& arguments) {
  const std::string command = fmt::format("'{}/lockstepctl' --yes --database '{}' {} >/dev/null",
                                          ProgramFolder(), database, arguments);
  if (std::system(command.c_str()) != 0) Die("lockstepctl", arguments);
}

}  // namespace

void Die(std::string_view what, std::string_view why) {
  fmt::print(stderr, "bench: {}: {}\n", what, why);
  std::exit(1);
}
void Check(std::string_view what, const absl::Status& status) {
  if (!status.ok()) Die(what, MessageOf(status));
}

std::unique_ptr<postgres::Connection> Connect(const std::string& url, const std::string& name) {
  auto connection = postgres::Connection::Open(
      {.url = url, .application_name = name, .statement_timeout = Millis(0)});
  Check("the database", connection.status());
  return *std::move(connection);
}

Daemon::Daemon(const std::string& program, const std::string& config, const std::string& log) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT, 0644);
  const std::string path = ProgramFolder() + "/" + program;
  const char* const arguments[] = {path.c_str(), "--config", config.c_str(), nullptr};
  if (posix_spawn(&pid_, path.c_str(), &actions, nullptr, const_cast<char* const*>(arguments),
                  environ) != 0) {
    Die(program, "it can't be started");
  }
  posix_spawn_file_actions_destroy(&actions);
}

Daemon::~Daemon() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

Pipeline::Pipeline(const std::string& database)
    : emulator_({ProgramFolder() + "/lockstep-emulator", "--port", "0"}),
      folder_(std::filesystem::temp_directory_path() /
              fmt::format("lockstep-pipeline-{}", getpid())) {
  if (emulator_.address().empty()) Die("lockstep-emulator", "it did not start");
  const auto transport = *pubsub::MakeTransport({.emulator_host = emulator_.address()});
  Check("the topic", transport->admin().CreateTopic({.name = kTopic}).status());
  Check("the subscription",
        transport->admin()
            .CreateSubscription({.name = kSubscription, .topic = kTopic, .ordering = true})
            .status());
  Check("the read model", Connect(database)->Run(kReadModel));
  Ctl(database, "migrate up --set outbox");
  Ctl(database, "outbox create src.video_outbox");
  Ctl(database, "migrate up --set state --schema bench_state");
  std::filesystem::create_directories(folder_);
  const std::string dir = folder_.string();
  const std::string common =
      fmt::format("database: {}\npubsub:\n  project: bench\n  emulator_host: {}\n", database,
                  emulator_.address());
  std::ofstream(dir + "/feed.yaml") << kProjection;
  std::ofstream(dir + "/publisher.yaml")
      << common
      << "relay:\n  tables: [src.video_outbox]\ntopics:\n  bench.video.changed.v1: bench.events\n";
  std::ofstream(dir + "/runner.yaml")
      << common << "state_schema: bench_state\ngroups:\n  - file: feed.yaml\n";
  publisher_.emplace("lockstep-publisher", dir + "/publisher.yaml", dir + "/publisher.log");
  runner_.emplace("lockstep-runner", dir + "/runner.yaml", dir + "/runner.log");
}

Pipeline::~Pipeline() {
  Stop();
  std::filesystem::remove_all(folder_);
}

void Pipeline::Stop() {
  runner_.reset();
  publisher_.reset();
}

}  // namespace lockstep::bench
