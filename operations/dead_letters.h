#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "platform/metrics.h"
#include "runner/handlers/http_handlers.h"
#include "runner/lane/failure_policy.h"

namespace lockstep::operations {

// Resolves dead letters as batches like any other: under the epoch, in order, with what waits
// behind them. Nobody's lane: there is nothing to ack. On the caller's thread.
class DeadLetterResolver final : private runner::BatchObserver {
 public:
  // REQUIRES: `options` and `projector` outlive this.
  DeadLetterResolver(const std::string& database, const state::Schema& schema,
                     const runner::GroupOptions& options, const projections::Projector& projector);

  absl::Status Resolve(const state::DeadLetterResolution& resolution);
  // The same for versions that never came.
  absl::Status Skip(const state::GapSkip& skip);

  // What became of those that waited behind them.
  int64_t applied() const { return applied_; }
  int64_t dead() const { return dead_; }

 private:
  absl::Status Release(const state::GroupEpoch& under, const std::vector<std::string>& keys,
                       const std::string& what);
  void OnCommitted(std::span<runner::Inbound* const>, const runner::BatchResult& result) override;
  void OnGivenBack(std::span<runner::Inbound* const>) override {}
  void OnFailure(const absl::Status&, std::span<runner::Inbound* const>,
                 const std::string&) override {}
  void OnOutage(std::span<runner::Inbound* const>, const std::string& reason,
                Millis pause) override;

  const runner::GroupOptions& options_;
  state::Offsets offsets_;
  const state::Epochs epochs_;
  const runner::Batch batch_;
  MetricsRegistry metrics_;  // nobody's
  runner::HttpHandlers handlers_;
  runner::ConnectionSource connections_;
  std::string outage_;       // what a handler answered last that does not accept what waits …
  std::stop_source enough_;  // … and that it was asked often enough
  int outages_ = 0;
  int64_t applied_ = 0;
  int64_t dead_ = 0;
};

}  // namespace lockstep::operations
