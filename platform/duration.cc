#include "platform/duration.h"

#include <charconv>
#include <chrono>
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
    {"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}};
constexpr Unit kSizeUnits[] = {
    {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}, {"B", 1}};

const Unit* FindUnit(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

// In the largest unit that leaves no rest: of `units`, the largest first and the last of them 1.
std::string FormatWith(std::span<const Unit> units, int64_t number) {
  for (const Unit& unit : units) {
    if (number != 0 && number % unit.factor == 0) {
      return fmt::format("{}{}", number / unit.factor, unit.name);
    }
  }
  return fmt::format("{}{}", number, units.back().name);
}

// Takes "<number><unit>" off the front of `text`.
bool TakeTerm(std::string_view& text, int64_t& number, std::string_view& unit) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(end - text.data());
  size_t length = 0;
  while (length < text.size() && (text[length] < '0' || text[length] > '9')) ++length;
  unit = text.substr(0, length);
  text.remove_prefix(length);
  return true;
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
    int64_t number = 0;
    int64_t term = 0;
    std::string_view name;
    if (!TakeTerm(text, number, name)) return refused();
    const Unit* unit = FindUnit(kTimeUnits, name);
    if (unit == nullptr || __builtin_mul_overflow(number, unit->factor, &term) ||
        __builtin_add_overflow(total, term, &total)) {
      return refused();
    }
  }
  return Millis(total);
}

std::string FormatDuration(Millis duration) {
  return FormatWith(std::span(kTimeUnits).subspan(1), duration.count());  // 168h, not 7d
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  std::string_view rest = text;
  int64_t number = 0;
  int64_t bytes = 0;
  std::string_view name;
  const Unit* unit = nullptr;
  if (!TakeTerm(rest, number, name) || !rest.empty() ||
      (unit = FindUnit(kSizeUnits, name)) == nullptr ||
      __builtin_mul_overflow(number, unit->factor, &bytes)) {
    return InvalidArgument("'{}' is not a size; write for example 512KiB or 64MiB", text);
  }
  return bytes;
}

std::string FormatBytes(int64_t bytes) { return FormatWith(std::span(kSizeUnits).first(4), bytes); }

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
