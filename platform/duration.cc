#include "platform/duration.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "absl/time/time.h"
#include "platform/status.h"

namespace lockstep {
namespace {

struct Unit {
  std::string_view name;
  int64_t factor;
};

constexpr Unit kTimeUnits[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
constexpr Unit kSizeUnits[] = {
    {"", 1}, {"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};

// Takes "<number><unit>" off the front of `text`; none when it does not begin so, or is too much.
std::optional<int64_t> TakeTerm(std::string_view& text, std::span<const Unit> units) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(end - text.data());
  const std::string_view name = text.substr(0, text.find_first_of("0123456789"));
  text.remove_prefix(name.size());
  const auto unit = std::ranges::find(units, name, &Unit::name);
  int64_t term = 0;
  if (unit == units.end() || __builtin_mul_overflow(number, unit->factor, &term)) {
    return std::nullopt;
  }
  return term;
}

// As FormatTimestamp writes it and Postgres keeps it: to the microsecond.
WallTime Written(WallTime time) { return std::chrono::floor<std::chrono::microseconds>(time); }

// `count` digits off the front of `text`, then `after`; -1 when that is not what stands there.
int TakeDigits(std::string_view& text, size_t count, char after) {
  if (text.size() <= count || text[count] != after) return -1;
  int number = 0;
  for (const char c : text.substr(0, count)) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  text.remove_prefix(count + 1);
  return number;
}

// The form in which every event brings its time, 2026-01-31T12:00:00.123456Z, read on the hot path;
// the rest of RFC 3339 is left to absl.
std::optional<WallTime> ParsePlainTimestamp(std::string_view text) {
  using namespace std::chrono;
  const int y = TakeDigits(text, 4, '-');
  const int m = TakeDigits(text, 2, '-');
  const int d = TakeDigits(text, 2, 'T');
  const int hour = TakeDigits(text, 2, ':');
  const int minute = TakeDigits(text, 2, ':');
  const bool whole = text.size() == 3;
  const int second = TakeDigits(text, 2, whole ? 'Z' : '.');
  const size_t digits = text.empty() ? 0 : text.size() - 1;
  const int fraction = whole || digits == 0 || digits > 9 ? 0 : TakeDigits(text, digits, 'Z');
  const year_month_day date{year(y), month(static_cast<unsigned>(m)),
                            day(static_cast<unsigned>(d))};
  const bool in_range = y >= 1970 && y <= 2261 && date.ok() && hour >= 0 && hour <= 23 &&
                        minute >= 0 && minute <= 59 && second >= 0 && second <= 59 && fraction >= 0;
  if (!in_range || !text.empty()) return std::nullopt;
  int64_t nanos = whole ? 0 : fraction;
  for (size_t i = digits; !whole && i < 9; ++i) nanos *= 10;
  return sys_days(date) + hours(hour) + minutes(minute) + seconds(second) + nanoseconds(nanos);
}

}  // namespace

absl::StatusOr<Millis> ParseDuration(std::string_view text) {
  if (text == "0") return Millis(0);
  const auto refused = [whole = std::string(text)] {
    return InvalidArgument("'{}' is not a duration; write for example 250ms, 30s, 5m or 168h",
                           whole);
  };
  if (text.empty()) return refused();
  int64_t total = 0;
  while (!text.empty()) {
    const auto term = TakeTerm(text, kTimeUnits);
    if (!term || __builtin_add_overflow(total, *term, &total)) return refused();
  }
  return Millis(total);
}

std::string FormatDuration(Millis duration) {
  const int64_t ms = duration.count();
  for (const Unit& unit : {Unit{"h", 3'600'000}, Unit{"m", 60'000}, Unit{"s", 1000}}) {
    if (ms != 0 && ms % unit.factor == 0) return fmt::format("{}{}", ms / unit.factor, unit.name);
  }
  return fmt::format("{}ms", ms);
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  std::string_view rest = text;
  const auto bytes = TakeTerm(rest, kSizeUnits);
  if (bytes && rest.empty()) return *bytes;
  return InvalidArgument("'{}' is not a size; write for example 512KiB or 64MiB", text);
}

std::string FormatBytes(int64_t bytes) {
  for (const Unit& unit : {Unit{"GiB", 1 << 30}, Unit{"MiB", 1 << 20}, Unit{"KiB", 1 << 10}}) {
    if (bytes != 0 && bytes % unit.factor == 0)
      return fmt::format("{}{}", bytes / unit.factor, unit.name);
  }
  return fmt::format("{}", bytes);
}

std::string FormatTimestamp(WallTime time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromChrono(time), absl::UTCTimeZone());
}

absl::StatusOr<WallTime> ParseTimestamp(std::string_view text) {
  if (const auto time = ParsePlainTimestamp(text)) return Written(*time);
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, std::string(text), &time, &error)) {
    return InvalidArgument("'{}' is not a time; write RFC 3339, for example 2026-01-31T12:00:00Z",
                           text);
  }
  // Nanoseconds in 64 bits: past these years, a time would silently become another one.
  static const absl::Time first = absl::FromCivil(absl::CivilYear(1678), absl::UTCTimeZone());
  static const absl::Time end = absl::FromCivil(absl::CivilYear(2262), absl::UTCTimeZone());
  if (time < first || time >= end) {
    return InvalidArgument("'{}' is a time outside of the years 1678 to 2261", text);
  }
  return Written(absl::ToChronoTime(time));
}

}  // namespace lockstep
