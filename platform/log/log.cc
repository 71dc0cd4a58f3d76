#include "platform/log/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "platform/clock.h"
#include "platform/config/config.h"
#include "platform/duration.h"
#include "platform/log/fault.h"
#include "platform/log/fault_limit.h"
#include "platform/log/masking.h"
#include "platform/printable.h"

namespace lockstep::log {
namespace {

std::atomic<bool> g_json = false;
std::atomic<bool> g_write_all = false;
std::atomic<Level> g_level = Level::kInfo;

// Which lines are written is decided here: spdlog takes them all.
void WriteLine(const std::string& line) {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("lockstep",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");  // the whole line is ours
    made->flush_on(spdlog::level::info);
    return made;
  }();
  logger->log(spdlog::level::info, line);
}

constexpr std::string_view kLevels[] = {"debug", "info", "warning", "error"};
std::string_view Name(Level level) { return kLevels[static_cast<size_t>(level)]; }

void AppendValue(std::string& line, std::string_view value) {
  std::string quoted;
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  quoted = Printable(quoted);
  const bool plain = !value.empty() && quoted.find_first_of(" \"=\\") == std::string::npos;
  line += plain ? quoted : '"' + quoted + '"';
}

// `key` of a line is one of the configuration.
std::string_view ValueOf(const Field& field) {
  const bool masked = KeysAreMasked() && field.key != "key" && TellsAKey(field.key);
  return masked && !field.value.empty() ? std::string_view(kMasked) : field.value;
}

std::string Line(Level level, std::string_view message, std::span<const Field> fields) {
  const std::string now = FormatTimestamp(std::chrono::system_clock::now());
  std::string line;
  // One without a value says nothing.
  const auto shown = [](const Field& field) { return !field.value.empty(); };
  if (g_json) {
    nlohmann::ordered_json object = {{"ts", now}, {"level", Name(level)}, {"msg", message}};
    for (const Field& field : fields) {
      if (shown(field)) object[std::string(field.key)] = ValueOf(field);
    }
    return Printable(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  fmt::format_to(std::back_inserter(line), "ts={} level={} msg=", now, Name(level));
  AppendValue(line, message);
  for (const Field& field : fields) {
    if (!shown(field)) continue;
    fmt::format_to(std::back_inserter(line), " {}=", field.key);
    AppendValue(line, ValueOf(field));
  }
  return line;
}

// What tells two sources of the same message apart; ids of single events do not.
constexpr std::string_view kSourceKeys[] = {"group", "lane", "table", "topic",      "subscription",
                                            "owner", "key",  "code",  "error_code", "sqlstate"};

LineKind KindOf(Level level, std::string_view message, Fields fields) {
  LineKind kind{.level = level, .message = std::string(message)};
  for (const Field& field : fields) {
    if (std::ranges::find(kSourceKeys, field.key) == std::end(kSourceKeys)) continue;
    kind.source.emplace_back(field.key, field.value);
  }
  return kind;
}

// Of a fault: whoever meets it, and with its error, whose numbers (processes, ports, times) differ.
LineKind FaultOf(std::string_view message, Fields fields) {
  LineKind kind{.level = Level::kWarning, .message = std::string(message)};
  for (const Field& field : fields) {
    const bool who = field.key == "lane" || field.key == "owner";
    const bool error = field.key == "error" || field.key == "cause";
    if (error) {
      std::string text;
      for (const char c : field.value) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit) {
          text += c;
        } else if (!text.ends_with("…")) {
          text += "…";
        }
      }
      kind.source.emplace_back(field.key, text);
    } else if (!who && std::ranges::find(kSourceKeys, field.key) != std::end(kSourceKeys)) {
      kind.source.emplace_back(field.key, field.value);
    }
  }
  return kind;
}

// Never destroyed: threads may log until the very end.
FaultLimit& Faults() {
  static auto* const faults = new FaultLimit;
  return *faults;
}
RepeatLimit& Repeats() {
  static auto* const repeats = new RepeatLimit;
  return *repeats;
}

void Tell(const std::vector<RepeatLimit::Told>& due) {
  for (const auto& [kind, times] : due) {
    if (kind.level < g_level) continue;
    std::vector<Field> fields;
    for (const auto& [key, value] : kind.source) fields.emplace_back(key, value);
    fields.emplace_back("repeats", times);
    const std::string message = fmt::format("{} … repeated {} times", kind.message, times);
    WriteLine(Line(kind.level, message, fields));
  }
}

void TellDue(SteadyTime now) {
  Tell(Repeats().TakeDue(now));
  Tell(Faults().TakeDue(now));
}

bool IsRepeat(Level level, std::string_view message, Fields fields) {
  if (level == Level::kDebug) return false;
  const SteadyTime now = Clock::System().Steady();
  TellDue(now);
  return !Repeats().Allow(KindOf(level, message, fields), now);
}

void Write(Level level, std::string_view message, Fields fields) {
  if (level < g_level || IsRepeat(level, message, fields)) return;
  WriteLine(Line(level, message, {fields.begin(), fields.size()}));
}

}  // namespace

void Bind(ConfigSection& config, Options& options) {
  config.Followed().Choice("level", &options.level,
                           {{"debug", Level::kDebug},
                            {"info", Level::kInfo},
                            {"warning", Level::kWarning},
                            {"error", Level::kError}},
                           "the least level that is written");
  config.Choice("format", &options.json, {{"text", false}, {"json", true}}, "form of a line");
  config.Key("repeat_burst", &options.repeats.burst,
             "lines of one kind that are written per interval, the rest is counted; 0 = all");
  config.Key("repeat_interval", &options.repeats.interval, "how long such an interval is");
}

void Configure(const Options& options) {
  g_json = options.json;
  Repeats().Restart(options.repeats);
  Faults().Restart();
  g_write_all = options.repeats.burst <= 0;
  SetLevel(options.level);
}

void TellRepeats(bool all) { TellDue(all ? SteadyTime::max() : Clock::System().Steady()); }

void SetLevel(Level level) { g_level = level; }
Level CurrentLevel() { return g_level; }

void Debug(std::string_view message, Fields fields) { Write(Level::kDebug, message, fields); }
void Info(std::string_view message, Fields fields) { Write(Level::kInfo, message, fields); }
void Warning(std::string_view message, Fields fields) { Write(Level::kWarning, message, fields); }
void Error(std::string_view message, Fields fields) { Write(Level::kError, message, fields); }

void Fault(std::string_view message, Fields fields) {
  if (g_level > Level::kWarning) return;
  const SteadyTime now = Clock::System().Steady();
  TellDue(now);
  if (!g_write_all && !Faults().Begins(FaultOf(message, fields), now)) return;
  WriteLine(Line(Level::kWarning, message, {fields.begin(), fields.size()}));
}

}  // namespace lockstep::log
