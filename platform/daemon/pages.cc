#include "platform/daemon/pages.h"

#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep {

absl::Status ServePages(HttpServer& http, HttpServer::Handler ready, const MetricsRegistry& metrics,
                        const std::string& metrics_path) {
  http.Handle("/healthz", [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; });
  http.Handle("/readyz", std::move(ready));
  if (!metrics_path.empty()) {
    http.Handle(metrics_path, [&metrics](const HttpRequest&) {
      return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                          .body = RenderMetrics(metrics)};
    });
  }
  RETURN_IF_ERROR(http.Start());
  if (http.port() != 0) log::Info("listening", {{"url", http.url()}});
  return absl::OkStatus();
}

}  // namespace lockstep
