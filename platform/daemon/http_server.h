#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/metrics.h"

struct mg_connection;
struct mg_context;
struct mg_request_info;

namespace lockstep {

class ConfigSection;

struct HttpOptions {
  bool enabled = true;
  std::string address = "127.0.0.1";
  int port = 0;  // 0 = a free one

  // Not in the configuration: what a slow or greedy client can take.
  Millis request_timeout{3'000};  // for a request to arrive, and for its answer to be taken
  int threads = 16;               // requests at a time; others wait
  int max_head = 16'384;          // bytes of a request's head
};
void Bind(ConfigSection& config, HttpOptions& options);

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpRequest {
  std::string path;
  std::map<std::string, std::string> query;
};

// The small read-only endpoint of a daemon: GET and HEAD, nothing else. Handlers run on the
// server's threads and must be quick: what they show is kept ready by others. Clients that send
// their request or take their answer slowly are cut off.
class HttpServer final : public Service {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  explicit HttpServer(HttpOptions options) : options_(std::move(options)) {}
  ~HttpServer() override { Stop(); }

  // REQUIRES: before Start.
  void Handle(const std::string& path, Handler handler) { handlers_[path] = std::move(handler); }

  // A port that is taken is a status that says so.
  absl::Status Start() override;
  void Stop() override;

  // How long nobody has asked for anything (since the start, if nobody ever did): what only a
  // reader needs can wait for one.
  Millis SinceLastRequest() const;

  int port() const { return port_; }
  std::string url() const;

 private:
  HttpResponse Answer(const mg_request_info& info) const;
  static int OnRequest(mg_connection* connection, void* self);

  HttpOptions options_;
  std::map<std::string, Handler> handlers_;
  std::mutex life_mu_;  // Start against Stop; held while stopping
  bool started_ = false;
  mg_context* context_ = nullptr;
  int port_ = 0;
  std::atomic<SteadyTime> last_request_{SteadyTime{}};
};

// Adds to the endpoint of a daemon what every one has, and starts it unless it is not enabled:
// /healthz (the process lives), /readyz as `ready` answers it, and the metrics at `metrics_path`
// (empty = not). The status page is web::StatusPage's to add, before.
absl::Status ServePages(HttpServer& http, HttpServer::Handler ready, const MetricsRegistry& metrics,
                        const std::string& metrics_path);

}  // namespace lockstep
