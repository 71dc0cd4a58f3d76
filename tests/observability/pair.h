#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/observability/process.h"
#include "tests/support/test_database.h"

namespace lockstep::observability {

struct HttpAnswer {
  int status = 0;
  std::string body;
};
HttpAnswer Get(const std::string& url);

// The samples of a /metrics answer: `name{label="value"}` -> value.
std::map<std::string, double> ParseMetrics(const std::string& text);

// A publisher and a runner as their users run them, with the emulator between them and the
// example's video catalogue in two databases. Health limits and heartbeats are short, so that a
// picture shows within seconds.
class Pair {
 public:
  Pair();
  ~Pair();

  void StartPublisher();
  void StartRunner();
  void StopPublisher();
  // A daemon with a command line of the test's own; `url` is where it listens.
  std::unique_ptr<Process> Start(std::vector<std::string> command,
                                 const std::map<std::string, std::string>& environment,
                                 std::string& url);

  // An event in JSON; version 1 creates. `title` may be anything that stands in JSON.
  void Enqueue(int video, int version, const std::string& title = "a title");
  void EnqueueRaw(int video, int version, const std::string& type, const std::string& payload,
                  const std::string& more = "");
  static std::string VideoId(int video);

  // Until the condition holds; fails the test with both logs when it does not in time.
  bool Await(const std::function<bool()>& condition, const char* what);

  int64_t Version(int video);  // in the read model; 0 = not there
  nlohmann::json Status(const std::string& url) const;
  nlohmann::json Group() const;   // the runner's
  nlohmann::json Outbox() const;  // the publisher's
  std::vector<std::string> Attention(const std::string& url) const;
  double Metric(const std::string& url, const std::string& sample) const;  // NaN = not there
  Ran Ctl(std::vector<std::string> arguments) const;
  // What `lockstepctl lag` says of the group.
  nlohmann::json Lag() const;
  // A command of the page as somebody would type it, who says yes when asked.
  Ran Type(const std::string& command) const;

  testing::TestDatabase source;
  testing::TestDatabase feed;
  std::string directory;
  std::string publisher_url;
  std::string runner_url;
  std::unique_ptr<Process> emulator;
  std::unique_ptr<Process> publisher;
  std::unique_ptr<Process> runner;

 private:
  std::string AwaitLine(Process& process, const std::string& mark);
  std::map<std::string, std::string> environment_;
};

inline constexpr char kTable[] = "catalog.video_outbox";
// Whom publisher and runner log in as.
inline constexpr char kPublisherRole[] = "lockstep_test_publisher";
inline constexpr char kRunnerRole[] = "lockstep_test_runner";

// Replaces a text in a file; fails the test when it is not there.
void Change(const std::string& file, const std::string& from, const std::string& to);

}  // namespace lockstep::observability
