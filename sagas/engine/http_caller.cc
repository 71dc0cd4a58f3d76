#include "sagas/engine/http_caller.h"

#include <algorithm>
#include <utility>

#include "platform/status.h"
#include "sagas/engine/decide.h"

namespace lockstep::sagas {
namespace {

constexpr Millis kLongestCall{600'000};
constexpr size_t kMostOrigins = 1'000;

// By this try; of one before it nothing is said.
bool CertainlyNotDone(const absl::StatusOr<http::Answer>& answer) {
  if (!answer.ok()) return http::WasNeverSent(answer.status());
  // Too early, too many: the server says that it has not looked at it. 409: an earlier try is at it
  // still; come again, and hear its end.
  return answer->status == 425 || answer->status == 429 || answer->status == 409;
}

}  // namespace

HttpCaller::HttpCaller(HttpCallOptions options)
    : options_(std::move(options)),
      client_(http::ClientOptions{.max_requests = MostRequests(options_),
                                  .max_requests_per_origin = options_.concurrency}) {}

absl::Status HttpCaller::Open() {
  for (const std::string& origin : options_.origins) {
    const auto url = http::ParseUrl(origin);
    if (!url.ok()) return InvalidArgument("http.origins: {}", MessageOf(url.status()));
  }
  return envelope::Endpoint::Open("http://localhost/", options_.endpoint).status();
}

absl::StatusOr<std::shared_ptr<envelope::Endpoint>> HttpCaller::EndpointOf(const http::Url& url) {
  const std::scoped_lock lock(mu_);
  if (endpoints_.size() > kMostOrigins) endpoints_.clear();
  std::shared_ptr<envelope::Endpoint>& endpoint = endpoints_[url.origin];
  if (endpoint == nullptr) {
    auto opened = envelope::Endpoint::Open(url.origin + "/", options_.endpoint);
    if (!opened.ok()) {
      endpoints_.erase(url.origin);
      return opened.status();
    }
    endpoint = *std::move(opened);
  }
  return endpoint;
}

absl::StatusOr<http::Request> HttpCaller::Prepare(const StepCall& call, const Action& action,
                                                  const std::string& url) {
  ASSIGN_OR_RETURN(http::Url parsed, http::ParseUrl(url));
  const auto allowed = [&](const std::string& origin) {
    const auto other = http::ParseUrl(origin);
    return other.ok() && other->origin == parsed.origin;
  };
  if (!options_.origins.empty() && std::ranges::none_of(options_.origins, allowed)) {
    return FailedPrecondition("{} is not among http.origins of the orchestrator's configuration",
                              parsed.origin);
  }
  ASSIGN_OR_RETURN(const auto endpoint, EndpointOf(parsed));
  Attributes attributes = {{"event_id", call.key},
                           {"content_type", "application/json"},
                           {"saga", call.saga},
                           {"definition", call.definition},
                           {"step", call.step}};
  if (call.tenant) attributes["tenant_id"] = *call.tenant;
  if (call.traceparent) attributes["traceparent"] = *call.traceparent;
  if (call.tracestate) attributes["tracestate"] = *call.tracestate;
  ASSIGN_OR_RETURN(
      http::Request request,
      endpoint->RequestFor(attributes, std::make_shared<const std::string>(call.request.dump())));
  request.url = std::move(parsed);
  auto settings = std::make_shared<http::Settings>(*request.settings);
  settings->timeout =
      action.timeout > Millis(0) ? std::min(action.timeout, kLongestCall) : kLongestCall;
  settings->connect_timeout = std::min(settings->connect_timeout, settings->timeout);
  settings->keep_body = kMaxResultBytes + 1;
  settings->fresh_connection = !action.idempotent;
  request.settings = std::move(settings);
  return request;
}

void HttpCaller::Send(http::Request request, Done done) {
  const std::shared_ptr<const std::string> body = request.body;
  client_.Send(std::move(request),
               [body, done = std::move(done)](const absl::StatusOr<http::Answer>& answer) {
                 if (absl::IsCancelled(answer.status())) return;  // this process ends
                 done(OutcomeOf(answer, *body));
               });
}

Outcome HttpCaller::OutcomeOf(const absl::StatusOr<http::Answer>& answer, const std::string& sent) {
  const http::Verdict verdict = http::Judge(answer, sent);
  if (verdict.outcome == http::Verdict::Outcome::kDone) {
    // What is no JSON, or too large to keep, is no result; the step is done all the same.
    Json result;
    if (!answer->body.empty() && answer->body.size() <= kMaxResultBytes) {
      result = Json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
    }
    return Outcome::Done(KeptResult(std::move(result)));
  }
  if (verdict.outcome == http::Verdict::Outcome::kRefused) {
    return Outcome::Refused(kRefusedCode, verdict.words);
  }
  const bool late = !answer.ok() && absl::IsDeadlineExceeded(answer.status());
  return {.kind = Outcome::Kind::kFailed,
          .code = late ? kTimeoutCode : kUnavailableCode,
          .words = verdict.words,
          .certain = CertainlyNotDone(answer),
          .retry_after = verdict.retry_after};
}

}  // namespace lockstep::sagas
