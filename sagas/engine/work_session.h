#pragma once

#include <memory>

#include "absl/status/status.h"
#include "postgres/connection.h"
#include "sagas/engine/options.h"
#include "sagas/store/work_store.h"

namespace lockstep::sagas {

// What a statement may take; a step with another limit sets its own.
inline constexpr Millis kStatementTimeout{30'000};

// A worker's session, on which sql: steps run, too. Of the worker's thread.
class WorkSession {
 public:
  explicit WorkSession(const EngineOptions& options) : options_(options) {}

  // A new one, unless there is one that works. The others REQUIRE that it was OK.
  absl::Status Open();
  bool broken() const { return connection_ == nullptr || connection_->broken(); }
  postgres::Connection& connection() { return *connection_; }
  WorkStore& store() { return *store_; }

 private:
  const EngineOptions& options_;
  std::unique_ptr<postgres::Connection> connection_;
  std::unique_ptr<WorkStore> store_;
};

}  // namespace lockstep::sagas
