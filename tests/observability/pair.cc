#include "tests/observability/pair.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <thread>

namespace lockstep::observability {
namespace {

constexpr auto kPatience = std::chrono::seconds(40);

std::string Bin(const std::string& name) { return std::string(LOCKSTEP_BIN) + "/" + name; }

}  // namespace

HttpAnswer Get(const std::string& url) {
  const std::string rest = url.substr(7);  // behind http://
  const std::string host = rest.substr(0, rest.find('/'));
  const size_t slash = rest.find('/');
  const std::string path = slash == std::string::npos ? "/" : rest.substr(slash);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(host.substr(host.find(':') + 1))));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  HttpAnswer answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (write(fd, request.data(), request.size()) > 0) {
      std::string text;
      char buffer[8192];
      for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;) text.append(buffer, n);
      const size_t body = text.find("\r\n\r\n");
      if (text.size() > 12 && body != std::string::npos) {
        answer = {std::stoi(text.substr(9, 3)), text.substr(body + 4)};
      }
    }
  }
  close(fd);
  return answer;
}

std::map<std::string, double> ParseMetrics(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    samples[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return samples;
}

Pair::Pair() {
  directory =
      (std::filesystem::temp_directory_path() / ("lockstep-pair." + source.name())).string();
  std::filesystem::create_directory(directory);
  emulator =
      std::make_unique<Process>(std::vector<std::string>{Bin("lockstep-emulator"), "--port", "0"},
                                directory + "/emulator.log");
  environment_["PUBSUB_EMULATOR_HOST"] = AwaitLine(*emulator, "listening on ");
  const std::string examples = LOCKSTEP_SOURCE "/examples/catalog/";
  source.Run(ReadFile(examples + "source.sql"));
  feed.Run(ReadFile(examples + "read_model.sql"));
  EXPECT_EQ(Ctl({"--database", source.url(), "migrate", "up", "--set", "outbox"}).status, 0);
  EXPECT_EQ(Ctl({"--database", source.url(), "outbox", "create", kTable}).status, 0);
  EXPECT_EQ(
      Ctl({"--database", feed.url(), "migrate", "up", "--set", "state", "--schema", "feed_state"})
          .status,
      0);
  EXPECT_EQ(Ctl({"--config", examples + "pubsub.yaml", "provision", "--yes"}).status, 0);
  // Publisher and runner have the rights of their jobs and no more. Roles belong to the cluster.
  EXPECT_EQ(Ctl({"--database", source.url(), "roles", "grant", "publisher", kPublisherRole,
                 "--create", "--outbox", kTable})
                .status,
            0);
  EXPECT_EQ(Ctl({"--database", feed.url(), "roles", "grant", "runner", kRunnerRole, "--create",
                 "--schema", "feed_state", "--table", "catalog_read.video_projection"})
                .status,
            0);
  WriteFile(directory + "/publisher.yaml", fmt::format(R"(database: {}
pubsub: {{project: demo}}
relay:
  tables: [{}]
  poll_interval: 500ms
topics: {{catalog.video.changed.v1: catalog.events, no.such.topic.v1: no.such.topic.v1}}
heartbeat: {{topics: [catalog.video.changed.v1], interval: 500ms}}
)",
                                                       source.UrlAs(kPublisherRole), kTable));
  WriteFile(directory + "/runner.yaml", fmt::format(R"(database: {}
state_schema: feed_state
pubsub: {{project: demo}}
health: {{stuck_after: 2s, database_grace: 2s, heartbeat_timeout: 3s, quiet_after: 1s}}
groups:
  - file: {}/examples/catalog/catalog.yaml
    max_attempts: 1
)",
                                                    feed.UrlAs(kRunnerRole), LOCKSTEP_BUILD));
}

Pair::~Pair() {
  runner.reset();
  publisher.reset();
  emulator.reset();
  std::filesystem::remove_all(directory);
}

std::string Pair::AwaitLine(Process& process, const std::string& mark) {
  std::string found;
  Await(
      [&] {
        const std::string text = process.output();
        const size_t at = text.find(mark);
        const size_t end =
            at == std::string::npos ? at : text.find_first_of(" \n", at + mark.size());
        if (end == std::string::npos) return !process.running();
        found = text.substr(at + mark.size(), end - at - mark.size());
        return true;
      },
      mark.c_str());
  EXPECT_FALSE(found.empty()) << process.output();
  return found;
}

void Pair::StartPublisher() {
  publisher =
      std::make_unique<Process>(std::vector<std::string>{Bin("lockstep-publisher"), "--config",
                                                         directory + "/publisher.yaml"},
                                directory + "/publisher.log", environment_);
  publisher_url = AwaitLine(*publisher, "msg=listening url=");
}

