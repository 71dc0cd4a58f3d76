#include "platform/daemon/http_server.h"

#include <civetweb.h>
#include <fmt/format.h>

#include <cstring>
#include <stop_token>
#include <thread>

#include "platform/config/config.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep {
namespace {

std::map<std::string, std::string> ParseQuery(const char* text) {
  std::map<std::string, std::string> query;
  for (const std::string& pair : SplitList(text == nullptr ? "" : text, '&')) {
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string raw = pair.substr(std::min(equals + 1, pair.size()));
    std::string value(raw.size() + 1, '\0');
    const int length = mg_url_decode(raw.data(), static_cast<int>(raw.size()), value.data(),
                                     static_cast<int>(value.size()), 1);
    value.resize(length < 0 ? 0 : length);
    query[pair.substr(0, equals)] = value;
  }
  return query;
}

void Write(mg_connection* connection, const HttpResponse& response, bool with_body) {
  const std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
      "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
      "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'\r\nConnection: close\r\n\r\n",
      response.status, mg_get_response_code_text(connection, response.status),
      response.content_type, response.body.size());
  mg_write(connection, head.data(), head.size());
  if (with_body) mg_write(connection, response.body.data(), response.body.size());
}

}  // namespace

void Bind(ConfigSection& config, HttpOptions& options) {
  config.Key("enabled", &options.enabled, "serve health, metrics and the status page");
  config.Key("address", &options.address, "address to listen on");
  config.Key("port", &options.port, "port to listen on; 0 takes a free one");
}

HttpResponse HttpServer::Answer(const mg_request_info& info) const {
  const std::string_view method = info.request_method;
  if (method != "GET" && method != "HEAD") {
    return {.status = 405, .body = "only GET and HEAD are served here\n"};
  }
  const auto found = handlers_.find(info.local_uri);
  if (found == handlers_.end()) return {.status = 404, .body = "nothing is served at this path\n"};
  try {
    return found->second({info.local_uri, ParseQuery(info.query_string)});
  } catch (const std::exception& e) {
    // What was wrong is for the log: the text may hold more than a reader should see.
    log::Warning("a request could not be answered",
                 {{"path", info.local_uri}, {"error", e.what()}});
    return {.status = 500, .body = "this could not be answered; the log says why\n"};
  }
}

int HttpServer::OnRequest(mg_connection* connection, void* self) {
  auto* const server = static_cast<HttpServer*>(self);
  server->last_request_ = Clock::System().Steady();
  const mg_request_info* info = mg_get_request_info(connection);
  const HttpResponse response = server->Answer(*info);
  Write(connection, response, std::strcmp(info->request_method, "HEAD") != 0);
  return response.status;
}

absl::Status HttpServer::Start() {
  const std::scoped_lock lock(life_mu_);
  if (started_) return FailedPrecondition("it was started or stopped before");
  started_ = true;
  if (!options_.enabled) return absl::OkStatus();
  mg_init_library(0);
  const std::string listen = fmt::format("{}:{}", options_.address, options_.port);
  const std::string threads = std::to_string(options_.threads);
  const std::string timeout = std::to_string(options_.request_timeout.count());
  const std::string head = std::to_string(options_.max_head);
  const char* settings[] = {"listening_ports",
                            listen.c_str(),
                            "num_threads",
                            threads.c_str(),
                            "request_timeout_ms",
                            timeout.c_str(),
                            "max_request_size",
                            head.c_str(),
                            "connection_queue",
                            "32",
                            "enable_keep_alive",
                            "no",
                            nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
  context_ = mg_start(&callbacks, this, settings);
  if (context_ == nullptr) {
    return Unavailable(
        "can't listen on {} for HTTP: the port is taken or the address is not of this machine; "
        "set http.port (0 takes a free one)",
        listen);
  }
  mg_set_request_handler(context_, "**", &HttpServer::OnRequest, this);
  mg_server_port ports[1];
  if (mg_get_server_ports(context_, 1, ports) == 1) port_ = ports[0].port;
  return absl::OkStatus();
}

void HttpServer::Stop() {
  const std::scoped_lock lock(life_mu_);
  started_ = true;
  mg_context* const context = std::exchange(context_, nullptr);
  if (context == nullptr) return;
  // civetweb looks for its stop flag when a wait for connections ends, two seconds at the longest;
  // a connection ends that wait now.
  const std::jthread knock([this](const std::stop_token& stop) {
    char error[64];
    while (!stop.stop_requested()) {
      if (mg_connection* const made =
              mg_connect_client(options_.address.c_str(), port_, 0, error, sizeof(error))) {
        mg_close_connection(made);
      }
      std::this_thread::sleep_for(Millis(20));
    }
  });
  mg_stop(context);
}

Millis HttpServer::SinceLastRequest() const {
  return std::chrono::duration_cast<Millis>(Clock::System().Steady() - last_request_.load());
}

std::string HttpServer::url() const { return fmt::format("http://{}:{}", options_.address, port_); }

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
