#include "idempotency/counting_store.h"

namespace lockstep::idempotency {

CountingStore::CountingStore(IdempotencyStore& store, MetricsRegistry& registry)
    : store_(store),
      hits_(CounterOf(registry, "tx_idempo_hits_total",
                      "requests whose idempotency key was known already", {})),
      conflicts_(CounterOf(registry, "tx_idempo_conflicts_total",
                           "requests whose idempotency key belongs to another request", {})) {}

absl::StatusOr<Answer> CountingStore::CheckAndPut(const Request& request) {
  auto answer = store_.CheckAndPut(request);
  if (!answer.ok() || answer->outcome == Outcome::kGo) return answer;
  (answer->outcome == Outcome::kConflict ? conflicts_ : hits_).Increment();
  return answer;
}

}  // namespace lockstep::idempotency
