#include "fuzz/fuzz_target.h"
#include "fuzz/input_file.h"
#include "platform/config/config.h"
#include "platform/status.h"

using lockstep::Config;
using lockstep::ConfigSection;

namespace {

enum class Mode { kOne, kTwo };

// A key of every kind.
struct Options {
  std::string text;
  std::string database;
  bool flag = false;
  int number = 0;
  double ratio = 0;
  lockstep::Millis wait{0};
  int64_t bytes = 0;
  Mode mode = Mode::kOne;
  std::vector<std::string> list;
  std::map<std::string, std::string> map;
};

void Bind(ConfigSection& config, Options& options) {
  config.Key("text", &options.text, "");
  config.Secret("database", &options.database, "");
  config.Key("flag", &options.flag, "");
  config.Key("number", &options.number, "");
  config.Key("ratio", &options.ratio, "");
  config.Key("wait", &options.wait, "");
  config.Bytes("bytes", &options.bytes, "");
  config.Choice("mode", &options.mode, {{"one", Mode::kOne}, {"two", Mode::kTwo}}, "");
  config.Key("list", &options.list, "");
  config.Key("map", &options.map, "");
}

}  // namespace

// A daemon's configuration file: it is read, or every mistake has a place.
LOCKSTEP_FUZZ_TARGET(config_yaml) {
  static const lockstep::fuzz::InputFile file("config.yaml");
  file.Write(input);
  Options top;
  Options section;
  std::vector<Options> items;
  Config::Sources sources;
  sources.file = file.path();
  sources.env = [](const std::string&) { return std::nullopt; };
  std::vector<lockstep::ConfigKey> effective;
  const absl::Status read = Config::Read(
      sources,
      [&](ConfigSection& config) {
        Bind(config, top);
        config.Section("section", [&](ConfigSection& inner) { Bind(inner, section); });
        config.List("items", "text", [&](ConfigSection& item) {
          items.emplace_back();
          Bind(item, items.back());
        });
      },
      &effective);
  if (read.ok()) return;
  LOCKSTEP_HOLDS(lockstep::MessageOf(read).find(file.path()) != std::string::npos);
}
