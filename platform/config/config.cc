#include "platform/config/config.h"

#include <cstdlib>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "platform/config/config_tree.h"
#include "platform/config/database_address.h"
#include "platform/config/yaml.h"
#include "platform/shown_address.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep {
namespace {

using config_internal::Join;
using config_internal::Node;
using config_internal::State;

std::string EnvName(const std::string& path) {
  return "LOCKSTEP_" + absl::AsciiStrToUpper(absl::StrReplaceAll(path, {{".", "_"}, {"-", "_"}}));
}

// How a key's text becomes its value.
absl::StatusOr<std::string> AsItIs(const std::string& text) { return text; }

absl::StatusOr<bool> ParseBool(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  return InvalidArgument("'{}' is neither true nor false", text);
}

template <typename T>
absl::StatusOr<T> ParseNumber(const std::string& text) {
  T parsed{};
  if (!ParseWhole(text, &parsed)) return InvalidArgument("'{}' is not a number", text);
  return parsed;
}

absl::StatusOr<std::vector<std::string>> ParseList(const std::string& text) {
  return SplitList(text, ',');
}

using Lists = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<Lists> ParseLists(const std::string& text) {
  Lists lists;
  for (const std::string& part : SplitList(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) return InvalidArgument("'{}' is not name=value", part);
    lists[part.substr(0, equals)].push_back(part.substr(equals + 1));
  }
  return lists;
}

absl::StatusOr<std::map<std::string, std::string>> ParsePairs(const std::string& text) {
  ASSIGN_OR_RETURN(const Lists lists, ParseLists(text));
  std::map<std::string, std::string> pairs;
  for (const auto& [name, values] : lists) {
    if (values.size() > 1) return InvalidArgument("'{}' has several values; it takes one", name);
    pairs[name] = values.back();
  }
  return pairs;
}

template <typename T, typename ParseText>
ConfigSection::Parse Into(T* target, ParseText parse) {
  return [target, parse](const std::string& text) {
    auto parsed = parse(text);
    if (!parsed.ok()) return parsed.status();
    *target = *std::move(parsed);
    return absl::OkStatus();
  };
}

std::optional<std::string> ProcessEnv(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

struct Setting {
  std::string text;
  std::string place;
};

// What the flags, or else the environment, say of a key.
std::optional<Setting> SetOutsideTheFile(State& state, const std::string& path,
                                         std::string_view own_env) {
  if (const auto flag = state.sources.flags.find(path); flag != state.sources.flags.end()) {
    state.used_flags.insert(path);
    return Setting{flag->second, "--" + path};
  }
  for (const std::string& name : {EnvName(path), std::string(own_env)}) {
    if (name.empty()) continue;
    if (const auto text = state.sources.env(name)) return Setting{*text, name};
  }
  return std::nullopt;
}

}  // namespace

void ConfigSection::Scalar(std::string_view name, std::string_view help, std::string_view env,
                           const std::string& default_value, const Parse& parse, bool secret) {
  const std::string path = Join(path_, name);
  ConfigKey key{path, std::string(env), default_value, default_value, std::string(help), followed_};
  const auto take = [&](const std::string& text, const std::string& place) {
    if (const absl::Status parsed = parse(text); !parsed.ok()) {
      state_->Complain(place, path, MessageOf(parsed));
    }
    key.value = secret ? MaskPassword(text) : ShownAddresses(text);
  };
  if (!state_->describing) {
    const YAML::Node child = Child(node_->yaml, std::string(name));
    if (const auto setting = SetOutsideTheFile(*state_, path, env)) {
      take(setting->text, setting->place);
    } else if (child.IsDefined()) {
      const std::string place = PlaceOf(state_->sources.file, child);
      if (const auto text = config_internal::Flatten(child); text.ok()) {
        take(*text, place);
      } else {
        state_->Complain(place, path, MessageOf(text.status()));
      }
    }
  }
  state_->keys.push_back(std::move(key));
}

void ConfigSection::Key(std::string_view name, std::string* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, *target, Into(target, AsItIs));
}

