#include "platform/daemon/http_server.h"

#include <fmt/format.h>

#include <utility>

#include "platform/config/config.h"
#include "platform/daemon/http_head.h"
#include "platform/daemon/http_loop.h"
#include "platform/daemon/process_metrics.h"
#include "platform/host_name.h"
#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep {
namespace {

const char* StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string Rendered(const HttpResponse& response, bool with_body) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
      "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
      "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'\r\nConnection: close\r\n\r\n{}",
      response.status, StatusText(response.status), response.content_type, response.body.size(),
      with_body ? response.body : "");
}

bool BoundToAll(const std::string& address) { return address == "0.0.0.0" || address == "::"; }

// The name in http://name:port/…; empty when there is none.
std::string HostOf(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) return "";
  const std::string rest = url.substr(scheme + 3, url.find('/', scheme + 3) - scheme - 3);
  if (rest.starts_with('[')) return rest.substr(0, rest.find(']') + 1);
  return rest.substr(0, rest.find(':'));
}

}  // namespace

void Bind(ConfigSection& config, HttpOptions& options) {
  config.Key("enabled", &options.enabled, "serve health, metrics and the status page");
  config.Key("address", &options.address, "address to listen on; :: takes IPv4 and IPv6");
  config.Key("port", &options.port, "port to listen on; 0 takes a free one");
  config.Key("hosts", &options.hosts,
             "names that it may be called by, besides IP addresses, localhost and http.address; "
             "probes may use any");
  config.Key("advertise", &options.advertise,
             "http://host:port by which others reach it, as the console does; without it the bound "
             "address");
}

void HttpReply::Send(const HttpResponse& response) const {
  {
    const std::scoped_lock lock(state_->mu);
    if (state_->gone || state_->text) return;
    state_->text = Rendered(response, state_->with_body);
  }
  state_->waker->Wake();
}

bool HttpReply::Gone() const {
  const std::scoped_lock lock(state_->mu);
  return state_->gone;
}

HttpServer::HttpServer(HttpOptions options) : options_(std::move(options)) {
  options_.hosts.push_back(options_.address);
  if (const std::string name = HostOf(options_.advertise); !name.empty()) {
    options_.hosts.push_back(name);
  } else if (BoundToAll(options_.address)) {
    options_.hosts.push_back(HostName());
  }
}
HttpServer::~HttpServer() { Stop(); }

std::optional<HttpResponse> HttpServer::Answer(const std::string& text,
                                               const std::shared_ptr<HttpReply::State>& reply) {
  const auto refuse = [](int status, const char* body) {
    return HttpResponse{.status = status, .body = body};
  };
  const size_t end = text.find("\r\n\r\n");
  if (end > options_.max_head) return refuse(431, "the request's head is too large\n");
  const auto head = ParseHttpHead(std::string_view(text).substr(0, end));
  if (!head) return refuse(400, "this is no HTTP request\n");
  reply->with_body = head->method != "HEAD";
  if (head->method != "GET" && head->method != "HEAD") {
    return refuse(405, "only GET and HEAD are served here\n");
  }
  const auto found = handlers_.find(head->path);
  const bool any_host = found != handlers_.end() && found->second.hosts == Hosts::kAny;
  if (!any_host && !HostIsServed(head->host, options_.hosts)) {
    return refuse(421,
                  "this endpoint is not served under the name that was asked for; http.hosts "
                  "lists names, IP addresses and localhost always do\n");
  }
  if (found == handlers_.end()) return refuse(404, "nothing is served at this path\n");
  const Entry& handler = found->second;
  if (handler.later && loop_->waiting() >= options_.waiting) {
    return refuse(429, "too many requests wait already; ask again in a while\n");
  }
  if (handler.later && loop_->waiting(reply->peer) >= options_.waiting_per_peer) {
    return refuse(429, "too many requests of this address wait already; ask again in a while\n");
  }
  const HttpRequest request{head->path, head->query};
  try {
    if (handler.now) return handler.now(request);
    handler.later(request, HttpReply(reply));
    return std::nullopt;
  } catch (const std::exception& e) {
    // What was wrong is for the log: the text may hold more than a reader should see.
    log::Warning("a request could not be answered", {{"path", head->path}, {"error", e.what()}});
    return refuse(500, "this could not be answered; the log says why\n");
  }
}

absl::Status HttpServer::Start() {
  const std::scoped_lock lock(life_mu_);
  if (started_) return FailedPrecondition("it was started or stopped before");
  started_ = true;
  if (!options_.enabled) return absl::OkStatus();
  auto loop = Loop::Open(
      options_, [this](const std::string& head, const std::shared_ptr<HttpReply::State>& reply) {
        const std::optional<HttpResponse> response = Answer(head, reply);
        return response ? std::optional(Rendered(*response, reply->with_body)) : std::nullopt;
      });
  if (!loop.ok()) {
    return Unavailable(
        "can't listen on {} port {} for HTTP ({}): the port is taken or the address is not of "
        "this machine; set http.port (0 takes a free one)",
        options_.address, options_.port, MessageOf(loop.status()));
  }
  loop_ = *std::move(loop);
  port_ = loop_->port();
  return thread_.Start([this] { loop_->Run(thread_.stop_token()); });
}

void HttpServer::Stop() {
  const std::scoped_lock lock(life_mu_);
  started_ = true;
  thread_.RequestStop();
  if (loop_ != nullptr) loop_->Wake();
  thread_.Stop();
  loop_.reset();
}

std::string HttpServer::url() const {
  const bool bare_ipv6 =
      options_.address.find(':') != std::string::npos && options_.address[0] != '[';
  const std::string host = bare_ipv6 ? "[" + options_.address + "]" : options_.address;
  return fmt::format("http://{}:{}", host, port_);
}

std::string HttpServer::advertised() const {
  if (port_ == 0) return "";
  if (!options_.advertise.empty()) return options_.advertise;
  return BoundToAll(options_.address) ? fmt::format("http://{}:{}", HostName(), port_) : url();
}

absl::Status ServePages(HttpServer& http, HttpServer::Handler ready, const MetricsRegistry& metrics,
                        const std::string& metrics_path) {
  http.Handle(
      "/healthz", [](const HttpRequest&) { return HttpResponse{.body = "ok\n"}; },
      HttpServer::Hosts::kAny);
  http.Handle("/readyz", std::move(ready), HttpServer::Hosts::kAny);
  if (!metrics_path.empty()) {
    http.Handle(metrics_path, [&metrics](const HttpRequest&) {
      return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                          .body = RenderMetrics(metrics) +
                                  prometheus::TextSerializer().Serialize(ProcessMetrics())};
    });
  }
  RETURN_IF_ERROR(http.Start());
  if (http.port() != 0) log::Info("listening", {{"url", http.url()}});
  return absl::OkStatus();
}

}  // namespace lockstep
