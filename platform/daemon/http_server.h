#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "platform/daemon/service.h"
#include "platform/daemon/service_thread.h"
#include "platform/metrics.h"

namespace lockstep {

class ConfigSection;

struct HttpOptions {
  bool enabled = true;
  std::string address = "127.0.0.1";  // IPv4, IPv6 (:: takes both) or a name
  int port = 0;                       // 0 = a free one
  std::vector<std::string> hosts;     // names that clients may call it by, besides addresses
  std::string advertise;              // http://host:port as others reach it; empty = the bound one

  // Not in the configuration: what a slow or greedy client can take.
  Millis request_timeout{3'000};  // for a request to arrive, and for its answer to be taken
  Millis max_wait{10 * 60'000};   // for an answer that is given later
  size_t max_head = 16'384;       // bytes of a request's head
  size_t connections = 256;       // beyond these the oldest is ended,
  size_t per_peer = 32;           // and beyond these the oldest of the same address
  size_t waiting = 128;           // requests that wait for a later answer, not among the above,
  size_t waiting_per_peer = 32;   // and those of the same address; the next is refused
  size_t max_unsent = 64 << 20;   // bytes of answers that are not taken yet
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

// An answer that is given later, once, from any thread. Copies mean the same one.
class HttpReply {
 public:
  struct State;
  explicit HttpReply(std::shared_ptr<State> state) : state_(std::move(state)) {}

  void Send(const HttpResponse& response) const;
  bool Gone() const;  // nobody waits for it any longer

 private:
  std::shared_ptr<State> state_;  // shared with the connection: either may end first
};

// The small read-only endpoint of a daemon: GET and HEAD, nothing else. One thread of its own
// serves every connection as far as bytes come and go, and never waits for one: requests that are
// half sent and answers that are not taken keep nobody else from an answer. They are cut off after
// a while, or when their place is needed. Handlers run on that thread and must be quick: what they
// show is kept ready by others, or sent by them later.
class HttpServer final : public Service {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  using LaterHandler = std::function<void(const HttpRequest&, const HttpReply&)>;
  // Whose name for this endpoint (the Host header) is taken: a probe's may be any.
  enum class Hosts { kServed, kAny };

  explicit HttpServer(HttpOptions options);
  ~HttpServer() override;

  // REQUIRES: before Start.
  void Handle(const std::string& path, Handler handler, Hosts hosts = Hosts::kServed) {
    handlers_[path] = {std::move(handler), {}, hosts};
  }
  // For answers that may take a while: the handler hands the reply to others, and returns. At most
  // `waiting` at a time (`waiting_per_peer` of one address), the next is refused with 429; one not
  // answered within `max_wait` is cut. A client that ends its side meanwhile is taken to be gone.
  void HandleLater(const std::string& path, LaterHandler handler) {
    handlers_[path] = {{}, std::move(handler), Hosts::kServed};
  }

  // A port that is taken is a status that says so.
  absl::Status Start() override;
  void Stop() override;

  int port() const { return port_; }
  std::string url() const;
  // How others reach it: `advertise`, else the bound address, or this machine's name where it is
  // bound to all of them. Empty while it is not started.
  std::string advertised() const;

 private:
  class Loop;
  struct Entry {
    Handler now;
    LaterHandler later;  // one of the two
    Hosts hosts = Hosts::kServed;
  };

  // Nothing when it comes through `reply`.
  std::optional<HttpResponse> Answer(const std::string& head,
                                     const std::shared_ptr<HttpReply::State>& reply);

  HttpOptions options_;
  std::map<std::string, Entry> handlers_;
  std::mutex life_mu_;  // Start against Stop; held while stopping
  bool started_ = false;
  int port_ = 0;
  std::unique_ptr<Loop> loop_;
  ServiceThread thread_;  // last: it uses the rest
};

// Adds to the endpoint of a daemon what every one has, and starts it unless it is not enabled:
// /healthz (the process lives), /readyz as `ready` answers it (both whatever the Host), and the
// metrics at `metrics_path` (empty = not). The status page is web::StatusPage's to add, before.
absl::Status ServePages(HttpServer& http, HttpServer::Handler ready, const MetricsRegistry& metrics,
                        const std::string& metrics_path);

}  // namespace lockstep
