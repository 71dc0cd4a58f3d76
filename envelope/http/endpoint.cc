#include "envelope/http/endpoint.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "envelope/http/event_headers.h"
#include "platform/config/config.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::envelope {
namespace {

// Headers that say what the event is, or how the request is framed.
constexpr std::string_view kOurs[] = {
    "content-type",    "content-length", "transfer-encoding", "connection", "host",    "expect",
    "idempotency-key", "traceparent",    "tracestate",        "te",         "trailer", "upgrade"};

bool IsToken(std::string_view name) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

// Never quotes a value: they are secrets.
absl::StatusOr<std::vector<std::string>> ParseHeaders(const std::string& text) {
  std::vector<std::string> headers;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string_view header = Trim(line);
    if (header.empty() || header.front() == '#') continue;
    const std::string name(header.substr(0, header.find(':')));
    if (name.size() == header.size() || !IsToken(name)) {
      return InvalidArgument("line {} is not `Name: value`", number);
    }
    const std::string_view value = Trim(header.substr(name.size() + 1));
    if (value.empty() || !std::ranges::all_of(value, [](char c) { return c >= ' ' && c < 0x7F; })) {
      return InvalidArgument("the value of {} in line {} is empty or not printable ASCII", name,
                             number);
    }
    std::string lower = name;
    std::ranges::transform(lower, lower.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (std::ranges::find(kOurs, lower) != std::end(kOurs) || lower.starts_with("lockstep-") ||
        lower.starts_with("ce-")) {
      return InvalidArgument("{} in line {} is a header that Lockstep sets itself", name, number);
    }
    headers.push_back(fmt::format("{}: {}", name, value));
  }
  return headers;
}

}  // namespace

void Bind(ConfigSection& config, EndpointOptions& options) {
  http::Bind(config, options.settings);
  config.Choice("format", &options.format,
                {{"plain", HttpFormat::kPlain}, {"cloudevents", HttpFormat::kCloudEvents}},
                "how an event looks: Lockstep-* headers, or CloudEvents 1.0 in binary mode");
  config.Key("source", &options.source, "ce-source of CloudEvents; empty = /<logical topic>");
  config.Key(
      "secret_file", &options.secret_file,
      "secrets that sign requests, one a line, the newest first; read again when it changes");
  config.Key("headers_file", &options.headers_file,
             "lines of `Name: value` that go with every request; read again when it changes");
  for (std::string* file :
       {&options.settings.ca_file, &options.secret_file, &options.headers_file}) {
    if (file->empty() || file->front() == '/' || config.Directory().empty()) continue;
    *file = (std::filesystem::path(config.Directory()) / *file).string();
  }
}

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Open(const std::string& url,
                                                         const EndpointOptions& options,
                                                         const Clock& clock) {
  auto endpoint = std::make_unique<Endpoint>();
  ASSIGN_OR_RETURN(endpoint->url_, http::ParseUrl(url));
  RETURN_IF_ERROR(http::Validate(options.settings));
  endpoint->settings_ = std::make_shared<const http::Settings>(options.settings);
  endpoint->format_ = options.format;
  endpoint->source_ = options.source;
  if (!options.secret_file.empty()) {
    ASSIGN_OR_RETURN(endpoint->signer_, http::Signer::Open(options.secret_file, clock));
  }
  if (!options.headers_file.empty()) {
    ASSIGN_OR_RETURN(endpoint->more_headers_,
                     http::WatchedFile<Lines>::Open(options.headers_file, ParseHeaders));
  }
  return endpoint;
}

absl::StatusOr<http::Request> Endpoint::RequestFor(const Attributes& attributes,
                                                   std::shared_ptr<const std::string> body) {
  http::Request request{.url = url_, .settings = settings_};
  ASSIGN_OR_RETURN(request.headers, EventHeaders(attributes, format_, source_));
  if (more_headers_ != nullptr) {
    request.secret_headers = *more_headers_->Get();
  }
  if (signer_ != nullptr) {
    request.headers.push_back(
        signer_->Header(attributes.at("event_id"), body == nullptr ? "" : *body));
  }
  request.body = std::move(body);
  return request;
}

}  // namespace lockstep::envelope
