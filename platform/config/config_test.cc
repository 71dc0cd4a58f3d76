#include "platform/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "platform/status.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Table {
  std::string name;
  int batch = 100;
};

struct Options {
  std::string database;
  int batch = 100;
  Millis poll{250};
  bool enabled = true;
  int64_t bytes = 64 << 20;
  std::vector<std::string> topics;
  std::map<std::string, std::string> names;
  enum class Mode { kPark, kSkip } mode = Mode::kPark;
  std::vector<Table> tables;
};

void BindOptions(ConfigSection& config, Options& options) {
  config.Secret("database", &options.database, "address");
  config.Section("relay", [&](ConfigSection& relay) {
    relay.Key("batch_size", &options.batch, "rows per claim", "OUTBOX_RELAY_BATCH_SIZE");
    relay.Key("poll", &options.poll, "how often");
    relay.Key("enabled", &options.enabled, "on or off");
    relay.Bytes("bytes", &options.bytes, "how much");
    relay.Key("topics", &options.topics, "which");
    relay.Key("names", &options.names, "logical to physical");
    relay.Choice("mode", &options.mode,
                 {{"park", Options::Mode::kPark}, {"skip", Options::Mode::kSkip}}, "what to do");
    relay.List(
        "tables", "name",
        [&](ConfigSection& item) {
          Table table{.batch = options.batch};
          item.Key("name", &table.name, "schema.table");
          item.Key("batch_size", &table.batch, "rows per claim");
          options.tables.push_back(table);
        },
        "which tables", "OUTBOX_RELAY_TABLES");
  });
}

class ConfigTest : public ::testing::Test {
 protected:
  ~ConfigTest() override { std::remove(file_.c_str()); }

  absl::Status Read(const std::string& yaml) {
    file_ = ::testing::TempDir() + "/config_" + std::to_string(::getpid()) + ".yaml";
    std::ofstream(file_) << yaml;
    return Config::Read(
        {.file = file_,
         .flags = flags_,
         .env = [this](const std::string& name) -> std::optional<std::string> {
           const auto found = env_.find(name);
           if (found == env_.end()) return std::nullopt;
           return found->second;
         }},
        [this](ConfigSection& config) { BindOptions(config, options_); }, &effective_);
  }

  std::string file_;
  std::map<std::string, std::string> flags_;
  std::map<std::string, std::string> env_;
  Options options_;
  std::vector<ConfigKey> effective_;
};

TEST_F(ConfigTest, ReadsEveryKind) {
  const absl::Status read = Read(R"(
database: postgresql://u:secret@h/d
relay:
  batch_size: 7
  poll: 2s
  enabled: false
  bytes: 1MiB
  topics: [a, b]
  names: {x: y}
  mode: skip
  tables:
    - catalog.one
    - {name: catalog.two, batch_size: 9}
)");
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(options_.batch, 7);
  EXPECT_EQ(options_.poll, Millis(2000));
  EXPECT_FALSE(options_.enabled);
  EXPECT_EQ(options_.bytes, 1 << 20);
  EXPECT_THAT(options_.topics, ElementsAre("a", "b"));
  EXPECT_EQ(options_.names.at("x"), "y");
  EXPECT_EQ(options_.mode, Options::Mode::kSkip);
  ASSERT_EQ(options_.tables.size(), 2U);
  EXPECT_EQ(options_.tables[0].name, "catalog.one");
  EXPECT_EQ(options_.tables[0].batch, 7);
  EXPECT_EQ(options_.tables[1].batch, 9);
}

// Looking for a key must not put it into the tree that is looked through afterwards.
TEST_F(ConfigTest, ReadsAFileInWhichMostKeysAreMissing) {
  const absl::Status read = Read("relay: {tables: [a.b, c.d]}\n");
  ASSERT_TRUE(read.ok()) << read;
  ASSERT_EQ(options_.tables.size(), 2U);
  EXPECT_EQ(options_.tables[1].name, "c.d");
}

TEST_F(ConfigTest, FlagsWinOverEnvironmentAndItOverTheFile) {
  const std::string yaml = "relay: {batch_size: 1, tables: [a.b]}";
  ASSERT_TRUE(Read(yaml).ok());
  EXPECT_EQ(options_.batch, 1);
  env_["OUTBOX_RELAY_BATCH_SIZE"] = "2";
  ASSERT_TRUE(Read(yaml).ok());
  EXPECT_EQ(options_.batch, 2);
  env_["LOCKSTEP_RELAY_BATCH_SIZE"] = "3";
  ASSERT_TRUE(Read(yaml).ok());
  EXPECT_EQ(options_.batch, 3);
  flags_["relay.batch_size"] = "4";
  flags_["relay.tables.a.b.batch_size"] = "5";
  options_.tables.clear();
  const absl::Status read = Read(yaml);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(options_.batch, 4);
  EXPECT_EQ(options_.tables[0].batch, 5);
}

