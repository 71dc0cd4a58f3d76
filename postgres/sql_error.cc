#include "postgres/sql_error.h"

#include <algorithm>
#include <array>

#include "absl/strings/cord.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::postgres {
namespace {

constexpr char kSqlStateUrl[] = "lockstep/sqlstate";
constexpr char kInDoubtUrl[] = "lockstep/in-doubt";
constexpr size_t kMaxMessageBytes = 2048;

constexpr std::array<std::string_view, 6> kTransient = {"08", "40", "53", "55", "57", "58"};
constexpr std::array<std::string_view, 7> kData = {"21", "22", "23", "44", "54", "P0", "XX"};

template <size_t N>
bool Holds(const std::array<std::string_view, N>& classes, std::string_view sqlstate) {
  return std::find(classes.begin(), classes.end(), sqlstate.substr(0, 2)) != classes.end();
}

ErrorClass ClassOf(std::string_view sqlstate) {
  if (Holds(kTransient, sqlstate)) return ErrorClass::kTransient;
  if (Holds(kData, sqlstate)) return ErrorClass::kData;
  return ErrorClass::kConfiguration;
}

absl::StatusCode CodeOf(ErrorClass error_class) {
  switch (error_class) {
    case ErrorClass::kTransient:
      return absl::StatusCode::kUnavailable;
    case ErrorClass::kInDoubt:
      return absl::StatusCode::kUnknown;
    case ErrorClass::kData:
      return absl::StatusCode::kInvalidArgument;
    case ErrorClass::kConfiguration:
      break;
  }
  return absl::StatusCode::kFailedPrecondition;
}

// Messages of class 22 (`invalid input syntax for type uuid: "…"`) quote the value that they
// complain about, which is a piece of somebody's payload. It may hold quotes and line breaks
// itself.
std::string WithoutValue(std::string_view sqlstate, std::string_view message) {
  const size_t first = message.find('"');
  if (!sqlstate.starts_with("22") || first == std::string_view::npos) return std::string(message);
  const size_t last = message.rfind('"');
  return std::string(message.substr(0, first)) + "\"…\"" +
         std::string(last == first ? "" : message.substr(last + 1));
}

}  // namespace

absl::Status SqlError(std::string_view sqlstate, std::string_view message) {
  // Terse messages are one line; whatever follows it would be detail.
  const std::string shown = WithoutValue(sqlstate, Trim(message));
  message = std::string_view(shown).substr(0, shown.find('\n'));
  absl::Status status(CodeOf(ClassOf(sqlstate)), Truncate(message, kMaxMessageBytes));
  status.SetPayload(kSqlStateUrl, absl::Cord(std::string(sqlstate)));
  return status;
}

absl::Status InDoubtError(std::string_view message) {
  absl::Status status(CodeOf(ErrorClass::kInDoubt), Truncate(Trim(message), kMaxMessageBytes));
  status.SetPayload(kInDoubtUrl, absl::Cord());
  return status;
}

ErrorClass Classify(const absl::Status& status) {
  if (status.GetPayload(kInDoubtUrl).has_value()) return ErrorClass::kInDoubt;
  return ClassOf(SqlState(status));
}

std::string SqlState(const absl::Status& status) {
  const auto payload = status.GetPayload(kSqlStateUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

std::string_view Name(ErrorClass error_class) {
  switch (error_class) {
    case ErrorClass::kTransient:
      return "transient";
    case ErrorClass::kInDoubt:
      return "in doubt";
    case ErrorClass::kData:
      return "data";
    case ErrorClass::kConfiguration:
      break;
  }
  return "configuration";
}

}  // namespace lockstep::postgres
