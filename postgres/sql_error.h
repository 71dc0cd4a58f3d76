#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lockstep::postgres {

// What to do about a failed statement. Every error of Postgres is put into one of these, once,
// by its SQLSTATE.
enum class ErrorClass {
  kTransient,      // 08, 25006, 40, 53, 55, 57, 58: the same again may succeed
  kInDoubt,        // the connection was lost during COMMIT: it may have happened
  kData,           // 21, 22, 23, 44, 54, LS, P0, XX: these values will never be taken
  kConfiguration,  // everything else, 42 above all: missing table, column, right
};

// A status for a failed statement. `message` comes without DETAIL and CONTEXT, which quote values.
absl::Status SqlError(std::string_view sqlstate, std::string_view message);
absl::Status InDoubtError(std::string_view message);

// REQUIRES: `status` came out of this folder. (Other statuses count as kConfiguration.)
ErrorClass Classify(const absl::Status& status);

// Five characters, or empty when the error did not come from the server.
std::string SqlState(const absl::Status& status);

std::string_view Name(ErrorClass error_class);

}  // namespace lockstep::postgres
