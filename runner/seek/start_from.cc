#include "runner/seek/start_from.h"

#include <chrono>
#include <string_view>

#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::runner {
namespace {

constexpr std::string_view kSnapshot = "snapshot:";
// A Seek before all that can be retained brings back all that is.
constexpr auto kLongAgo = std::chrono::hours(24 * 3650);

}  // namespace

absl::StatusOr<state::WantedSeek> ParseStartFrom(const std::string& text, WallTime now) {
  using state::SeekKind;
  if (text == "committed") return state::WantedSeek{};
  if (text == "earliest") return state::WantedSeek{.kind = SeekKind::kTime, .time = now - kLongAgo};
  if (text == "latest") return state::WantedSeek{.kind = SeekKind::kTime, .time = now};
  if (text.starts_with(kSnapshot) && text.size() > kSnapshot.size()) {
    return state::WantedSeek{.kind = SeekKind::kSnapshot,
                             .snapshot = text.substr(kSnapshot.size())};
  }
  const auto time = ParseTimestamp(text);
  if (time.ok()) return state::WantedSeek{.kind = SeekKind::kTime, .time = *time};
  return InvalidArgument(
      "start_from is '{}', not committed, earliest, latest, a time such as "
      "2026-01-31T12:00:00Z, checkpoint, or snapshot:NAME",
      text);
}

}  // namespace lockstep::runner