TEST_F(ConfigTest, NamesTheNearestKnownKeyAndThePlace) {
  const absl::Status read = Read("relay:\n  batchsize: 5\n  tables:\n    - {nam: x}\n");
  EXPECT_THAT(std::string(MessageOf(read)),
              HasSubstr(":2:3: unknown key 'relay.batchsize'; did you mean 'relay.batch_size'?"));
  EXPECT_THAT(std::string(MessageOf(read)), HasSubstr(":4:8: unknown key 'relay.tables.0.nam'"));
}

TEST_F(ConfigTest, SuggestsAListByItsName) {
  EXPECT_THAT(std::string(MessageOf(Read("relay: {table: [a.b]}"))),
              HasSubstr("unknown key 'relay.table'; did you mean 'relay.tables'?"));
  flags_["relay.table"] = "a.b";
  EXPECT_THAT(std::string(MessageOf(Read(""))), HasSubstr("did you mean --relay.tables?"));
}

// The label of an item whose shorthand is a file, as a runner's groups have it.
TEST_F(ConfigTest, CallsAnItemByItsFileWithoutFolderAndEnding) {
  int lanes = 0;
  const auto read = [&](const std::string& yaml) {
    lanes = 0;
    file_ = ::testing::TempDir() + "/config_" + std::to_string(::getpid()) + ".yaml";
    std::ofstream(file_) << yaml;
    return Config::Read({.file = file_, .flags = flags_}, [&](ConfigSection& config) {
      config.List("groups", "file", [&](ConfigSection& item) {
        std::string text;
        item.Key("file", &text, "which");
        item.Key("name", &text, "its name");
        item.Key("lanes", &lanes, "how many");
      });
    });
  };
  flags_["groups.catalog.lanes"] = "7";
  for (const char* yaml : {"groups: [{file: catalog.yaml}]", "groups: [{file: conf/catalog.yml}]",
                           "groups: [/etc/catalog.yaml]", "groups: [conf/catalog]",
                           "groups: [{file: x.yaml, name: catalog}]"}) {
    const absl::Status done = read(yaml);
    EXPECT_TRUE(done.ok()) << yaml << ": " << done;
    EXPECT_EQ(lanes, 7) << yaml;
  }
  EXPECT_FALSE(read("groups: [{file: catalog.yaml, name: other.yaml}]").ok());
  flags_ = {{"groups.other.yaml.lanes", "8"}};
  EXPECT_TRUE(read("groups: [{file: catalog.yaml, name: other.yaml}]").ok());
  EXPECT_EQ(lanes, 8) << "a name stays as it is";
}

TEST_F(ConfigTest, ReadsOneKeyOfAFileWhateverElseItHas) {
  ASSERT_FALSE(Read("database: here\nunheard_of: {a: b}\nrelay: [x]\n").ok());
  EXPECT_EQ(*ReadTopKey(file_, "database"), "here");
  EXPECT_EQ(*ReadTopKey(file_, "state_schema"), "");
  EXPECT_THAT(std::string(MessageOf(ReadTopKey("/nowhere/x.yaml", "database").status())),
              HasSubstr("/nowhere/x.yaml"));
}

