#include "platform/config/config.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <set>

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

std::string EnvName(std::string_view path) {
  return "LOCKSTEP_" + ToUpper(Replace(Replace(path, '.', '_'), '-', '_'));
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

std::optional<std::string> ProcessEnv(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace

ConfigSection::ConfigSection(std::shared_ptr<State> state, std::shared_ptr<Node> node,
                             std::string path)
    : state_(std::move(state)), node_(std::move(node)), path_(std::move(path)) {}

void ConfigSection::Scalar(std::string_view name, std::string_view help, std::string_view env,
                           const std::string& default_value, const Parse& parse, bool secret) {
  const std::string path = Join(path_, name);
  ConfigKey key{path, std::string(env), default_value, default_value, std::string(help), followed_};
  const auto take = [&](const std::string& text, const std::string& place) {
    const absl::Status parsed = parse(text);
    if (!parsed.ok()) {
      state_->errors.push_back(fmt::format("{}: {}: {}", place, path, MessageOf(parsed)));
    }
    key.value = secret ? MaskPassword(text) : text;
  };
  if (!state_->describing) {
    const std::string own_env = std::string(env);
    const std::string general_env = EnvName(path);
    const auto flag = state_->sources.flags.find(path);
    const auto& read_env = state_->sources.env;
    if (flag != state_->sources.flags.end()) {
      state_->used_flags.insert(path);
      take(flag->second, "--" + path);
    } else if (auto value = read_env(general_env); value.has_value()) {
      take(*value, general_env);
    } else if (auto named = own_env.empty() ? std::nullopt : read_env(own_env); named.has_value()) {
      take(*named, own_env);
    } else {
      const YAML::Node child = Child(node_->yaml, std::string(name));
      if (child.IsDefined()) {
        if (const auto text = config_internal::Flatten(child); text.ok()) {
          take(*text, PlaceOf(*state_, child));
        } else {
          state_->errors.push_back(
              fmt::format("{}: {}: {}", PlaceOf(*state_, child), path, MessageOf(text.status())));
        }
      }
    }
  }
  state_->keys.push_back(std::move(key));
}

void ConfigSection::Key(std::string_view name, std::string* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, *target, [target](const std::string& text) {
    *target = text;
    return absl::OkStatus();
  });
}

void ConfigSection::Secret(std::string_view name, std::string* target, std::string_view help,
                           std::string_view env) {
  Scalar(
      name, help, env, MaskPassword(*target),
      [target](const std::string& text) {
        *target = text;
        return absl::OkStatus();
      },
      /*secret=*/true);
}

void ConfigSection::Key(std::string_view name, bool* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, *target ? "true" : "false", [target](const std::string& text) {
    if (text != "true" && text != "false") {
      return InvalidArgument("'{}' is neither true nor false", text);
    }
    *target = text == "true";
    return absl::OkStatus();
  });
}

void ConfigSection::Key(std::string_view name, int* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, fmt::format("{}", *target),
         [target](const std::string& text) { return ParseNumber(text, target); });
}

void ConfigSection::Key(std::string_view name, double* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, fmt::format("{}", *target),
         [target](const std::string& text) { return ParseNumber(text, target); });
}

void ConfigSection::Key(std::string_view name, Millis* target, std::string_view help,
                        std::string_view env) {
  Scalar(name, help, env, FormatDuration(*target), [target](const std::string& text) {
    const auto parsed = ParseDuration(text);
    if (parsed.ok()) *target = *parsed;
    return parsed.status();
  });
}

void ConfigSection::Bytes(std::string_view name, int64_t* target, std::string_view help,
                          std::string_view env) {
  Scalar(name, help, env, FormatBytes(*target), [target](const std::string& text) {
    const auto parsed = ParseBytes(text);
    if (parsed.ok()) *target = *parsed;
    return parsed.status();
  });
}

void ConfigSection::Key(std::string_view name, std::vector<std::string>* target,
                        std::string_view help, std::string_view env) {
  Scalar(name, help, env, fmt::format("{}", fmt::join(*target, ",")),
         [target](const std::string& text) {
           *target = SplitList(text, ',');
           return absl::OkStatus();
         });
}

