#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/status.h"
#include "platform/version.h"

namespace lockstep {
namespace {

void PrintHelp(const CommandLine& line) {
  fmt::print("{}: {}\n\nusage: {} [--config FILE] [--KEY VALUE …]\n\n", line.program, line.summary,
             line.program);
  fmt::print("  --config FILE     YAML file with the keys below\n");
  for (const auto& [name, target] : line.switches) fmt::print("  {:<17} {}\n", name, target.second);
  fmt::print(
      "  --print-config    print the configuration in force (secrets masked) and exit\n"
      "  --version         print the version and exit\n"
      "  --help            this text\n"
      "\nKeys. In the file `relay.batch_size` is batch_size under relay; as a flag it is\n"
      "--relay.batch_size 200; in the environment LOCKSTEP_RELAY_BATCH_SIZE, or the name given\n"
      "behind the words. A flag wins over the environment, the environment over the file.\n\n");
  for (const ConfigKey& key : Config::Describe(line.bind)) {
    fmt::print("  {}{}\n      {}{}\n", key.path,
               key.default_value.empty() ? "" : " = " + key.default_value, key.help,
               key.env.empty() ? "" : "  [" + key.env + "]");
  }
}

int Mistake(const CommandLine& line, std::string_view message) {
  fmt::print(stderr, "{}: {}\nTry '{} --help'.\n", line.program, message, line.program);
  return 2;
}

// What is wrong with a flag that stands last, without a value.
std::string ExplainBareFlag(const CommandLine& line, const std::string& name) {
  std::vector<std::string> known{"config"};
  bool in_a_list = false;  // --groups.catalog.lanes: the names in a list are the file's to say
  for (const ConfigKey& key : Config::Describe(line.bind)) {
    known.push_back(key.path);
    const size_t item = key.path.find("<name>");
    in_a_list |= item != std::string::npos && name.starts_with(key.path.substr(0, item));
  }
  if (in_a_list || std::find(known.begin(), known.end(), name) != known.end()) {
    return fmt::format("--{} needs a value", name);
  }
  const std::string nearest = NearestWord(name, known);
  return fmt::format("--{}: unknown key{}", name,
                     nearest.empty() ? "" : fmt::format("; did you mean --{}?", nearest));
}

}  // namespace

std::string NearestWord(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t substituted = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

std::optional<int> CommandLine::Parse(int argc, char** argv, std::vector<ConfigKey>* effective) {
  sources = {};
  bool print_config = false;
  for (int i = 1; i < argc; ++i) {
    std::string_view arg = argv[i];
    if (arg == "--help" || arg == "-h") {
      PrintHelp(*this);
      return 0;
    }
    if (arg == "--version") {
      fmt::print("{} {}\n", program, BuildText());
      return 0;
    }
    if (arg == "--print-config") {
      print_config = true;
      continue;
    }
    if (const auto found = switches.find(std::string(arg)); found != switches.end()) {
      *found->second.first = true;
      continue;
    }
    if (!arg.starts_with("--") || arg.size() == 2) {
      return Mistake(*this, fmt::format("'{}' is not understood here", argv[i]));
    }
    arg.remove_prefix(2);
    std::string name(arg.substr(0, arg.find('=')));
    std::string value;
    if (name.size() < arg.size()) {
      value = arg.substr(name.size() + 1);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      return Mistake(*this, ExplainBareFlag(*this, name));
    }
    if (name == "config") {
      sources.file = value;
    } else {
      sources.flags[name] = value;
    }
  }
  HidePasswords(argc, argv);
  std::vector<ConfigKey> keys;
  const absl::Status read = Config::Read(sources, bind, &keys);
  if (!read.ok()) return Mistake(*this, MessageOf(read));
  if (print_config) {
    for (const ConfigKey& key : keys) {
      if (!key.is_fact) fmt::print("{}: {}\n", key.path, key.value);
    }
    return 0;
  }
  if (effective != nullptr) *effective = std::move(keys);
  return std::nullopt;
}

}  // namespace lockstep
