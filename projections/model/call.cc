#include "projections/model/call.h"

#include <fmt/format.h>

#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::projections {
namespace {

// As refuse() of the state schema raises it: "<event id>: <reason>".
constexpr char kRefused[] = "LS001";
constexpr size_t kUuidLength = 36;

}  // namespace

absl::Status RefuseEvent(const EventId& event, std::string_view reason) {
  return postgres::SqlError(kRefused, fmt::format("{}: {}", event.value(), reason));
}

Refusal RefusalIn(const absl::Status& status) {
  if (postgres::SqlState(status) != kRefused) return {};
  std::string message(MessageOf(status));
  // (libpqxx hands on the server's "ERROR:  …".)
  constexpr std::string_view kError = "ERROR:";
  if (message.starts_with(kError)) {
    message.erase(0, message.find_first_not_of(' ', kError.size()));
  }
  if (message.size() < kUuidLength + 2 || message[kUuidLength] != ':') return {};
  return {EventId(message.substr(0, kUuidLength)), message.substr(kUuidLength + 2)};
}

}  // namespace lockstep::projections