void ConfigSection::Secret(std::string_view name, std::string* target, std::string_view help,
                           std::string_view env) {
  Scalar(name, help, env, MaskPassword(*target), Into(target, AsItIs), /*secret=*/true);
}

void ConfigSection::Key(std::string_view name, bool* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, *target ? "true" : "false", Into(target, ParseBool));
}

void ConfigSection::Key(std::string_view name, int* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, fmt::format("{}", *target), Into(target, ParseNumber<int>));
}

void ConfigSection::Key(std::string_view name, double* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, fmt::format("{}", *target), Into(target, ParseNumber<double>));
}

void ConfigSection::Key(std::string_view name, Millis* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, FormatDuration(*target), Into(target, ParseDuration));
}

void ConfigSection::Bytes(std::string_view name, int64_t* target, std::string_view help,
                          std::string_view env) {
  Scalar(name, help, env, FormatBytes(*target), Into(target, ParseBytes));
}

void ConfigSection::Key(std::string_view name, std::vector<std::string>* target,
                        std::string_view help, std::string_view env) {
  Scalar(name, help, env, fmt::format("{}", fmt::join(*target, ",")), Into(target, ParseList));
}

void ConfigSection::Key(std::string_view name, std::map<std::string, std::string>* target,
                        std::string_view help, std::string_view env) {
  std::vector<std::string> pairs;
  for (const auto& [key, value] : *target) pairs.push_back(fmt::format("{}={}", key, value));
  Scalar(name, help, env, fmt::format("{}", fmt::join(pairs, ",")), Into(target, ParsePairs));
}

void ConfigSection::Key(std::string_view name, Lists* target, std::string_view help,
                        std::string_view env) {
  std::vector<std::string> pairs;
  for (const auto& [key, values] : *target) {
    for (const std::string& value : values) pairs.push_back(fmt::format("{}={}", key, value));
  }
  Scalar(name, help, env, fmt::format("{}", fmt::join(pairs, ",")), Into(target, ParseLists));
}

void ConfigSection::Fact(std::string_view name, std::string value) {
  if (state_->describing) return;
  state_->keys.push_back({.path = Join(path_, name), .value = std::move(value), .is_fact = true});
}

ConfigSection ConfigSection::Followed() const {
  ConfigSection same = *this;
  same.followed_ = true;
  return same;
}

void ConfigSection::Section(std::string_view name,
                            const std::function<void(ConfigSection&)>& bind) {
  auto child = std::make_shared<Node>();
  child->yaml.reset(Child(node_->yaml, std::string(name)));
  if (child->yaml.IsDefined() && !child->yaml.IsMap() && !child->yaml.IsNull()) {
    state_->Complain(PlaceOf(state_->sources.file, child->yaml), Join(path_, name),
                     "a map of keys is wanted here");
  }
  ConfigSection section(state_, child, Join(path_, name));
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
    ConfigSection item(state_, std::make_shared<Node>(), Join(path, "<name>"));
    each(item);
    return;
  }
  state_->keys.push_back({Join(path, "*"), "", "", "", ""});  // makes the list itself a known key
  YAML::Node list(YAML::NodeType::Undefined);
  const auto setting = SetOutsideTheFile(*state_, path, env);
  if (setting.has_value() && !shorthand.empty()) {
    list.reset(YAML::Node(YAML::NodeType::Sequence));
    for (const std::string& item : SplitList(setting->text, ',')) list.push_back(item);
  } else {
    list.reset(Child(node_->yaml, std::string(name)));
  }
  if (!list.IsDefined() || list.IsNull()) return;
  if (!list.IsSequence()) {
    return state_->Complain(PlaceOf(state_->sources.file, list), path, "a list is wanted here");
  }
  std::set<std::string> labels;
  for (size_t i = 0; i < list.size(); ++i) {
    auto child = std::make_shared<Node>();
    std::string label = config_internal::ItemLabel(list[i], i, shorthand);
    // The keys of two items must differ: of what changed a reload would take one for the other's.
    if (!labels.insert(label).second) label = fmt::format("{}", i);
    if (list[i].IsScalar() && !shorthand.empty()) {
      child->yaml.reset(YAML::Node(YAML::NodeType::Map));
      child->yaml[std::string(shorthand)] = list[i].Scalar();
      child->place = PlaceOf(state_->sources.file, list[i]);
    } else {
      child->yaml.reset(list[i]);
    }
    ConfigSection item(state_, child, Join(path, label));
    const size_t first = state_->keys.size();
    each(item);
    if (!child->yaml.IsMap()) continue;
    std::set<std::string> known;
    for (size_t k = first; k < state_->keys.size(); ++k) {
      if (!state_->keys[k].is_fact) known.insert(state_->keys[k].path);
    }
    config_internal::CheckUnknown(*state_, child->yaml, Join(path, label), known);
  }
}