void ConfigSection::Key(std::string_view name, std::map<std::string, std::string>* target,
                        std::string_view help, std::string_view env) {
  state_->maps.insert(Join(path_, name));
  std::vector<std::string> pairs;
  for (const auto& [key, value] : *target) pairs.push_back(fmt::format("{}={}", key, value));
  Scalar(name, help, env, fmt::format("{}", fmt::join(pairs, ",")),
         [target](const std::string& text) {
           target->clear();
           for (const std::string& part : SplitList(text, ',')) {
             const size_t equals = part.find('=');
             if (equals == std::string::npos) {
               return InvalidArgument("'{}' is not name=value", part);
             }
             (*target)[part.substr(0, equals)] = part.substr(equals + 1);
           }
           return absl::OkStatus();
         });
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
    state_->errors.push_back(fmt::format("{}: {}: a map of keys is wanted here",
                                         PlaceOf(*state_, child->yaml), Join(path_, name)));
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
    auto none = std::make_shared<Node>();
    ConfigSection item(state_, none, Join(path, "<name>"));
    each(item);
    return;
  }
  state_->keys.push_back({Join(path, "*"), "", "", "", ""});  // makes the list itself a known key
  YAML::Node list(YAML::NodeType::Undefined);
  const auto flag = state_->sources.flags.find(path);
  std::optional<std::string> text;
  if (flag != state_->sources.flags.end()) {
    state_->used_flags.insert(path);
    text = flag->second;
  } else if (text = state_->sources.env(EnvName(path)); !text.has_value() && !env.empty()) {
    text = state_->sources.env(std::string(env));
  }
  if (text.has_value() && !shorthand.empty()) {
    list.reset(YAML::Node(YAML::NodeType::Sequence));
    for (const std::string& item : SplitList(*text, ',')) list.push_back(item);
  } else {
    list.reset(Child(node_->yaml, std::string(name)));
  }
  if (!list.IsDefined() || list.IsNull()) return;
  if (!list.IsSequence()) {
    state_->errors.push_back(
        fmt::format("{}: {}: a list is wanted here", PlaceOf(*state_, list), path));
    return;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    auto child = std::make_shared<Node>();
    const std::string label = config_internal::ItemLabel(list[i], i, shorthand);
    if (list[i].IsScalar() && !shorthand.empty()) {
      child->yaml.reset(YAML::Node(YAML::NodeType::Map));
      child->yaml[std::string(shorthand)] = list[i].Scalar();
      child->place = PlaceOf(*state_, list[i]);
    } else {
      child->yaml.reset(list[i]);
    }
    ConfigSection item(state_, child, Join(path, label));
    const size_t first = state_->keys.size();
    each(item);
    if (!child->yaml.IsMap()) continue;
    std::set<std::string> known;
    for (size_t k = first; k < state_->keys.size(); ++k) known.insert(state_->keys[k].path);
    config_internal::CheckUnknown(*state_, child->yaml, Join(path, label), known);
  }
}

void ConfigSection::Error(std::string_view message) {
  const std::string place = Place();
  state_->errors.push_back(fmt::format("{}{}{}", place, place.empty() ? "" : ": ", message));
}

std::string ConfigSection::Directory() const {
  return std::filesystem::path(state_->sources.file).parent_path().string();
}

std::string ConfigSection::Place() const {
  return node_->place.empty() ? PlaceOf(*state_, node_->yaml) : node_->place;
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
  for (const ConfigKey& key : state->keys) known.insert(key.path);
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
    effective->clear();
    for (ConfigKey& key : state->keys) {
      if (!key.path.ends_with(".*")) effective->push_back(std::move(key));
    }
  }
  if (state->errors.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(state->errors, "\n"));
}

std::vector<ConfigKey> Config::Describe(const Bind& bind) {
  auto state = std::make_shared<State>();
  state->describing = true;
  ConfigSection top(state, std::make_shared<Node>(), "");
  bind(top);
  return state->keys;
}

}  // namespace lockstep
