#include <memory>

#include "platform/daemon/daemon.h"
#include "platform/daemon/http_server.h"
#include "platform/status.h"
#include "publisher/dispatch/pubsub_dispatcher.h"
#include "publisher/service/outbox_watch.h"
#include "publisher/service/publisher.h"
#include "publisher/service/status_reporter.h"
#include "pubsub/config.h"
#include "pubsub/transport.h"

namespace lockstep::publisher {
namespace {

class PublisherDaemon final : public Daemon {
 public:
  void Bind(ConfigSection& config) override {
    config_ = {};
    http_options_ = {};
    log_ = {};
    pubsub_ = {};
    publisher::Bind(config, config_, http_options_, log_);
    config.Section("pubsub", [&](ConfigSection& section) { pubsub::Bind(section, pubsub_); });
  }
  absl::Status Validate() const override {
    RETURN_IF_ERROR(config_.Validate());
    return config_.NeedsBus() ? pubsub_.Validate() : absl::OkStatus();
  }
  log::Options LogOptions() const override { return log_; }

  absl::Status Start(const Beginning& beginning) override {
    if (config_.NeedsBus()) {
      ASSIGN_OR_RETURN(transport_, pubsub::MakeTransport(pubsub_.transport));
      dispatcher_ = MakePubsubDispatcher(*transport_, pubsub_.project, config_);
    } else {
      dispatcher_ = std::make_unique<NoBus>();
    }
    service_ = std::make_unique<PublisherService>(config_, *dispatcher_, metrics_);
    if (beginning.once) RETURN_IF_ERROR(service_->Check());
    if (transport_ != nullptr) UseBus(beginning.once);
    RETURN_IF_ERROR(service_->Start());
    http_ = std::make_unique<HttpServer>(http_options_);
    reporter_ = std::make_unique<StatusReporter>(*service_, beginning.config, metrics_, *http_);
    if (http_options_.enabled && !beginning.once) {
      RETURN_IF_ERROR(reporter_->Start());
      RETURN_IF_ERROR(ServePages(
          *http_, [this](const HttpRequest&) { return Ready(); }, metrics_,
          config_.metrics.enabled ? config_.metrics.path : ""));
      service_->outboxes().SetAddress(http_->advertised());
    }
    log::Info("publisher started",
              {{"tables", config_.tables.size()}, {"instance", service_->config().instance}});
    return absl::OkStatus();
  }

  absl::Status RunOnce(const std::stop_token& stop) override {
    const std::stop_callback on_signal(stop, [this] { service_->GiveUpDraining(); });
    return service_->WaitUntilDrained();
  }

  void Reload(const RunningConfig& config) override {
    service_->Reload(config_);
    reporter_->SetConfig(config);
  }

  bool Alive() const override { return service_->Alive(); }

  void Stop() override {
    service_->Stop();
    http_->Stop();
    log::Info("publisher stopped");
  }

 private:
  // Heartbeats and backfills, which are Pub/Sub's.
  void UseBus(bool once) {
    const TopicNames topics = MapTopics(pubsub_.project, config_.topics, config_.any_topic);
    heartbeats_ = transport_->NewPublisher({});
    service_->SetHeartbeat(*heartbeats_, transport_->admin(), topics);
    if (once) return;
    backfills_ = transport_->NewPublisher({});
    service_->SetBackfill(*backfills_, topics);
  }

  HttpResponse Ready() const {
    const auto reasons = service_->NotReady();
    if (reasons.empty()) return {.body = "ready\n"};
    return {.status = 503, .body = fmt::format("{}\n", fmt::join(reasons, "\n"))};
  }

  PublisherConfig config_;
  HttpOptions http_options_;
  log::Options log_;
  pubsub::PubsubOptions pubsub_;
  MetricsRegistry metrics_;
  std::unique_ptr<pubsub::Transport> transport_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<pubsub::Publisher> heartbeats_;
  std::unique_ptr<pubsub::Publisher> backfills_;
  std::unique_ptr<PublisherService> service_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<StatusReporter> reporter_;
};

}  // namespace
}  // namespace lockstep::publisher

int main(int argc, char** argv) {
  lockstep::publisher::PublisherDaemon daemon;
  return lockstep::RunDaemon(
      argc, argv,
      {.program = "lockstep-publisher",
       .summary = "moves the rows of transactional outboxes in Postgres to Google "
                  "Cloud Pub/Sub and to HTTP endpoints, in order. Any number of "
                  "publishers may run side by side.",
       .once = "drain the outboxes and exit",
       .invalid = 1},
      daemon);
}
