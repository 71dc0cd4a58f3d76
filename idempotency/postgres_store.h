#pragma once

#include "idempotency/store.h"

namespace lockstep::postgres {
class Executor;
}

namespace lockstep::idempotency {

// Keys in the schema `lockstep` of a database. In a transaction the effect and the record commit
// together, and a rollback takes the record away; on a connection each call commits by itself.
// Belongs to the executor's thread; costs nothing to make. A refusal spoils the transaction.
class PostgresStore : public IdempotencyStore {
 public:
  explicit PostgresStore(postgres::Executor& executor) : executor_(executor) {}

  absl::StatusOr<Answer> CheckAndPut(const Request& request) override;
  absl::Status Finish(const Held& held, const std::optional<std::string>& digest) override;
  absl::Status Fail(const Held& held, const std::string& error) override;
  absl::Status Renew(const Held& held, Millis lease) override;

 private:
  postgres::Executor& executor_;
};

}  // namespace lockstep::idempotency