void Pair::StartRunner() {
  runner = std::make_unique<Process>(
      std::vector<std::string>{Bin("lockstep-runner"), "--config", directory + "/runner.yaml"},
      directory + "/runner.log", environment_);
  runner_url = AwaitLine(*runner, "msg=listening url=");
}

std::unique_ptr<Process> Pair::Start(std::vector<std::string> command,
                                     const std::map<std::string, std::string>& environment,
                                     std::string& url) {
  std::map<std::string, std::string> all = environment_;
  all.insert(environment.begin(), environment.end());
  command[0] = Bin(command[0]);
  auto process = std::make_unique<Process>(std::move(command), directory + "/daemon.log", all);
  url = AwaitLine(*process, "http://");
  url = "http://" + url.substr(0, url.find('"'));
  return process;
}

void Pair::StopPublisher() {
  publisher->Signal(SIGTERM);
  EXPECT_EQ(publisher->Wait(), 0) << publisher->output();
}

std::string Pair::VideoId(int video) {
  return fmt::format("00000000-0000-4000-8000-{:012}", video);
}

void Pair::Enqueue(int video, int version, const std::string& title) {
  EnqueueRaw(video, version,
             version == 1 ? "video.events.VideoCreated" : "video.events.VideoUpdated",
             fmt::format(R"({{"video_id":"{}","title":"{}"}})", VideoId(video), title));
}

void Pair::EnqueueRaw(int video, int version, const std::string& type, const std::string& payload,
                      const std::string& more) {
  source.Query("SELECT lockstep.enqueue('" + std::string(kTable) +
                   "', 'catalog.video.changed.v1', 'video', $1, $2, $3::bigint, "
                   "convert_to($4, 'UTF8'), content_type => 'application/json'" +
                   more + ")",
               postgres::Params(VideoId(video), type, version, payload));
}

bool Pair::Await(const std::function<bool()>& condition, const char* what) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "waited in vain for: " << what << "\n--- publisher\n"
                    << (publisher ? publisher->output() : "") << "\n--- runner\n"
                    << (runner ? runner->output() : "") << "\n--- status\n"
                    << (runner ? Get(runner_url + "/api/status").body.substr(0, 3000) : "");
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the world is other processes
  }
  return true;
}

int64_t Pair::Version(int video) {
  const auto rows =
      feed.Query("SELECT version FROM catalog_read.video_projection WHERE video_id = $1",
                 postgres::Params(VideoId(video)));
  return rows.empty() ? 0 : rows.Int(0, 0);
}

nlohmann::json Pair::Status(const std::string& url) const {
  const HttpAnswer answer = Get(url + "/api/status");
  return answer.status == 200 ? nlohmann::json::parse(answer.body) : nlohmann::json::object();
}

nlohmann::json Pair::Group() const {
  const auto status = Status(runner_url);
  return status.contains("groups") ? status["groups"][0] : nlohmann::json::object();
}

nlohmann::json Pair::Outbox() const {
  const auto status = Status(publisher_url);
  return status.contains("outboxes") ? status["outboxes"][0] : nlohmann::json::object();
}

std::vector<std::string> Pair::Attention(const std::string& url) const {
  std::vector<std::string> titles;
  for (const auto& note : Status(url).value("attention", nlohmann::json::array())) {
    titles.push_back(note["title"]);
  }
  return titles;
}

double Pair::Metric(const std::string& url, const std::string& sample) const {
  const auto samples = ParseMetrics(Get(url + "/metrics").body);
  const auto found = samples.find(sample);
  return found == samples.end() ? std::nan("") : found->second;
}

Ran Pair::Ctl(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), Bin("lockstepctl"));
  return RunProgram(std::move(arguments), directory + "/ctl.log", environment_);
}

nlohmann::json Pair::Lag() const {
  const Ran ran = Ctl({"--config", directory + "/runner.yaml", "lag", "--json"});
  EXPECT_EQ(ran.status, 0) << ran.output;
  const auto groups = nlohmann::json::parse(ran.output, nullptr, /*allow_exceptions=*/false);
  return groups.is_array() && groups.size() == 1 ? groups[0] : nlohmann::json::object();
}

Ran Pair::Type(const std::string& command) const {
  std::map<std::string, std::string> environment = environment_;
  environment["PATH"] = std::string(LOCKSTEP_BIN) + ":" + std::getenv("PATH");
  environment["PGCONNECT_TIMEOUT"] = "10";
  const bool changes = command.find(" replay ") != std::string::npos ||
                       command.find(" dead-letters discard ") != std::string::npos;
  return RunProgram({"/bin/sh", "-c", command + (changes ? " --yes" : "")},
                    directory + "/typed.log", environment);
}

void Change(const std::string& file, const std::string& from, const std::string& to) {
  std::string text = ReadFile(file);
  ASSERT_NE(text.find(from), std::string::npos) << from << " in " << text;
  text.replace(text.find(from), from.size(), to);
  WriteFile(file, text);
}

}  // namespace lockstep::observability
