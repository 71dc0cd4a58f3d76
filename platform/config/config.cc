#include "platform/config/config.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "platform/config/config_tree.h"
#include "platform/config/database_address.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep {
namespace {

using config_internal::Child;
using config_internal::Join;
using config_internal::Node;
using config_internal::PlaceOf;
using config_internal::State;

// "relay.batch_size" -> "LOCKSTEP_RELAY_BATCH_SIZE"
std::string EnvName(std::string_view path) {
  std::string name = "LOCKSTEP_";
  for (const char c : path) name += c == '.' || c == '-' ? '_' : absl::ascii_toupper(c);
  return name;
}

template <typename T>
absl::Status ParseNumber(const std::string& text, T* target) {
  T parsed{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, parsed);
  if (error != std::errc() || end != last) return InvalidArgument("'{}' is not a number", text);
  *target = parsed;
  return absl::OkStatus();
}

template <typename T>
absl::Status Take(const absl::StatusOr<T>& parsed, T* target) {
  if (parsed.ok()) *target = *parsed;
  return parsed.status();
}

std::optional<std::string> ProcessEnv(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

// A value and where it was found.
struct Given {
  std::string text;
  std::string place;
};

std::optional<Given> FromFlagOrEnv(State& state, const std::string& path, std::string_view env) {
  if (const auto flag = state.sources.flags.find(path); flag != state.sources.flags.end()) {
    state.used_flags.insert(path);
    return Given{flag->second, "--" + path};
  }
  for (const std::string& name : {EnvName(path), std::string(env)}) {
    const auto value = name.empty() ? std::nullopt : state.sources.env(name);
    if (value.has_value()) return Given{*value, name};
  }
  return std::nullopt;
}

}  // namespace

namespace config_internal {

std::string ToText(Millis value) { return FormatDuration(value); }

std::string ToText(const std::vector<std::string>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}

std::string ToText(const std::map<std::string, std::string>& value) {
  std::vector<std::string> pairs;
  for (const auto& [key, target] : value) pairs.push_back(fmt::format("{}={}", key, target));
  return ToText(pairs);
}

absl::Status FromText(const std::string& text, std::string* value) {
  *value = text;
  return absl::OkStatus();
}

absl::Status FromText(const std::string& text, bool* value) {
  if (text != "true" && text != "false") {
    return InvalidArgument("'{}' is neither true nor false", text);
  }
  *value = text == "true";
  return absl::OkStatus();
}

absl::Status FromText(const std::string& text, int* value) { return ParseNumber(text, value); }

absl::Status FromText(const std::string& text, double* value) { return ParseNumber(text, value); }

absl::Status FromText(const std::string& text, Millis* value) {
  return Take(ParseDuration(text), value);
}

absl::Status FromText(const std::string& text, std::vector<std::string>* value) {
  *value = SplitList(text, ',');
  return absl::OkStatus();
}

absl::Status FromText(const std::string& text, std::map<std::string, std::string>* value) {
  value->clear();
  for (const std::string& part : SplitList(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) return InvalidArgument("'{}' is not name=value", part);
    (*value)[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return absl::OkStatus();
}

}  // namespace config_internal

void ConfigSection::Scalar(std::string_view name, std::string_view help, std::string_view env,
                           const std::string& default_value, const Parse& parse, bool secret) {
  const std::string path = Join(path_, name);
  ConfigKey& key = state_->keys.emplace_back(ConfigKey{
      path, std::string(env), default_value, default_value, std::string(help), followed_});
  if (state_->describing) return;
  std::optional<Given> given = FromFlagOrEnv(*state_, path, env);
  if (const YAML::Node child = Child(node_->yaml, name); !given.has_value() && child.IsDefined()) {
    const std::string place = PlaceOf(*state_, child);
    const auto text = config_internal::Flatten(child);
    if (!text.ok()) return state_->Complain(place, path, MessageOf(text.status()));
    given = {*text, place};
  }
  if (!given.has_value()) return;
  key.value = secret ? MaskPassword(given->text) : given->text;
  const absl::Status parsed = parse(given->text);
  if (!parsed.ok()) state_->Complain(given->place, path, MessageOf(parsed));
}

void ConfigSection::Secret(std::string_view name, std::string* target, std::string_view help,
                           std::string_view env) {
  const auto parse = [target](const std::string& text) {
    return config_internal::FromText(text, target);
  };
  Scalar(name, help, env, MaskPassword(*target), parse, /*secret=*/true);
}

void ConfigSection::Bytes(std::string_view name, int64_t* target, std::string_view help,
                          std::string_view env) {
  Scalar(name, help, env, FormatBytes(*target),
         [target](const std::string& text) { return Take(ParseBytes(text), target); });
}

ConfigSection ConfigSection::Followed() const {
  ConfigSection same = *this;
  same.followed_ = true;
  return same;
}

void ConfigSection::Section(std::string_view name,
                            const std::function<void(ConfigSection&)>& bind) {
  const Node child{Child(node_->yaml, name)};
  const std::string path = Join(path_, name);
  if (child.yaml.IsDefined() && !child.yaml.IsMap() && !child.yaml.IsNull()) {
    state_->Complain(PlaceOf(*state_, child.yaml), path, "a map of keys is wanted here");
  }
  ConfigSection section(*state_, child, path);
  section.followed_ = followed_;
  bind(section);
}

void ConfigSection::List(std::string_view name, std::string_view shorthand,
                         const std::function<void(ConfigSection&)>& each, std::string_view help,
                         std::string_view env) {
  const std::string path = Join(path_, name);
  if (state_->describing) {
    if (!help.empty()) {
      state_->keys.push_back({path, std::string(env), "", "", std::string(help)});
    }
    const Node none;
    ConfigSection item(*state_, none, Join(path, "<name>"));
    each(item);
    return;
  }
  state_->keys.push_back({Join(path, "*"), "", "", "", ""});  // makes the list itself a known key
  YAML::Node list = Child(node_->yaml, name);
  const auto given = FromFlagOrEnv(*state_, path, env);
  if (given.has_value() && !shorthand.empty()) {
    list.reset(YAML::Node(YAML::NodeType::Sequence));
    for (const std::string& item : SplitList(given->text, ',')) list.push_back(item);
  }
  if (!list.IsDefined() || list.IsNull()) return;
  if (!list.IsSequence()) {
    return state_->Complain(PlaceOf(*state_, list), path, "a list is wanted here");
  }
  for (size_t i = 0; i < list.size(); ++i) {
    Node child{list[i]};
    const std::string item_path = Join(path, config_internal::ItemLabel(list[i], i, shorthand));
    if (list[i].IsScalar() && !shorthand.empty()) {
      child.yaml.reset(YAML::Node(YAML::NodeType::Map));
      child.yaml[std::string(shorthand)] = list[i].Scalar();
      child.place = PlaceOf(*state_, list[i]);
    }
    ConfigSection item(*state_, child, item_path);
    const size_t first = state_->keys.size();
    each(item);
    std::set<std::string> known;
    for (size_t k = first; k < state_->keys.size(); ++k) known.insert(state_->keys[k].path);
    config_internal::CheckUnknown(*state_, child.yaml, item_path, known);
  }
}

void ConfigSection::Error(std::string_view message) {
  const std::string place = node_->place.empty() ? PlaceOf(*state_, node_->yaml) : node_->place;
  state_->errors.push_back(fmt::format("{}{}{}", place, place.empty() ? "" : ": ", message));
}

std::string ConfigSection::Directory() const {
  return std::filesystem::path(state_->sources.file).parent_path().string();
}

absl::Status Config::Read(const Sources& sources, const Bind& bind,
                          std::vector<ConfigKey>* effective) {
  State state{.sources = sources};
  if (!state.sources.env) state.sources.env = ProcessEnv;
  Node root;
  if (!sources.file.empty()) {
    ASSIGN_OR_RETURN(const YAML::Node file, config_internal::LoadFile(sources.file));
    root.yaml.reset(file);
  }
  ConfigSection top(state, root, "");
  bind(top);

  std::set<std::string> known;
  for (const ConfigKey& key : state.keys) known.insert(key.path);
  config_internal::CheckUnknown(state, root.yaml, "", known);
  for (const auto& [flag, value] : sources.flags) {
    if (state.used_flags.contains(flag)) continue;
    const std::string nearest = config_internal::NearestKey(flag, known);
    state.errors.push_back(
        fmt::format("--{}: unknown key{}", flag,
                    nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest)));
  }
  if (effective != nullptr) {
    std::erase_if(state.keys, [](const ConfigKey& key) { return key.path.ends_with(".*"); });
    *effective = std::move(state.keys);
  }
  if (state.errors.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(state.errors, "\n"));
}

std::vector<ConfigKey> Config::Describe(const Bind& bind) {
  State state{.describing = true};
  const Node nothing;
  ConfigSection top(state, nothing, "");
  bind(top);
  return state.keys;
}

absl::StatusOr<std::string> ReadTopKey(const std::string& file, const std::string& key) {
  ASSIGN_OR_RETURN(const YAML::Node root, config_internal::LoadFile(file));
  const YAML::Node value = Child(root, key);
  if (!value.IsDefined()) return std::string();
  auto text = config_internal::Flatten(value);
  if (!text.ok()) return InvalidArgument("{}: {}: {}", file, key, MessageOf(text.status()));
  return text;
}

}  // namespace lockstep
