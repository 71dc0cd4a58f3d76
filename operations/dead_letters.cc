#include "operations/dead_letters.h"

#include <fmt/format.h>

#include "platform/status.h"
#include "runner/handlers/lane_calls.h"

namespace lockstep::operations {
namespace {

// What a handler answers to whoever asks by hand counts at once.
constexpr runner::CallLimits kAskedByHand{.tries = 1, .endpoint_tries = 1};

}  // namespace

DeadLetterResolver::DeadLetterResolver(const std::string& database, const state::Schema& schema,
                                       const runner::GroupOptions& options,
                                       const projections::Projector& projector)
    : options_(options),
      offsets_(schema),
      epochs_(schema, ConsumerGroup(options.name)),
      batch_(schema, ConsumerGroup(options.name), projector, offsets_, options.batch_rules()),
      handlers_(projector.Calls(), metrics_, options.name),
      connections_({.url = database, .application_name = "lockstepctl"}, "lockstepctl") {}

absl::Status DeadLetterResolver::Resolve(const state::DeadLetterResolution& resolution) {
  ASSIGN_OR_RETURN(postgres::Connection* const connection, connections_.Try());
  ASSIGN_OR_RETURN(const state::GroupEpoch under, epochs_.Load(*connection));
  RETURN_IF_ERROR(handlers_.Open());
  runner::LaneCalls calls(handlers_, kAskedByHand, enough_.get_token());
  ASSIGN_OR_RETURN(const runner::BatchResult result,
                   batch_.Resolve(*connection, under, resolution, &calls));
  return Release(under, result.unfinished, fmt::format("dead letter {}", resolution.id));
}

absl::Status DeadLetterResolver::Skip(const state::GapSkip& skip) {
  ASSIGN_OR_RETURN(postgres::Connection* const connection, connections_.Try());
  ASSIGN_OR_RETURN(const state::GroupEpoch under, epochs_.Load(*connection));
  ASSIGN_OR_RETURN(const runner::BatchResult result, batch_.SkipTo(*connection, under, skip));
  return Release(under, result.unfinished, "the missing versions");
}

absl::Status DeadLetterResolver::Release(const state::GroupEpoch& under,
                                         const std::vector<std::string>& keys,
                                         const std::string& what) {
  RETURN_IF_ERROR(handlers_.Open());
  runner::LaneCalls calls(handlers_, kAskedByHand, enough_.get_token());
  runner::DeadLetterBudget no_limit(0, Millis(0));
  runner::FailurePolicy policy(batch_, connections_, under, {}, options_, no_limit, *this,
                               enough_.get_token(), &calls);
  if (const absl::Status end = policy.Release(keys); !end.ok()) {
    return Unavailable(
        "what waits behind {} was not released yet: {}; a runner does so at its next start", what,
        outage_.empty() ? MessageOf(end) : outage_);
  }
  return absl::OkStatus();
}

// A person waits: a runner has more patience.
void DeadLetterResolver::OnOutage(std::span<runner::Inbound* const>, const std::string& reason,
                                  Millis) {
  constexpr int kOutages = 5;
  outage_ = reason;
  if (++outages_ >= kOutages) enough_.request_stop();
}

void DeadLetterResolver::OnCommitted(std::span<runner::Inbound* const>,
                                     const runner::BatchResult& result) {
  applied_ += result.released;
  dead_ += result.dead;
}

}  // namespace lockstep::operations
