#include "platform/log/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "platform/clock.h"
#include "platform/duration.h"

namespace lockstep::log {
namespace {

std::atomic<bool> g_json = false;

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("lockstep",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");  // the whole line is ours
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      break;
  }
  return spdlog::level::err;
}

std::string_view Name(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      break;
  }
  return "error";
}

// What a terminal would act on, and what is no text.
bool Control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool NeedsQuotes(std::string_view value) {
  return value.empty() || value.find_first_of(" \"=\\") != std::string_view::npos ||
         std::any_of(value.begin(), value.end(), Control);
}

void AppendValue(std::string& line, std::string_view value) {
  if (!NeedsQuotes(value)) {
    line += value;
    return;
  }
  line += '"';
  for (const char c : value) {
    switch (c) {
      case '"':
      case '\\':
        line += '\\';
        line += c;
        break;
      case '\n':
        line += "\\n";
        break;
      case '\r':
        line += "\\r";
        break;
      default:
        if (Control(c)) {
          fmt::format_to(std::back_inserter(line), "\\x{:02x}", c);
        } else {
          line += c;
        }
    }
  }
  line += '"';
}

std::string Line(Level level, std::string_view message, const Field* begin, const Field* end) {
  const std::string now = FormatTimestamp(std::chrono::system_clock::now());
  std::string line;
  const auto shown = [](const Field& field) { return !field.if_any || !field.value.empty(); };
  if (g_json) {
    nlohmann::ordered_json object = {{"ts", now}, {"level", Name(level)}, {"msg", message}};
    for (const Field* field = begin; field != end; ++field) {
      if (shown(*field)) object[std::string(field->key)] = field->value;
    }
    return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  fmt::format_to(std::back_inserter(line), "ts={} level={} msg=", now, Name(level));
  AppendValue(line, message);
  for (const Field* field = begin; field != end; ++field) {
    if (!shown(*field)) continue;
    fmt::format_to(std::back_inserter(line), " {}=", field->key);
    AppendValue(line, field->value);
  }
  return line;
}

// What tells two sources of the same message apart; ids of single events do not.
bool NamesSource(std::string_view key) {
  for (const std::string_view name : {"group", "lane", "table", "topic", "subscription", "owner",
                                      "key", "code", "error_code", "sqlstate"}) {
    if (key == name) return true;
  }
  return false;
}

LineKind KindOf(Level level, std::string_view message, Fields fields) {
  LineKind kind{.level = level, .message = std::string(message)};
  for (const Field& field : fields) {
    if (NamesSource(field.key)) kind.source.emplace_back(field.key, field.value);
  }
  return kind;
}

// Never destroyed: threads may log until the very end.
struct Repeats {
  std::mutex mu;
  RepeatLimit limit;
};
Repeats& TheRepeats() {
  static auto* const repeats = new Repeats;
  return *repeats;
}

void Tell(const std::vector<RepeatLimit::Told>& due) {
  for (const auto& [kind, times] : due) {
    std::vector<Field> fields;
    for (const auto& [key, value] : kind.source) fields.emplace_back(key, value);
    fields.emplace_back("repeats", times);
    const std::string message = fmt::format("{} … repeated {} times", kind.message, times);
    Logger().log(ToSpdlog(kind.level),
                 Line(kind.level, message, fields.data(), fields.data() + fields.size()));
  }
}

bool IsRepeat(Level level, std::string_view message, Fields fields) {
  if (level == Level::kDebug) return false;
  const LineKind kind = KindOf(level, message, fields);
  const SteadyTime now = Clock::System().Steady();
  std::vector<RepeatLimit::Told> due;
  bool repeat = false;
  {
    Repeats& repeats = TheRepeats();
    const std::scoped_lock lock(repeats.mu);
    due = repeats.limit.TakeDue(now);
    repeat = !repeats.limit.Allow(kind, now);
  }
  Tell(due);
  return repeat;
}

void Write(Level level, std::string_view message, Fields fields) {
  if (!Logger().should_log(ToSpdlog(level)) || IsRepeat(level, message, fields)) return;
  Logger().log(ToSpdlog(level), Line(level, message, fields.begin(), fields.end()));
}

}  // namespace

void Configure(const Options& options) {
  g_json = options.json;
  {
    const std::scoped_lock lock(TheRepeats().mu);
    TheRepeats().limit = RepeatLimit(options.repeats);
  }
  SetLevel(options.level);
}

void TellRepeats() {
  std::vector<RepeatLimit::Told> due;
  {
    const std::scoped_lock lock(TheRepeats().mu);
    due = TheRepeats().limit.TakeDue(Clock::System().Steady());
  }
  Tell(due);
}

void TellAllRepeats() {
  std::vector<RepeatLimit::Told> all;
  {
    const std::scoped_lock lock(TheRepeats().mu);
    all = TheRepeats().limit.TakeAll();
  }
  Tell(all);
}

void SetLevel(Level level) { Logger().set_level(ToSpdlog(level)); }

Level CurrentLevel() {
  switch (Logger().level()) {
    case spdlog::level::trace:
    case spdlog::level::debug:
      return Level::kDebug;
    case spdlog::level::info:
      return Level::kInfo;
    case spdlog::level::warn:
      return Level::kWarning;
    default:
      return Level::kError;
  }
}

void Debug(std::string_view message, Fields fields) { Write(Level::kDebug, message, fields); }
void Info(std::string_view message, Fields fields) { Write(Level::kInfo, message, fields); }
void Warning(std::string_view message, Fields fields) { Write(Level::kWarning, message, fields); }
void Error(std::string_view message, Fields fields) { Write(Level::kError, message, fields); }

}  // namespace lockstep::log
