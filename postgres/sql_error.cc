#include "postgres/sql_error.h"

#include "absl/strings/cord.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::postgres {
namespace {

constexpr char kSqlStateUrl[] = "lockstep/sqlstate";
constexpr char kInDoubtUrl[] = "lockstep/in-doubt";
constexpr char kReadOnly[] = "25006";
constexpr size_t kMaxMessageBytes = 2048;

struct Class {
  std::string_view name;
  absl::StatusCode code;
  std::string_view sqlstates;  // their first two characters
};
constexpr Class kClasses[] = {
    {"transient", absl::StatusCode::kUnavailable, "08 40 53 55 57 58"},
    {"in doubt", absl::StatusCode::kUnknown, ""},
    {"data", absl::StatusCode::kInvalidArgument, "21 22 23 44 54 LS P0 XX"},
    {"configuration", absl::StatusCode::kFailedPrecondition, ""},
};
static_assert(std::size(kClasses) == static_cast<size_t>(ErrorClass::kConfiguration) + 1);

const Class& Of(ErrorClass error_class) { return kClasses[static_cast<size_t>(error_class)]; }

ErrorClass ClassOf(std::string_view sqlstate) {
  if (sqlstate.empty()) return ErrorClass::kConfiguration;
  if (sqlstate == kReadOnly) return ErrorClass::kTransient;  // there will be a primary again
  for (const ErrorClass is : {ErrorClass::kTransient, ErrorClass::kData}) {
    if (Of(is).sqlstates.find(sqlstate.substr(0, 2)) != std::string_view::npos) return is;
  }
  return ErrorClass::kConfiguration;
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
  absl::Status status(Of(ClassOf(sqlstate)).code, Truncate(message, kMaxMessageBytes));
  status.SetPayload(kSqlStateUrl, absl::Cord(std::string(sqlstate)));
  return status;
}

absl::Status InDoubtError(std::string_view message) {
  absl::Status status(Of(ErrorClass::kInDoubt).code, Truncate(Trim(message), kMaxMessageBytes));
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

std::string_view Name(ErrorClass error_class) { return Of(error_class).name; }

}  // namespace lockstep::postgres
