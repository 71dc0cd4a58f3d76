#include "web/document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "platform/duration.h"

namespace lockstep::web {
namespace {

using nlohmann::json;

// Older than this, what was read from the database is not shown as if it were true.
constexpr Millis kStale{15'000};

}  // namespace

json TimeOrNull(WallTime at) {
  return at == WallTime() ? json(nullptr) : json(FormatTimestamp(at));
}

int64_t AgeMs(WallTime at, WallTime now) {
  return std::max<int64_t>(0, std::chrono::duration_cast<Millis>(now - at).count());
}

json ConfigJson(const RunningConfig& config) {
  json list = json::array();
  auto waiting = config.after_restart;
  for (const ConfigKey& key : config.keys) {
    json entry = {{"key", key.path},
                  {"value", key.value},
                  {"default", key.default_value},
                  {"after_restart", nullptr}};
    if (const auto found = waiting.extract(key.path)) entry["after_restart"] = found.mapped();
    list.push_back(std::move(entry));
  }
  for (const auto& [path, value] : waiting) {  // a group or a table that the file has added
    list.push_back({{"key", path}, {"value", ""}, {"default", ""}, {"after_restart", value}});
  }
  return list;
}

void DatabaseReading::Done(std::string error, WallTime now) {
  const std::scoped_lock lock(mu_);
  if (error.empty()) read_at_ = checked_at_ = now;
  error_ = std::move(error);
}

void DatabaseReading::Skipped(WallTime now) {
  const std::scoped_lock lock(mu_);
  checked_at_ = now;
}

WallTime DatabaseReading::good_since() const {
  const std::scoped_lock lock(mu_);
  return error_.empty() ? read_at_ : WallTime();
}

json DatabaseReading::ToJson(WallTime now) const {
  const std::scoped_lock lock(mu_);
  const bool stale = AgeMs(checked_at_, now) > kStale.count();
  return {{"address", address_},
          {"reachable", error_.empty() && !stale},
          {"error", error_.empty() && stale ? "It does not answer." : error_},
          {"as_of", TimeOrNull(read_at_)}};
}

}  // namespace lockstep::web
