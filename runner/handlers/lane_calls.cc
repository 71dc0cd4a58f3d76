#include "runner/handlers/lane_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <unordered_map>

#include "platform/status.h"

namespace lockstep::runner {
namespace {

// How often it is made sure that the transaction still holds.
constexpr Millis kPing{1'000};
// A handler that has accepted something so lately is where it should be.
constexpr std::chrono::minutes kLately{1};

}  // namespace

absl::StatusOr<Outside::Answers> LaneCalls::Call(std::span<const OutsideCall> calls,
                                                 const std::function<absl::Status()>& alive) {
  Answers answers;
  answers.verdicts.resize(calls.size());
  const auto wake = std::make_shared<Wake>();
  const auto round = std::make_shared<CallRound>();
  std::vector<size_t> places;  // of the round's calls among `calls`
  std::unordered_map<std::string_view, size_t> chains;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (accepted_.contains(KeyOf(calls[i]))) {
      answers.verdicts[i].kind = Verdict::kYes;
      continue;
    }
    const size_t at = places.size();
    places.push_back(i);
    round->handlers.push_back(calls[i].call);
    auto request = handlers_.RequestFor(calls[i]);
    round->answered.push_back(!request.ok());
    round->answers.push_back({.outcome = http::Verdict::Outcome::kRefused});
    if (!request.ok()) round->answers.back().words = MessageOf(request.status());
    round->requests.push_back(request.ok() ? *std::move(request) : http::Request());
    const auto [chain, added] = chains.emplace(calls[i].item->aggregate_key, round->chains.size());
    if (added) round->chains.emplace_back();
    round->chains[chain->second].calls.push_back(at);
  }
  if (places.empty()) return answers;
  round->over = Clock::System().Steady() + limits_.budget;
  round->on_settled = [wake] {
    const std::scoped_lock lock(wake->mu);
    wake->settled = true;
    wake->changed.notify_all();
  };
  handlers_.Begin(round);
  const absl::Status waited = Await(*round, *wake, alive);
  handlers_.Abandon(*round);
  // Whatever ended the wait, what was accepted is not asked again.
  for (size_t at = 0; at < places.size(); ++at) {
    const bool yes = round->answers[at].outcome == http::Verdict::Outcome::kDone;
    if (round->answered[at] && yes) accepted_.insert(KeyOf(calls[places[at]]));
  }
  RETURN_IF_ERROR(waited);
  for (size_t at = 0; at < places.size(); ++at) {
    if (!round->answered[at]) continue;
    const size_t i = places[at];
    answers.verdicts[i] = VerdictOn(calls[i], round->answers[at]);
    if (answers.verdicts[i].kind == Verdict::kLater) {
      answers.retry_after = std::max(answers.retry_after, round->answers[at].retry_after);
    }
  }
  return answers;
}

absl::Status LaneCalls::Await(CallRound& round, Wake& wake,
                              const std::function<absl::Status()>& alive) {
  SteadyTime ping = Clock::System().Steady() + kPing;
  while (true) {
    {
      std::unique_lock lock(wake.mu);
      // (What waits for room when the time is over is told by nobody.)
      const SteadyTime now = Clock::System().Steady();
      const SteadyTime until = round.over > now ? std::min(ping, round.over) : ping;
      wake.changed.wait_until(lock, stop_, until, [&] { return wake.settled; });
      if (wake.settled) return absl::OkStatus();
    }
    if (stop_.stop_requested()) return absl::CancelledError("it was stopped");
    if (handlers_.Settled(round)) return absl::OkStatus();
    if (Clock::System().Steady() < ping) continue;
    RETURN_IF_ERROR(alive());
    ping = Clock::System().Steady() + kPing;
  }
}

void LaneCalls::Forget() {
  accepted_.clear();
  troubles_.clear();
}

std::string LaneCalls::Words(const OutsideCall& call, const http::Verdict& answer) const {
  const projections::Call& target = handlers_.call(call.call);
  return fmt::format("handler {}: {}", target.handler, answer.words);
}

Verdict LaneCalls::VerdictOn(const OutsideCall& call, const http::Verdict& answer) {
  switch (answer.outcome) {
    case http::Verdict::Outcome::kDone:
      accepted_.insert(KeyOf(call));
      return {.kind = Verdict::kYes};
    case http::Verdict::Outcome::kOutage:
      return AfterOutage(call, answer);
    case http::Verdict::Outcome::kRefused:
      break;
  }
  return AfterRefusal(call, answer);
}

// An outage is nobody's fault. But an event that fails again and again while others of the same
// handler are accepted has a fault of its own; unless the handler says when to come again.
Verdict LaneCalls::AfterOutage(const OutsideCall& call, const http::Verdict& answer) {
  const int64_t accepted = handlers_.accepted(call.call);
  const auto [found, first] = troubles_.try_emplace(KeyOf(call));
  Trouble& trouble = found->second;
  if (!first && accepted > trouble.accepted && !answer.retry_after) ++trouble.failed;
  trouble.accepted = accepted;
  if (trouble.failed < limits_.tries) {
    return {.kind = Verdict::kLater, .reason = Words(call, answer)};
  }
  return {.kind = Verdict::kNo,
          .reason = fmt::format("{} (so {} times, while it accepted others)", Words(call, answer),
                                trouble.failed + 1)};
}

// To a wrong address every event is a wrong one.
Verdict LaneCalls::AfterRefusal(const OutsideCall& call, const http::Verdict& answer) {
  const SteadyTime last = handlers_.last_accepted(call.call);
  const bool accepts = last != SteadyTime() && Clock::System().Steady() - last < kLately;
  if (answer.maybe_endpoint && !accepts) {
    if (++troubles_[KeyOf(call)].refused < limits_.endpoint_tries) {
      return {.kind = Verdict::kLater, .reason = Words(call, answer)};
    }
  }
  return {.kind = Verdict::kNo, .reason = Words(call, answer)};
}

}  // namespace lockstep::runner