TEST(CommandLineTest, KnowsAFlagBeforeItAsksForItsValue) {
  const auto told = [](std::string flag) {
    Options options;
    CommandLine line{.program = "p",
                     .bind = [&](ConfigSection& config) { BindOptions(config, options); }};
    std::string program = "p";
    char* argv[] = {program.data(), flag.data()};
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(line.Parse(2, argv), 2);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(told("--databas"), HasSubstr("--databas: unknown key; did you mean --database?"));
  for (const char* flag :
       {"--database", "--config", "--relay.tables", "--relay.tables.a.b.batch_size"}) {
    EXPECT_THAT(told(flag), HasSubstr(std::string(flag) + " needs a value"));
  }
}

TEST_F(ConfigTest, NamesAnUnknownFlag) {
  flags_["relay.pol"] = "1s";
  EXPECT_THAT(std::string(MessageOf(Read(""))), HasSubstr("did you mean --relay.poll?"));
}

TEST_F(ConfigTest, TellsEveryBadValueWithItsPlace) {
  const std::string text(MessageOf(Read("relay:\n  batch_size: many\n  poll: 5\n  mode: maybe\n")));
  EXPECT_THAT(text, HasSubstr(":2:15: relay.batch_size: 'many' is not a number"));
  EXPECT_THAT(text, HasSubstr(":3:9: relay.poll: '5' is not a duration"));
  EXPECT_THAT(text, HasSubstr(":4:9: relay.mode: 'maybe' is none of park | skip"));
}

TEST_F(ConfigTest, TellsWhereTheYamlIsBroken) {
  EXPECT_THAT(std::string(MessageOf(Read("relay:\n  - [a\n"))), HasSubstr(":3:1: not YAML"));
}

TEST_F(ConfigTest, MasksThePasswordWhereItIsShown) {
  ASSERT_TRUE(Read("database: postgresql://u:secret@h/d").ok());
  EXPECT_EQ(options_.database, "postgresql://u:secret@h/d");
  EXPECT_EQ(effective_[0].value, "postgresql://u:***@h/d");
}

TEST_F(ConfigTest, MasksTheQueriesOfAddressesWhereItIsShown) {
  ASSERT_TRUE(Read("relay: {names: {a: 'https://h/in?token=geheim'}, tables: [{name: t}]}").ok());
  EXPECT_EQ(options_.names["a"], "https://h/in?token=geheim");
  for (const ConfigKey& key : effective_) {
    EXPECT_EQ((key.path + key.value).find("geheim"), std::string::npos) << key.path;
  }
}

TEST(Config, CallsAnItemByNoQuery) {
  std::vector<ConfigKey> effective;
  std::string url;
  const auto bind = [&](ConfigSection& config) {
    config.List("endpoints", "url", [&](ConfigSection& item) { item.Key("url", &url, "where"); });
  };
  const Config::Sources sources{
      .file = "", .flags = {{"endpoints", "https://h/in?token=geheim"}}, .env = nullptr};
  ASSERT_TRUE(Config::Read(sources, bind, &effective).ok());
  EXPECT_EQ(url, "https://h/in?token=geheim");
  for (const ConfigKey& key : effective) {
    EXPECT_EQ((key.path + key.value).find("geheim"), std::string::npos) << key.path;
  }
}

TEST(Config, SaysWhichFileIsMissing) {
  Options options;
  const absl::Status read = Config::Read(
      {.file = "/nowhere/x.yaml"}, [&](ConfigSection& config) { BindOptions(config, options); });
  EXPECT_EQ(read.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(MessageOf(read)), HasSubstr("/nowhere/x.yaml"));
}

TEST_F(ConfigTest, AFactIsNoKeyThatSomebodyCouldSet) {
  const auto bind = [](ConfigSection& section) { section.Fact("mapping", "abc"); };
  std::vector<ConfigKey> keys;
  ASSERT_TRUE(Config::Read({}, bind, &keys).ok());
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys[0].value, "abc");
  EXPECT_FALSE(Config::Read({.flags = {{"mapping", "x"}}}, bind).ok());
  EXPECT_TRUE(Config::Describe(bind).empty());
}

TEST(Config, DescribesItsKeys) {
  Options options;
  const auto keys = Config::Describe([&](ConfigSection& config) { BindOptions(config, options); });
  ASSERT_EQ(keys.size(), 11U);
  EXPECT_EQ(keys[1].path, "relay.batch_size");
  EXPECT_EQ(keys[1].default_value, "100");
  EXPECT_EQ(keys[9].path, "relay.tables.<name>.name");
}

TEST_F(ConfigTest, TakesAListOfNamesFromTheEnvironmentOrAFlagInPlaceOfTheFiles) {
  env_["OUTBOX_RELAY_TABLES"] = "a.one, b.two";
  ASSERT_TRUE(Read("relay: {tables: [c.three]}").ok());
  ASSERT_EQ(options_.tables.size(), 2u);
  EXPECT_EQ(options_.tables[1].name, "b.two");
  options_.tables.clear();
  flags_["relay.tables"] = "d.four";
  ASSERT_TRUE(Read("relay: {tables: [c.three]}").ok());
  ASSERT_EQ(options_.tables.size(), 1u);
  EXPECT_EQ(options_.tables[0].name, "d.four");
}

}  // namespace
}  // namespace lockstep
