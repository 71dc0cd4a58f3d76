#include "runner/seek/obstacle.h"

#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::runner {

std::optional<Obstacle> FromDatabase(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  const bool passes = !postgres::SqlState(status).empty() &&
                      postgres::Classify(status) == postgres::ErrorClass::kTransient;
  return Obstacle{!passes, std::string(MessageOf(status))};
}

}  // namespace lockstep::runner
