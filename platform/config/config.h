#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/duration.h"

namespace lockstep {

// Configuration: defaults in the option structs, over them a YAML file, over it the environment,
// over it the flags. An options struct is tied to its keys by one function
//
//   void Bind(ConfigSection& config, RelayOptions& options) {
//     config.Key("batch_size", &options.batch_size, "rows per claim", "OUTBOX_RELAY_BATCH_SIZE");
//   }
//
// which serves reading, `--help` and the check for unknown keys alike. The key `relay.batch_size`
// is LOCKSTEP_RELAY_BATCH_SIZE in the environment (besides its own name, where it has one) and
// --relay.batch_size as a flag. A list's item is called by its `name`, else by its file without
// folders and .yaml, else by its index: `groups.catalog.lanes` of `- file: conf/catalog.yaml`.

struct ConfigKey {
  std::string path;
  std::string env;            // its own environment name, or empty
  std::string default_value;  // as text
  std::string value;          // after reading; what may be secret in it is masked
  std::string help;
  bool followed = false;  // by a running process that reads the configuration again
  bool is_fact = false;   // nobody sets it: what stands in a file that a key names
};

namespace config_internal {
struct State;  // what is shared by the sections of one reading
struct Node;   // a YAML node and its place
}  // namespace config_internal

class ConfigSection {
 public:
  // A sentence about what is wrong with a value, or OK.
  using Parse = std::function<absl::Status(const std::string& text)>;

  void Key(std::string_view name, std::string* target, std::string_view help,
           std::string_view env = {});
  void Key(std::string_view name, bool* target, std::string_view help, std::string_view env = {});
  void Key(std::string_view name, int* target, std::string_view help, std::string_view env = {});
  void Key(std::string_view name, double* target, std::string_view help, std::string_view env = {});
  void Key(std::string_view name, Millis* target, std::string_view help, std::string_view env = {});
  // A YAML list; in the environment and as a flag, separated by commas.
  void Key(std::string_view name, std::vector<std::string>* target, std::string_view help,
           std::string_view env = {});
  // A YAML map of scalars; in the environment and as a flag, `a=b,c=d`.
  void Key(std::string_view name, std::map<std::string, std::string>* target, std::string_view help,
           std::string_view env = {});
  // The same, where a name may have several values: a YAML list, or the name repeated.
  void Key(std::string_view name, std::map<std::string, std::vector<std::string>>* target,
           std::string_view help, std::string_view env = {});
  // "64MiB"
  void Bytes(std::string_view name, int64_t* target, std::string_view help,
             std::string_view env = {});
  // A database address: its password is masked wherever the configuration is shown.
  void Secret(std::string_view name, std::string* target, std::string_view help,
              std::string_view env = {});
  // One of a closed set.
  template <typename Enum>
  void Choice(std::string_view name, Enum* target,
              const std::vector<std::pair<std::string, Enum>>& choices, std::string_view help,
              std::string_view env = {});

  // The same section; what is bound through it is followed by a running process that reads its
  // configuration again (SIGHUP). A change of any other key needs a restart.
  ConfigSection Followed() const;

  // What a file says that some key names, as a hash: no key, but a reload notices that it changed.
  void Fact(std::string_view name, std::string value);

  // Keys of a nested map: `relay.…`.
  void Section(std::string_view name, const std::function<void(ConfigSection&)>& bind);

  // A list of maps, `each` called for every item. An item may be a bare string: it is then read as
  // {`shorthand`: string}. Called once with an empty item for --help. In the environment and as a
  // flag the list is bare strings, separated by commas, in place of the file's.
  void List(std::string_view name, std::string_view shorthand,
            const std::function<void(ConfigSection&)>& each, std::string_view help = {},
            std::string_view env = {});

  // Something is wrong that one key alone can't tell. Names the section's place in the file.
  void Error(std::string_view message);
  // The same about one entry of a map.
  void ErrorAt(std::string_view name, const std::string& entry, std::string_view message);

  // The file's folder: relative paths in a file are relative to it. Empty without a file.
  std::string Directory() const;
  // "file.yaml:12:3", for messages.
  std::string Place() const;

 private:
  friend class Config;
  ConfigSection(std::shared_ptr<config_internal::State> state,
                std::shared_ptr<config_internal::Node> node, std::string path)
      : state_(std::move(state)), node_(std::move(node)), path_(std::move(path)) {}

  void Scalar(std::string_view name, std::string_view help, std::string_view env,
              const std::string& default_value, const Parse& parse, bool secret = false);

  std::shared_ptr<config_internal::State> state_;  // shared by the sections of one reading
  std::shared_ptr<config_internal::Node> node_;
  std::string path_;
  bool followed_ = false;
};

class Config {
 public:
  using Bind = std::function<void(ConfigSection&)>;
  using Env = std::function<std::optional<std::string>(const std::string&)>;

  struct Sources {
    std::string file;                          // empty = none
    std::map<std::string, std::string> flags;  // by key path
    Env env;                                   // null = the process's
  };

  // Reads everything that `bind` binds. The status lists every mistake, one per line, each with
  // file, line and column, and for an unknown key the nearest known one.
  static absl::Status Read(const Sources& sources, const Bind& bind,
                           std::vector<ConfigKey>* effective = nullptr);

  // The keys with their defaults and words, for --help.
  static std::vector<ConfigKey> Describe(const Bind& bind);
};

// What every Lockstep daemon understands: --config FILE, --<key> VALUE for each key, --help,
// --version, --print-config, and the program's own switches.
struct CommandLine {
  std::string program;
  std::string summary;  // one paragraph for --help
  Config::Bind bind;
  std::map<std::string, std::pair<bool*, std::string>> switches;  // "--once" -> (target, help)
  Config::Sources sources;  // what Parse was told: to read the same again on SIGHUP

  // An exit code when the program should end now (help shown, or mistakes told on stderr).
  std::optional<int> Parse(int argc, char** argv, std::vector<ConfigKey>* effective = nullptr);
};

// The text of one key at the top of a configuration file, whatever else the file has; empty when it
// has none. For programs that read files of several daemons.
absl::StatusOr<std::string> ReadTopKey(const std::string& file, const std::string& key);

// The nearest of `known` to `word` by edit distance, or empty when none is near.
std::string NearestWord(std::string_view word, const std::vector<std::string>& known);

template <typename Enum>
void ConfigSection::Choice(std::string_view name, Enum* target,
                           const std::vector<std::pair<std::string, Enum>>& choices,
                           std::string_view help, std::string_view env) {
  std::string names;
  std::string default_value;
  for (const auto& [text, value] : choices) {
    names += (names.empty() ? "" : " | ") + text;
    if (value == *target) default_value = text;
  }
  Scalar(name, std::string(help) + " (" + names + ")", env, default_value,
         [target, choices, names](const std::string& text) {
           for (const auto& [choice, value] : choices) {
             if (choice != text) continue;
             *target = value;
             return absl::OkStatus();
           }
           return absl::InvalidArgumentError("'" + text + "' is none of " + names);
         });
}

}  // namespace lockstep
