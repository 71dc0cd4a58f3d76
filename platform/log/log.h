#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "platform/log/log_repeats.h"
#include "platform/status.h"
#include "platform/strong_id.h"

namespace lockstep {
class ConfigSection;
}

// One line per event: `ts=… level=info msg="…" key=value …`, or the same as JSON. Fields never
// hold a payload or a secret. Safe from any thread.
//
// A line that repeats (the same message about the same group, table, topic, …; the ids in it may
// differ) is written a few times per interval; the others are counted and told in one line at the
// interval's end. Debug lines are never held back.
namespace lockstep::log {

struct Options {
  Level level = Level::kInfo;
  bool json = false;
  RepeatLimit::Options repeats;
};

struct Field {
  template <typename T>
  Field(std::string_view k, const T& v) : key(k), value(fmt::format("{}", v)) {}
  template <typename Tag>
  Field(std::string_view k, const StrongId<Tag>& v) : key(k), value(v.value()) {}
  Field(std::string_view k, const absl::Status& v) : key(k), value(MessageOf(v)) {}

  std::string_view key;
  std::string value;
  bool if_any = false;  // left out when it is empty
};
using Fields = std::initializer_list<Field>;

// A field that is left out where there is no value, such as a trace id.
template <typename T>
Field IfAny(std::string_view key, const T& value) {
  Field field(key, value);
  field.if_any = true;
  return field;
}

// The section `log` of a daemon.
void Bind(ConfigSection& config, Options& options);

// REQUIRES: called before other threads log. Lines go to stderr.
void Configure(const Options& options);
void SetLevel(Level level);
// Tells the repeats whose interval is over, as every line that is written does; or all of them: at
// the end of the process.
void TellRepeats(bool all = false);
Level CurrentLevel();

void Debug(std::string_view message, Fields fields = {});
void Info(std::string_view message, Fields fields = {});
void Warning(std::string_view message, Fields fields = {});
void Error(std::string_view message, Fields fields = {});

}  // namespace lockstep::log
