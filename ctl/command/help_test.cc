#include "ctl/command/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ctl/command/completion.h"
#include "ctl/command/config_file.h"

namespace lockstep::ctl {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class Described : public ::testing::Test {
 protected:
  Described() {
    program_.name = "lockstepctl";
    program_.options = {{"--json", &flag_, "answer in JSON"}, {"--config", &text_, "a file"}};
    outbox_ = Below(program_, "outbox", "outboxes and their rows");
    list_ = Below(*outbox_, "list", "rows of one");
    list_->runs = list_->changes = true;
    list_->options = {
        {"table", &text_, "the outbox", Option::kRequired},
        {"event", &list_of_texts_, "rows"},
        {"--state", &text_, "in this state", Option::kOptional, {"dead", "any"}},
        {"--limit", &number_, "rows at most", Option::kShowsDefault},
    };
  }
  static CommandNode* Below(CommandNode& above, const char* name, const char* help) {
    CommandNode* const made = above.commands.emplace_back(std::make_shared<CommandNode>()).get();
    made->name = name;
    made->help = help;
    made->above = &above;
    return made;
  }
  std::vector<std::string> Tab(const std::vector<std::string>& words) {
    return Complete(program_, words);
  }

  bool flag_ = false;
  int number_ = 50;
  std::string text_;
  std::vector<std::string> list_of_texts_;
  CommandNode program_;
  CommandNode* outbox_ = nullptr;
  CommandNode* list_ = nullptr;
};

TEST_F(Described, HelpHasTheOptionsOfEveryCommandToo) {
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  EXPECT_THAT(HelpText(*list_, nowhere),
              AllOf(StartsWith("Rows of one."),
                    HasSubstr("lockstepctl outbox list [OPTIONS] table [event…]"),
                    HasSubstr("--state dead|any"), HasSubstr("rows at most [50]"),
                    HasSubstr("--dry-run only shows"), HasSubstr("Options of every command"),
                    HasSubstr("--config VALUE")));
  EXPECT_THAT(HelpText(program_, nowhere), HasSubstr("outboxes and their rows"));
  std::fclose(nowhere);
}

TEST_F(Described, AManPageSaysTheSame) {
  const std::string page = ManPage(*outbox_);
  EXPECT_THAT(page, AllOf(StartsWith(".TH LOCKSTEPCTL\\-OUTBOX 1"),
                          HasSubstr(".SS lockstepctl outbox list [OPTIONS] table"),
                          HasSubstr("\\fB\\-\\-limit N\\fR\nrows at most [50]"),
                          HasSubstr("\\-\\-config")));
}

TEST_F(Described, TabKnowsWhatHelpKnows) {
  EXPECT_THAT(Tab({"o"}), ElementsAre("outbox\toutboxes and their rows"));
  EXPECT_THAT(Tab({"--json", "outbox", ""}), ElementsAre("list\trows of one"));
  EXPECT_THAT(Tab({"help", "outbox", "l"}), ElementsAre("list\trows of one"));
  EXPECT_THAT(Tab({"outbox", "list", "--st"}), ElementsAre("--state\tin this state"));
  EXPECT_THAT(Tab({"outbox", "list", "--j"}), ElementsAre("--json\tanswer in JSON"));
  EXPECT_THAT(Tab({"outbox", "list", "--state", ""}), ElementsAre("dead\t", "any\t"));
  EXPECT_THAT(Tab({"outbox", "list", "--config", ""}), ElementsAre(":files"));
  EXPECT_THAT(Tab({"outbox", "list", "shop.outbox", ""}), IsEmpty());
  EXPECT_THAT(Tab({}), IsEmpty());
  for (const char* shell : {"bash", "zsh", "fish"}) {
    EXPECT_THAT(*CompletionScript(shell), HasSubstr("lockstepctl __complete"));
  }
  EXPECT_FALSE(CompletionScript("csh").ok());
}

TEST(ConfigFile, IsKnownByItsKeys) {
  using Kind = ConfigFile::Kind;
  const auto kind = [](const std::string& text) {
    const std::string file = ::testing::TempDir() + "/config_file_test.yaml";
    std::ofstream(file) << text;
    const auto read = ReadConfigFile(file);
    EXPECT_TRUE(read.ok()) << read.status();
    return read->kind;
  };
  EXPECT_EQ(kind("database: x\nrelay: {tables: [a.b]}\ntopics: {a: b}\n"), Kind::kPublisher);
  EXPECT_EQ(kind("database: x\ntopics: {a: b}\n"), Kind::kPublisher);
  EXPECT_EQ(kind("database: x\ngroups: [a.yaml]\nstate_schema: s\n"), Kind::kRunner);
  EXPECT_EQ(kind("database: x\nworkers: 3\n"), Kind::kOrchestrator);
  EXPECT_EQ(kind("pubsub: {project: p}\ntopics: [{name: a}]\nsubscriptions: []\n"), Kind::kTopics);
  EXPECT_EQ(kind("group: feed\nsubscription: s\nprojections: []\n"), Kind::kGroup);
  EXPECT_EQ(kind("backfill: a\noutbox: b.c\naggregate_type: d\n"), Kind::kBackfill);
  EXPECT_EQ(kind("saga: a\nversion: 1\nsteps: []\n"), Kind::kSaga);
  EXPECT_EQ(kind("database: x\n"), Kind::kNone);
  EXPECT_EQ(ReadConfigFile("")->kind, Kind::kNone);
  EXPECT_FALSE(ReadConfigFile("/nowhere.yaml").ok());
}

}  // namespace
}  // namespace lockstep::ctl
