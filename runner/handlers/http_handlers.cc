#include "runner/handlers/http_handlers.h"

#include <algorithm>
#include <utility>

#include "platform/status.h"

namespace lockstep::runner {
namespace {

using Outcome = http::Verdict::Outcome;

constexpr const char* kResults[] = {"yes", "later", "no"};  // in the order of Outcome

// Names of headers are the same in either case.
bool Same(const std::string& a, std::string_view lower_case) {
  return std::ranges::equal(a, lower_case, [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y;
  });
}

}  // namespace

HttpHandlers::HttpHandlers(std::span<const projections::Call> calls, MetricsRegistry& metrics,
                           const std::string& group)
    : calls_(calls) {
  int most = 0;
  for (const projections::Call& call : calls_) {
    Handler& handler = *handlers_.emplace_back(std::make_unique<Handler>());
    if (!call.is_http()) continue;
    most += call.concurrency;
    for (size_t i = 0; i < std::size(kResults); ++i) {
      handler.answers[i] = &CounterOf(
          metrics, "runner_handler_calls_total", "Calls of HTTP handlers by their answer",
          {{"group", group}, {"handler", call.handler}, {"result", kResults[i]}});
    }
    handler.seconds =
        &HistogramOf(metrics, "runner_handler_seconds", "From a call of an HTTP handler to its end",
                     {{"group", group}, {"handler", call.handler}});
  }
  if (most == 0) return;
  // The handlers' own limits count: none waits inside the client.
  client_ = std::make_unique<http::Client>(
      http::ClientOptions{.max_requests = most, .max_requests_per_origin = most});
}

absl::Status HttpHandlers::Open() {
  for (size_t i = 0; i < calls_.size(); ++i) {
    const projections::Call& call = calls_[i];
    if (!call.is_http() || handlers_[i]->endpoint != nullptr) continue;
    envelope::EndpointOptions options;
    options.settings.timeout = call.timeout;
    options.settings.connect_timeout = std::min(call.timeout, options.settings.connect_timeout);
    options.settings.allow_private = call.allow_private;
    options.settings.ca_file = call.ca_file;
    options.format =
        call.cloudevents ? envelope::HttpFormat::kCloudEvents : envelope::HttpFormat::kPlain;
    options.secret_file = call.secret_file;
    options.headers_file = call.headers_file;
    auto endpoint = envelope::Endpoint::Open(call.url, options);
    if (!endpoint.ok()) {
      return FailedPrecondition("handler {}: {}", call.handler, MessageOf(endpoint.status()));
    }
    handlers_[i]->endpoint = *std::move(endpoint);
  }
  return absl::OkStatus();
}

// What Lockstep says of the event, no attribute of the message can say.
absl::StatusOr<http::Request> HttpHandlers::RequestFor(const OutsideCall& call) const {
  const envelope::Event& event = call.item->event;
  Attributes attributes = event.attributes;
  erase_if(attributes, [](const auto& attribute) {
    return Same(attribute.first, "replay") || Same(attribute.first, "kind");
  });
  attributes["kind"] = event.is_snapshot() ? "snapshot" : "event";
  attributes["replay"] = call.replay ? "true" : "false";
  return handlers_[call.call]->endpoint->RequestFor(
      attributes, std::make_shared<const std::string>(event.payload));
}

void HttpHandlers::Begin(const std::shared_ptr<CallRound>& round) {
  std::vector<Sending> sending;
  {
    const std::scoped_lock lock(mu_);
    round->ready.clear();
    for (size_t i = round->chains.size(); i > 0; --i) round->ready.push_back(i - 1);
    rounds_.push_back(round);
    Pump(sending);
    if (SettledNow(*round)) round->on_settled();
  }
  Send(std::move(sending));
}

void HttpHandlers::Abandon(CallRound& round) {
  const std::scoped_lock lock(mu_);
  round.abandoned = true;
  std::erase_if(rounds_, [&](const auto& other) { return other.get() == &round; });
}

bool HttpHandlers::Settled(const CallRound& round) const {
  const std::scoped_lock lock(mu_);
  return SettledNow(round);
}

bool HttpHandlers::SettledNow(const CallRound& round) {
  return round.under_way == 0 && (round.ready.empty() || Clock::System().Steady() >= round.over);
}

void HttpHandlers::Pump(std::vector<Sending>& sending) {
  // Each round in turn, until one whole turn begins nothing.
  for (size_t idle = 0; idle < rounds_.size();) {
    turn_ = (turn_ + 1) % rounds_.size();
    idle = PumpOne(rounds_[turn_], sending) ? 0 : idle + 1;
  }
}

bool HttpHandlers::PumpOne(const std::shared_ptr<CallRound>& round, std::vector<Sending>& sending) {
  if (round->ready.empty() || Clock::System().Steady() >= round->over) return false;
  // The first chain whose handler has room.
  for (size_t i = round->ready.size(); i > 0; --i) {
    const size_t chain = round->ready[i - 1];
    CallRound::Chain& at = round->chains[chain];
    const size_t call = at.calls[at.next];
    if (round->answered[call]) {  // it can't be sent: nor can what comes after it
      round->ready.erase(round->ready.begin() + static_cast<int64_t>(i - 1));
      if (SettledNow(*round)) round->on_settled();
      return true;
    }
    const uint32_t target = round->handlers[call];
    Handler& handler = *handlers_[target];
    if (handler.under_way >= calls_[target].concurrency) continue;
    round->ready.erase(round->ready.begin() + static_cast<int64_t>(i - 1));
    ++handler.under_way;
    ++round->under_way;
    sending.push_back({round, chain, call, std::move(round->requests[call])});
    return true;
  }
  return false;
}

void HttpHandlers::Send(std::vector<Sending> sending) {
  for (Sending& one : sending) {
    const std::shared_ptr<const std::string> body = one.request.body;
    const SteadyTime began = Clock::System().Steady();
    client_->Send(std::move(one.request),
                  [this, round = std::move(one.round), chain = one.chain, call = one.call, body,
                   began](const absl::StatusOr<http::Answer>& answer) {
                    const std::chrono::duration<double> took = Clock::System().Steady() - began;
                    OnAnswer(round, chain, call,
                             http::Judge(answer, body ? *body : std::string_view()), took.count());
                  });
  }
}

void HttpHandlers::OnAnswer(const std::shared_ptr<CallRound>& round, size_t chain, size_t call,
                            http::Verdict verdict, double seconds) {
  Handler& handler = *handlers_[round->handlers[call]];
  handler.answers[static_cast<size_t>(verdict.outcome)]->Increment();
  handler.seconds->Observe(seconds);
  const bool accepted = verdict.outcome == Outcome::kDone;
  if (accepted) {
    ++handler.accepted;
    handler.last_accepted = Clock::System().Steady();
  }
  std::vector<Sending> sending;
  {
    const std::scoped_lock lock(mu_);
    --handler.under_way;
    --round->under_way;
    if (!round->abandoned) {
      round->answers[call] = std::move(verdict);
      round->answered[call] = true;
      CallRound::Chain& at = round->chains[chain];
      // The next of an aggregate has its turn only after a yes.
      if (accepted && ++at.next < at.calls.size()) round->ready.push_back(chain);
    }
    Pump(sending);
    if (!round->abandoned && SettledNow(*round)) round->on_settled();
  }
  Send(std::move(sending));
}

}  // namespace lockstep::runner
