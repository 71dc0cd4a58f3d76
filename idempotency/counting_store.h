#pragma once

#include "idempotency/store.h"
#include "platform/metrics.h"

namespace lockstep::idempotency {

// Another store, counted: tx_idempo_hits_total (a key that is known already: done, busy or failed)
// and tx_idempo_conflicts_total (the same key with another hash). Threads as that store says; the
// counters are the registry's, which outlives this.
class CountingStore : public IdempotencyStore {
 public:
  CountingStore(IdempotencyStore& store, MetricsRegistry& registry);

  absl::StatusOr<Answer> CheckAndPut(const Request& request) override;
  absl::Status Finish(const Held& held, const std::optional<std::string>& digest) override {
    return store_.Finish(held, digest);
  }
  absl::Status Fail(const Held& held, const std::string& error) override {
    return store_.Fail(held, error);
  }
  absl::Status Renew(const Held& held, Millis lease) override { return store_.Renew(held, lease); }

 private:
  IdempotencyStore& store_;
  prometheus::Counter& hits_;
  prometheus::Counter& conflicts_;
};

}  // namespace lockstep::idempotency
