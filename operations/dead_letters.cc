#include "operations/dead_letters.h"

#include <fmt/format.h>

#include "platform/status.h"

namespace lockstep::operations {

DeadLetterResolver::DeadLetterResolver(const std::string& database, const state::Schema& schema,
                                       const runner::GroupOptions& options,
                                       const projections::Projector& projector)
    : options_(options),
      offsets_(schema),
      epochs_(schema, ConsumerGroup(options.name)),
      batch_(schema, ConsumerGroup(options.name), projector, offsets_, options.batch_rules()),
      connections_({.url = database, .application_name = "lockstepctl"}, "lockstepctl") {}

absl::Status DeadLetterResolver::Resolve(const state::DeadLetterResolution& resolution) {
  ASSIGN_OR_RETURN(postgres::Connection* const connection, connections_.Try());
  ASSIGN_OR_RETURN(const state::GroupEpoch under, epochs_.Load(*connection));
  ASSIGN_OR_RETURN(const runner::BatchResult result,
                   batch_.Resolve(*connection, under, resolution));
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
  runner::DeadLetterBudget no_limit(0, Millis(0));
  runner::FailurePolicy policy(batch_, connections_, under, {}, options_, no_limit, *this,
                               std::stop_token());
  if (const absl::Status end = policy.Release(keys); !end.ok()) {
    return Unavailable(
        "what waits behind {} was not released yet: {}; a runner does so at its next start", what,
        MessageOf(end));
  }
  return absl::OkStatus();
}

void DeadLetterResolver::OnCommitted(std::span<runner::Inbound* const>,
                                     const runner::BatchResult& result) {
  applied_ += result.released;
  dead_ += result.dead;
}

}  // namespace lockstep::operations
