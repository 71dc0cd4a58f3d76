#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "platform/log/masking.h"
#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::runner {

// For logs and the page: what the database says when it refuses an event may quote its values.
inline std::string_view ShownError(const absl::Status& error) {
  const bool refused = postgres::Classify(error) == postgres::ErrorClass::kData;
  return refused ? UnlessMasked(MessageOf(error)) : MessageOf(error);
}

}  // namespace lockstep::runner
