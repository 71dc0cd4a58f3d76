#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <memory>

#include "platform/config/config.h"
#include "platform/daemon/http_server.h"
#include "platform/daemon/reload.h"
#include "platform/daemon/signals.h"
#include "platform/log/log.h"
#include "platform/metrics.h"
#include "platform/mutex_checks.h"
#include "platform/status.h"
#include "publisher/dispatch/pubsub_dispatcher.h"
#include "publisher/service/publisher.h"
#include "publisher/service/status_reporter.h"
#include "pubsub/config.h"
#include "pubsub/transport.h"

namespace {

using lockstep::publisher::PublisherConfig;

struct Options {
  PublisherConfig publisher;
  lockstep::pubsub::PubsubOptions pubsub;
  bool once = false;
  std::vector<lockstep::ConfigKey> effective;  // for the status page
};

// What a running publisher follows; the rest of a change needs a restart.
const std::vector<std::string> kFollowed = {"batch_size",
                                            "max_in_flight",
                                            "max_requests",
                                            "poll_interval",
                                            "max_attempts",
                                            "retry.base",
                                            "retry.factor",
                                            "retry.cap",
                                            "retry.jitter",
                                            "retry.jitter_amount",
                                            "cleaner.interval",
                                            "cleaner.retention",
                                            "cleaner.dead_retention",
                                            "cleaner.batch_size",
                                            "log.level"};

// `read`: fills options from the sources that the process was started with.
void Reload(const std::function<absl::Status(Options&)>& read, lockstep::RunningConfig& running,
            lockstep::publisher::PublisherService& service,
            lockstep::publisher::StatusReporter& reporter) {
  Options fresh;
  absl::Status status = read(fresh);
  if (status.ok()) status = fresh.publisher.Validate();
  if (!status.ok()) {
    lockstep::log::Error("the configuration can't be read again; everything stays as it is",
                         {{"error", status}});
    return;
  }
  lockstep::log::SetLevel(fresh.publisher.log.level);
  const lockstep::ReloadPlan plan = lockstep::PlanReload(running.keys, fresh.effective, kFollowed);
  LogReload(plan);
  running.Follow(plan);
  service.Reload(fresh.publisher);
  reporter.SetConfig(running);
}

absl::Status Run(const Options& options, lockstep::Signals& signals,
                 const std::function<absl::Status(Options&)>& read) {
  RETURN_IF_ERROR(options.publisher.Validate());
  RETURN_IF_ERROR(options.pubsub.Validate());
  ASSIGN_OR_RETURN(const auto transport, lockstep::pubsub::MakeTransport(options.pubsub.transport));
  const auto dispatcher = lockstep::publisher::MakePubsubDispatcher(
      *transport, options.pubsub.project, options.publisher);
  lockstep::MetricsRegistry metrics;
  lockstep::publisher::PublisherService service(options.publisher, *dispatcher, metrics);
  const auto heartbeats = transport->NewPublisher({});
  const lockstep::publisher::TopicMap topics(options.pubsub.project, options.publisher.topics);
  service.SetHeartbeat(*heartbeats, transport->admin(),
                       [&topics](const std::string& topic) { return topics.FullName(topic); });

  if (options.once) RETURN_IF_ERROR(service.Check());
  RETURN_IF_ERROR(service.Start());
  lockstep::HttpServer http(options.publisher.http);
  AddPages(http, service, metrics);
  lockstep::RunningConfig running{.keys = options.effective};
  lockstep::publisher::StatusReporter reporter(service, running, metrics, http);
  if (options.publisher.http.enabled && !options.once) {
    RETURN_IF_ERROR(http.Start());
    RETURN_IF_ERROR(reporter.Start());
    lockstep::log::Info("listening", {{"url", http.url()}});
  }
  signals.OnReload([&] { Reload(read, running, service, reporter); });
  lockstep::log::Info("publisher started", {{"tables", options.publisher.tables.size()},
                                            {"instance", service.config().instance}});
  absl::Status result;
  if (options.once) {
    std::stop_callback on_signal(signals.stop_token(), [&service] { service.Stop(); });
    result = service.WaitUntilDrained();
  } else {
    signals.WaitForStop();
  }
  signals.OnReload({});
  service.Stop();
  http.Stop();
  lockstep::log::Info("publisher stopped");
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::LeaveMutexesUnchecked();
  lockstep::Signals signals;
  Options options;
  lockstep::CommandLine line;
  line.program = "lockstep-publisher";
  line.summary =
      "moves the rows of transactional outboxes in Postgres to Google Cloud Pub/Sub, in order. Any "
      "number of publishers may run side by side.";
  const auto bind = [](lockstep::ConfigSection& config, Options& target) {
    Bind(config, target.publisher);
    config.Section("pubsub", [&](lockstep::ConfigSection& section) {
      lockstep::pubsub::Bind(section, target.pubsub);
    });
  };
  line.bind = [&](lockstep::ConfigSection& config) { bind(config, options); };
  line.switches["--once"] = {&options.once, "drain the outboxes and exit"};
  if (const auto code = line.Parse(argc, argv, &options.effective); code.has_value()) return *code;
  lockstep::log::Configure(options.publisher.log);
  const absl::Status ran = Run(options, signals, [&](Options& fresh) {
    return lockstep::Config::Read(
        line.sources, [&](lockstep::ConfigSection& config) { bind(config, fresh); },
        &fresh.effective);
  });
  if (ran.ok()) return 0;
  fmt::print(stderr, "lockstep-publisher: {}\n", lockstep::MessageOf(ran));
  return 1;
}
