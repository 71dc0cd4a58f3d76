#include <memory>

#include "platform/daemon/daemon.h"
#include "platform/daemon/http_server.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "sagas/orchestrator/orchestrator.h"
#include "sagas/orchestrator/status_reporter.h"

namespace lockstep::sagas {
namespace {

class OrchestratorDaemon final : public Daemon {
 public:
  void Bind(ConfigSection& config) override {
    options_ = {};
    http_options_ = {};
    log_ = {};
    sagas::Bind(config, options_, http_options_, log_);
  }
  absl::Status Validate() const override { return options_.Validate(); }
  log::Options LogOptions() const override { return log_; }

  absl::Status Start(const Beginning& beginning) override {
    service_ = std::make_unique<SagaOrchestrator>(options_, metrics_);
    RETURN_IF_ERROR(service_->Start());
    http_ = std::make_unique<HttpServer>(http_options_);
    reporter_ = std::make_unique<StatusReporter>(*service_, beginning.config, metrics_, *http_);
    if (http_options_.enabled) {
      RETURN_IF_ERROR(reporter_->Start());
      RETURN_IF_ERROR(ServePages(
          *http_, [this](const HttpRequest&) { return Ready(); }, metrics_,
          options_.metrics ? options_.metrics_path : ""));
    }
    log::Info("orchestrator started", {{"instance", service_->options().instance}});
    return absl::OkStatus();
  }

  void Reload(const RunningConfig& config) override {
    service_->Reload(options_);
    reporter_->SetConfig(config);
  }

  bool Alive() const override { return service_->Alive(); }

  void Stop() override {
    service_->Stop();
    http_->Stop();
    log::Info("orchestrator stopped");
  }

 private:
  HttpResponse Ready() const {
    const auto reasons = service_->NotReady();
    if (reasons.empty()) return {.body = "ready\n"};
    return {.status = 503, .body = fmt::format("{}\n", fmt::join(reasons, "\n"))};
  }

  OrchestratorOptions options_;
  HttpOptions http_options_;
  log::Options log_;
  MetricsRegistry metrics_;
  std::unique_ptr<SagaOrchestrator> service_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<StatusReporter> reporter_;
};

}  // namespace
}  // namespace lockstep::sagas

int main(int argc, char** argv) {
  lockstep::sagas::OrchestratorDaemon daemon;
  return lockstep::RunDaemon(
      argc, argv,
      {.program = "lockstep-orchestrator",
       .summary = "runs the sagas of a database: their steps in order, and their undoing when one "
                  "fails. Any number of orchestrators may run side by side.",
       .once = "",
       .invalid = 1},
      daemon);
}
