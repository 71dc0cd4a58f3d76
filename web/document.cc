#include "web/document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "platform/config/database_address.h"
#include "platform/duration.h"
#include "platform/log/masking.h"
#include "platform/version.h"

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

void Mask(json& part) {
  if (part.is_array()) {
    for (json& item : part) Mask(item);
  }
  if (!part.is_object()) return;
  for (const auto& [name, value] : part.items()) {
    if (name == "config") continue;
    if (value.is_string() && !value.empty() && TellsAKey(name)) {
      value = kMasked;
    } else {
      Mask(value);
    }
  }
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

DatabaseReading::DatabaseReading(const std::string& address, WallTime started_at)
    : address_(WithoutPassword(address)), checked_at_(started_at) {}

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

Daemon::Daemon(std::string role, std::string instance, RunningConfig config,
               MetricsRegistry& metrics)
    : role_(std::move(role)),
      instance_(std::move(instance)),
      ready_(GaugeOf(metrics, "lockstep_ready", "1 while /readyz says yes", {{"role", role_}})),
      config_(std::move(config)) {
  GaugeOf(
      metrics, "lockstep_build_info", "1; what this build is, in its labels",
      {{"role", role_}, {"version", kVersion}, {"commit", kCommit}, {"transports", kTransports}})
      .Set(1);
}

void Daemon::SetConfig(const RunningConfig& config) {
  const std::scoped_lock lock(mu_);
  config_ = config;
}

json Daemon::Head(const std::vector<std::string>& reasons, const DatabaseReading& database,
                  WallTime now) {
  ready_.Set(reasons.empty() ? 1 : 0);
  const std::scoped_lock lock(mu_);
  return {{"role", role_},
          {"version", kVersion},
          {"commit", kCommit},
          {"instance", instance_},
          {"started_at", FormatTimestamp(started_at_)},
          {"ready", reasons.empty()},
          {"reasons", reasons},
          {"database", database.ToJson(now)},
          {"config", ConfigJson(config_)}};
}

}  // namespace lockstep::web