void ConfigSection::Error(std::string_view message) {
  const std::string place = Place();
  state_->errors.push_back(fmt::format("{}{}{}", place, place.empty() ? "" : ": ", message));
}

void ConfigSection::ErrorAt(std::string_view name, const std::string& entry,
                            std::string_view message) {
  if (const auto setting = SetOutsideTheFile(*state_, Join(path_, name), {})) {
    return state_->errors.push_back(fmt::format("{}: {}", setting->place, message));
  }
  const YAML::Node at = Child(Child(node_->yaml, std::string(name)), entry);
  if (!at.IsDefined()) return Error(message);
  state_->errors.push_back(fmt::format("{}: {}", PlaceOf(state_->sources.file, at), message));
}

std::string ConfigSection::Directory() const {
  return std::filesystem::path(state_->sources.file).parent_path().string();
}

std::string ConfigSection::Place() const {
  return node_->place.empty() ? PlaceOf(state_->sources.file, node_->yaml) : node_->place;
}

absl::Status Config::Read(const Sources& sources, const Bind& bind,
                          std::vector<ConfigKey>* effective) {
  auto state = std::make_shared<State>();
  state->sources = sources;
  if (!state->sources.env) state->sources.env = ProcessEnv;
  auto root = std::make_shared<Node>();
  if (!sources.file.empty()) {
    ASSIGN_OR_RETURN(const YAML::Node file, config_internal::LoadFile(sources.file));
    root->yaml.reset(file);
  }
  ConfigSection top(state, root, "");
  bind(top);

  std::set<std::string> known;
  for (const ConfigKey& key : state->keys) {
    if (!key.is_fact) known.insert(key.path);
  }
  if (root->yaml.IsDefined() && root->yaml.IsMap()) {
    config_internal::CheckUnknown(*state, root->yaml, "", known);
  }
  for (const auto& [flag, value] : sources.flags) {
    if (state->used_flags.contains(flag)) continue;
    const std::string nearest = config_internal::NearestKey(flag, known);
    state->errors.push_back(
        fmt::format("--{}: unknown key{}", flag,
                    nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest)));
  }
  if (effective != nullptr) {
    *effective = std::move(state->keys);
    std::erase_if(*effective, [](const ConfigKey& key) { return key.path.ends_with(".*"); });
  }
  if (state->errors.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(state->errors, "\n"));
}

absl::StatusOr<std::string> ReadTopKey(const std::string& file, const std::string& key) {
  ASSIGN_OR_RETURN(const YAML::Node root, config_internal::LoadFile(file));
  const YAML::Node value = Child(root, key);
  if (!value.IsDefined()) return std::string();
  auto text = config_internal::Flatten(value);
  if (!text.ok()) return InvalidArgument("{}: {}: {}", file, key, MessageOf(text.status()));
  return text;
}

std::vector<ConfigKey> Config::Describe(const Bind& bind) {
  auto state = std::make_shared<State>();
  state->describing = true;
  ConfigSection top(state, std::make_shared<Node>(), "");
  bind(top);
  return state->keys;
}

}  // namespace lockstep
