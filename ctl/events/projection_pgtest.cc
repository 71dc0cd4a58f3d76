#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_replace.h"
#include "projections/testing/test_group.h"
#include "tests/support/test_database.h"

// lockstepctl projection and lockstepctl schema, the binary, as a user runs it.
namespace lockstep::ctl {
namespace {

using projections::DescriptorsOf;
using projections::TempFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kProto[] = R"(
syntax = "proto3";
package shop;
enum Size { SMALL = 0; LARGE = 1; }
message Made { string id = 1; int64 big = 2; string name = 3; Size size = 4; bytes raw = 5; }
message Gone { string id = 1; }
)";

struct Answer {
  int status = -1;
  std::string out;
  std::string errors;
};

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Answer Ctl(const std::string& arguments) {
  const auto bin =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin";
  const TempFile errors("stderr", "");
  const std::string command =
      fmt::format("env -u LOCKSTEP_DATABASE {}/lockstepctl {} 2>{} </dev/null", bin.string(),
                  arguments, errors.path());
  Answer answer;
  FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t read = ::fread(buffer, 1, sizeof buffer, pipe)) {
    answer.out.append(buffer, read);
  }
  const int status = ::pclose(pipe);
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  answer.errors = ReadFile(errors.path());
  return answer;
}

class ProjectionCommand : public ::testing::Test {
 protected:
  // A group's file whose projection maps Made; lines are counted from 1.
  std::string Yaml(const std::string& replace, const std::string& more = "") const {
    return "group: shop\nsubscription: s\ndescriptors: " + descriptors_->path() +
           "\nprojections:\n"
           "  - name: things\n"
           "    table: shop.thing\n"
           "    key: id\n"
           "    version: version\n"
           "    events:\n"
           "      Made: {replace: " +
           replace + "}\n" + more;
  }
  Answer Check(const std::string& yaml, const std::string& options = "") {
    file_ = std::make_unique<TempFile>("group.yaml", yaml);
    return Ctl(fmt::format("projection check {} {}", file_->path(), options));
  }
  std::string At(int line) const { return fmt::format("{}:{}:", file_->path(), line); }

  std::unique_ptr<TempFile> descriptors_ = DescriptorsOf(kProto);
  std::unique_ptr<TempFile> file_;
};

TEST_F(ProjectionCommand, CheckRefusesEveryMistakeOfAFileWithLineAndCure) {
  struct Case {
    std::string yaml;
    int line;
    const char* cure;
  };
  for (const Case& c : std::vector<Case>{
           {"group: [shop\n", 2, "not YAML"},
           {"group: shop\nsubscripton: s\n", 2, "did you mean 'subscription'?"},
           {Yaml("[bigg]"), 10, "message shop.Made has no field 'bigg'; did you mean 'big'?"},
           {Yaml("[big]", "      Mde: {replace: [big]}\n"), 11, "say which with message:"},
           {Yaml("[big]", "      X: {message: shop.Mad, replace: [big]}\n"), 11,
            "did you mean shop.Made?"},
           {Yaml("[big]", "      Gone: delet\n"), 11, "did you mean 'delete'?"},
           {Yaml("{n: {field: name, as: seconds}}"), 10, "as: seconds is for Duration"},
           {Yaml("{n: {field: name, as: number}}"), 10, "as: number is for enums"},
           {Yaml("{n: {field: name, as: array}}"), 10, "as: array is for repeated scalars"},
           {Yaml("{n: name.first}"), 10, "map 'name' itself"},
           {Yaml("[big]", "      Gone: {increment: {n: {value: 1}}}\n"), 11,
            "give the counts a table of their own"},
           {Yaml("[big, version]"), 10, "leave it out here"},
           {Yaml("[big]",
                 "      Gone: {when: {field: id, equals: }, delete: }\n"
                 "      Made: {replace: [name]}\n"),
            12, "twice"},
           {Yaml("{n: {field: size}}",
                 "      Gone:\n        - {message: shop.Made, when: {field: "
                 "size, equals: HUGE}, delete: }\n"),
            12, "it has SMALL, LARGE"}}) {
    const Answer answer = Check(c.yaml);
    EXPECT_EQ(answer.status, 1) << c.yaml;
    EXPECT_THAT(answer.out, AllOf(HasSubstr(At(c.line)), HasSubstr(c.cure))) << c.yaml;
    EXPECT_THAT(answer.errors, HasSubstr("mismatch")) << c.yaml;
  }
}

TEST_F(ProjectionCommand, CheckListsAllMistakesAtOnceAndInJson) {
  const std::string yaml = Yaml("[bigg, nam]", "      Gone: delet\n");
  const Answer text = Check(yaml);
  EXPECT_THAT(text.out, AllOf(HasSubstr("'bigg'"), HasSubstr("'nam'"), HasSubstr("'delet'")));
  EXPECT_THAT(text.errors, HasSubstr("3 mismatches in "));
  const Answer answer = Check(yaml, "--json");
  EXPECT_EQ(answer.status, 1);
  const Json json = Json::parse(answer.out);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["database_checked"], false);
  ASSERT_EQ(json["mismatches"].size(), 3);
  EXPECT_THAT(json["mismatches"][0]["place"].get<std::string>(), HasSubstr(At(10)));
  EXPECT_THAT(json["mismatches"][2]["place"].get<std::string>(), HasSubstr(At(11)));
  EXPECT_THAT(json["mismatches"][2]["what"].get<std::string>(), HasSubstr("'delete'"));
}

TEST_F(ProjectionCommand, CheckSaysThatAFileIsWell) {
  const Answer answer = Check(Yaml("[big]"));
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(answer.out, HasSubstr("fits its descriptors (tables: give --database to check)"));
  EXPECT_THAT(Ctl("projection check /nowhere.yaml").out, HasSubstr("/nowhere.yaml"));
  EXPECT_EQ(Ctl("projection check /nowhere.yaml").status, 1);
  EXPECT_NE(Ctl("projection check").status, 0);
}

TEST_F(ProjectionCommand, CheckComparesWithTheLiveTable) {
  testing::TestDatabase db;
  db.Run("CREATE SCHEMA shop");
  const std::string database = fmt::format("--database '{}'", db.url());
  struct Case {
    const char* replace;
    const char* columns;
    int line;
    const char* cure;
  };
  const std::string rest = "id text PRIMARY KEY, version bigint NOT NULL";
  for (const Case& c : std::vector<Case>{
           {"[big]", "", 5, "table shop.thing does not exist; lockstepctl projection ddl"},
           {"[big]", "bigg bigint", 10, "did you mean 'bigg'? Or: ALTER TABLE"},
           {"[big]", "big integer", 10, "make the column bigint"},
           {"[raw]", "raw text", 10, "make the column bytea"},
           {"{n: {value: x}}", "n bigint", 10, "value x is no bigint"},
           {"{n: {field: name, type: uuid}}", "n bigint", 10, "make them the same"},
           {"{n: {field: name, type: no_such}}", "n bigint", 10, "make them the same"},
           {"[big]", "big bigint, other text NOT NULL", 5, "give it a default"},
           {"[big]", "big bigint GENERATED ALWAYS AS (version) STORED", 10, "leave it out"}}) {
    db.Run("DROP TABLE IF EXISTS shop.thing");
    if (*c.columns != '\0')
      db.Run(fmt::format("CREATE TABLE shop.thing ({}, {})", rest, c.columns));
    const Answer answer = Check(Yaml(c.replace), database);
    EXPECT_EQ(answer.status, 1) << c.replace << c.columns;
    EXPECT_THAT(answer.out, AllOf(HasSubstr(At(c.line)), HasSubstr(c.cure)))
        << c.replace << c.columns << answer.errors;
  }
  db.Run("DROP TABLE shop.thing; CREATE TABLE shop.thing (" + rest + ", big bigint)");
  const Answer well = Check(Yaml("[big]"), database + " --json");
  EXPECT_EQ(well.status, 0) << well.out << well.errors;
  EXPECT_EQ(Json::parse(well.out)["database_checked"], true);
}

TEST_F(ProjectionCommand, DdlPrintsTablesThatTheCheckAccepts) {
  testing::TestDatabase db;
  for (const char* file : {"catalog/catalog.yaml", "engagement/engagement.yaml"}) {
    const std::string path = fmt::format("{}/{}", LOCKSTEP_EXAMPLES, file);
    const Answer ddl = Ctl("projection ddl " + path);
    ASSERT_EQ(ddl.status, 0) << ddl.errors;
    db.Run(ddl.out);
    const Answer check = Ctl(fmt::format("projection check {} --database '{}'", path, db.url()));
    EXPECT_EQ(check.status, 0) << check.out;
    EXPECT_EQ(Json::parse(Ctl("projection ddl --json " + path).out)["ddl"], ddl.out);
  }
  const TempFile bad("bad.yaml", Yaml("[bigg]"));
  const Answer refused = Ctl("projection ddl " + bad.path());
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.errors, HasSubstr("did you mean 'big'?"));
  EXPECT_EQ(refused.out, "");
}

class ExplainCommand : public ProjectionCommand {
 protected:
  ExplainCommand() {
    db_.Run(
        "CREATE SCHEMA shop; CREATE TABLE shop.thing (id text PRIMARY KEY, big bigint, name text,"
        " version bigint NOT NULL)");
    auto connection = db_.Connect();
    EXPECT_TRUE(projections::MigrateState(*connection).ok());
    db_.Run(
        "INSERT INTO lockstep_state.consumer_groups (group_name) VALUES ('shop');"
        "INSERT INTO lockstep_state.slots (group_name, slot, subscription)"
        " VALUES ('shop', 1, 's');"
        "INSERT INTO lockstep_state.inbox (generation, event_id) SELECT generation,"
        " '11111111-1111-4111-8111-111111111111' FROM lockstep_state.slots");
  }
  static std::string Made(const std::string& id, int version, const std::string& more = "") {
    return fmt::format(R"({{"event_type": "Made", "aggregate_id": "{0}", "version": {1}{2},
                            "payload": {{"id": "{0}", "big": "9223372036854775807"}}}})",
                       id, version, more);
  }
  Answer Explain(const std::string& events, const std::string& options) {
    const TempFile event("event.json", events);
    return Ctl(fmt::format("projection explain {} {} {}", group_.path(), event.path(), options));
  }
  std::string WithDatabase() const {
    return fmt::format("--database '{}' --state-schema lockstep_state", db_.url());
  }

  testing::TestDatabase db_;
  TempFile group_{"group.yaml", Yaml("[big, name]", "      Gone: delete\n")};
};

TEST_F(ExplainCommand, SaysWhatWouldBeWrittenWithoutADatabase) {
  const Answer text = Explain(Made("a", 4), "");
  EXPECT_EQ(text.status, 0) << text.errors;
  EXPECT_EQ(text.out,
            "Made a version 4\n  replace shop.thing (things)\n    key id = a\n"
            "    big = 9223372036854775807\n    name = \n    version = 4\nNothing was written.\n");
  const Json json = Json::parse(Explain(Made("a", 4), "--json").out);
  EXPECT_EQ(json[0]["rows"][0]["columns"]["big"], "9223372036854775807");
  EXPECT_FALSE(json[0]["rows"][0].contains("guard"));
  const Answer poison =
      Explain(R"({"event_type": "Made", "aggregate_id": "a", "payload": "/w=="})", "");
  EXPECT_EQ(poison.status, 1);
  EXPECT_THAT(poison.errors,
              HasSubstr("Made a version 1 is poison: the payload is not a shop.Made"));
  EXPECT_EQ(Explain("{", "").status, 1);
}

TEST_F(ExplainCommand, SaysWhatTheVersionGuardWouldDo) {
  db_.Run(
      "INSERT INTO shop.thing (id, version) VALUES ('a', 4);"
      "INSERT INTO lockstep_state.row_versions SELECT 'shop', generation, 'things', key, 4, 4,"
      " gone FROM lockstep_state.slots, (VALUES ('a', NULL), ('b', now())) AS k(key, gone)");
  const Answer answer =
      Explain(fmt::format("[{}, {}, {}, {}, {}, {}, {}]", Made("a", 3), Made("a", 4), Made("a", 5),
                          Made("a", 5), Made("b", 2), Made("c", 1),
                          Made("d", 1, R"(, "event_id": "11111111-1111-4111-8111-111111111111")")),
              WithDatabase() + " --json");
  ASSERT_EQ(answer.status, 0) << answer.errors;
  const Json json = Json::parse(answer.out);
  const auto guard = [&](int event) {
    const Json& row = json[event]["rows"][0];
    return fmt::format("{} {}", row["guard"].get<std::string>(), row["stored_version"].dump());
  };
  EXPECT_EQ(guard(0), "superseded 4");
  EXPECT_EQ(guard(1), "conflict 4");
  EXPECT_EQ(guard(2), "apply 4");
  EXPECT_EQ(guard(3), "conflict 5");  // what the event before it would have left
  EXPECT_EQ(guard(4), "superseded 4");
  EXPECT_EQ(json[4]["rows"][0]["stored_deleted"], true);
  EXPECT_EQ(guard(5), "apply null");
  EXPECT_EQ(json[5]["seen"], false);
  EXPECT_EQ(json[6]["seen"], true);
  EXPECT_FALSE(json[6]["rows"][0].contains("guard"));
  EXPECT_EQ(db_.QueryInt("SELECT version FROM shop.thing"), 4);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep_state.row_versions"), 2);
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep_state.inbox"), 1);

  const Answer text = Explain(
      fmt::format("[{}, {}, {}, {}]", Made("a", 3), Made("a", 4), Made("b", 2), Made("c", 1)),
      WithDatabase());
  EXPECT_THAT(text.out, HasSubstr("guard: version 4 is stored: superseded, would change nothing"));
  EXPECT_THAT(text.out, HasSubstr("guard: version 4 is stored: a conflict (a forked or restored"));
  EXPECT_THAT(text.out, HasSubstr("guard: version 4 is stored (deleted): superseded"));
  EXPECT_THAT(text.out, HasSubstr("guard: nothing is stored: would be written"));
}

TEST_F(ExplainCommand, SaysWhatWouldBeParkedAsTheRunnerWould) {
  db_.Run(
      "INSERT INTO shop.thing (id, version) VALUES ('a', 2);"
      "INSERT INTO lockstep_state.key_state (generation, aggregate_key, settled_version, "
      "blocked_version) SELECT generation, '/' || k, s, b FROM lockstep_state.slots, (VALUES "
      "('a', 2, NULL), ('b', 4, 5)) AS v(k, s, b)");
  // By its own file it parks, for a merge wants its predecessor.
  const TempFile merging("group.yaml",
                         absl::StrReplaceAll(Yaml("[big, name]"), {{"replace:", "merge:"}}));
  const TempFile event("event.json", fmt::format("[{}, {}, {}, {}, {}]", Made("a", 4), Made("a", 3),
                                                 Made("a", 5), Made("b", 6), Made("new", 7)));
  const std::string command =
      fmt::format("projection explain {} {} {}", merging.path(), event.path(), WithDatabase());
  const Answer answer = Ctl(command + " --json");
  ASSERT_EQ(answer.status, 0) << answer.errors;
  const Json json = Json::parse(answer.out);
  EXPECT_EQ(json[0]["waits"], "version 3 of its aggregate has not come");
  EXPECT_FALSE(json[0]["rows"][0].contains("guard")) << "nothing is written now";
  EXPECT_EQ(json[1]["waits"], nullptr);
  EXPECT_EQ(json[1]["rows"][0]["guard"], "apply");
  EXPECT_EQ(json[2]["waits"], nullptr) << "version 4, which waited, was released by version 3";
  EXPECT_EQ(json[3]["waits"], "version 5 of its aggregate is a dead letter");
  EXPECT_EQ(json[4]["waits"], nullptr) << "the first version seen is the baseline";
  EXPECT_THAT(Ctl(command).out,
              HasSubstr("Made a version 4: would be parked, for version 3 of its aggregate has not "
                        "come"));
  // By its settings it does not.
  const TempFile applying("group.yaml",
                          "settings: {on_gap: apply}\n" +
                              absl::StrReplaceAll(Yaml("[big, name]"), {{"replace:", "merge:"}}));
  const Answer applied = Ctl(fmt::format("projection explain {} {} {} --json", applying.path(),
                                         event.path(), WithDatabase()));
  EXPECT_EQ(Json::parse(applied.out)[0]["waits"], nullptr) << applied.errors;
  EXPECT_NE(Json::parse(applied.out)[3]["waits"], nullptr)
      << "a dead letter it waits for all the same";
}

// A repair's word that the source has no such row: it goes, also if no event ever wrote it, and
// what comes after it is news.
TEST_F(ExplainCommand, KnowsThatAGhostLeavesNoVersion) {
  db_.Run(
      "ALTER TABLE shop.thing ADD deleted_at timestamptz;"
      "INSERT INTO shop.thing (id, version) VALUES ('a', 99), ('b', 100)");
  const auto ghost = [](const std::string& id) {
    return Made(id, 99,
                R"(, "attributes": {"lockstep_kind": "snapshot", "lockstep_overwrite": "true",)"
                R"( "lockstep_absent": "true"})");
  };
  const std::string events = fmt::format("[{}, {}, {}, {}, {}, {}]", ghost("a"), ghost("a"),
                                         Made("a", 1), ghost("b"), ghost("c"), Made("c", 1));
  for (const bool soft : {false, true}) {
    const TempFile group(
        "group.yaml", Yaml("[big, name]", soft ? "      Gone: delete\n    deleted_at: deleted_at\n"
                                               : "      Gone: delete\n"));
    const TempFile event("event.json", events);
    const Answer answer = Ctl(fmt::format("projection explain {} {} {} --json", group.path(),
                                          event.path(), WithDatabase()));
    ASSERT_EQ(answer.status, 0) << answer.errors;
    const Json json = Json::parse(answer.out);
    const auto guard = [&](int nth) {
      const Json& row = json[nth]["rows"][0];
      return fmt::format("{} {}", row["guard"].get<std::string>(), row["stored_version"].dump());
    };
    EXPECT_EQ(guard(0), "apply 99");
    EXPECT_EQ(guard(1), soft ? "superseded 0" : "superseded null") << "it is gone";
    EXPECT_EQ(guard(2), soft ? "apply 0" : "apply null");
    EXPECT_EQ(guard(3), "superseded 100") << "a newer one stays";
    EXPECT_EQ(guard(4), "superseded null");
    EXPECT_EQ(guard(5), "apply null");
    const Json& columns = json[0]["rows"][0]["columns"];
    EXPECT_EQ(columns.contains("version"), soft) << columns;
    if (soft) {
      EXPECT_EQ(columns["version"], "0");
    }
  }
}

TEST_F(ExplainCommand, LooksAtTheTableWhereNothingIsDeletedHard) {
  db_.Run("ALTER TABLE shop.thing ALTER COLUMN id TYPE uuid USING id::uuid");
  const std::string id = "6f0c2f5e-7d0c-4b52-9f0c-1f2e3d4c5b6a";
  db_.Run(fmt::format("INSERT INTO shop.thing (id, version) VALUES ('{}', 4)", id));
  const TempFile group("group.yaml", Yaml("[big]"));
  const TempFile event(
      "event.json",
      fmt::format("[{}, {}]", Made("6F0C2F5E-7D0C-4B52-9F0C-1F2E3D4C5B6A", 4), Made("x", 1)));
  const Answer answer = Ctl(fmt::format("projection explain {} {} --database '{}'", group.path(),
                                        event.path(), db_.url()));
  EXPECT_EQ(answer.status, 0) << answer.errors;
  EXPECT_THAT(answer.out, HasSubstr("version 4 is stored: a conflict"));
  EXPECT_THAT(answer.out, HasSubstr("would be a dead letter: "));
}

TEST_F(ExplainCommand, NamesASchemaThatHoldsNoState) {
  const Answer answer =
      Explain(Made("a", 1), fmt::format("--database '{}' --state-schema shop", db_.url()));
  EXPECT_EQ(answer.status, 1);
  EXPECT_THAT(answer.errors, HasSubstr("schema shop holds no state of a service"));
}

TEST_F(ProjectionCommand, AcceptTakesFieldsAsTheyAreNow) {
  testing::TestDatabase db;
  auto connection = db.Connect();
  ASSERT_TRUE(projections::MigrateState(*connection).ok());
  db.Run(
      "CREATE SCHEMA shop; CREATE TABLE shop.thing (id text PRIMARY KEY, big bigint,"
      " version bigint NOT NULL);"
      "INSERT INTO lockstep_state.projection_fields VALUES"
      " ('shop', 'shop.Made', 'big', '7', 'int64')");
  const TempFile group("group.yaml", Yaml("[big]"));
  const std::string state = fmt::format("--database '{}' --state-schema lockstep_state", db.url());
  const Answer before = Ctl(fmt::format("projection check {} {}", group.path(), state));
  EXPECT_EQ(before.status, 1);
  EXPECT_THAT(before.out, HasSubstr("field big of shop.Made was renumbered (int64, number 7)"));

  EXPECT_THAT(Ctl("projection accept " + group.path()).errors, HasSubstr("--state-schema NAME"));
  const Answer unasked = Ctl(fmt::format("projection accept {} {}", group.path(), state));
  EXPECT_EQ(unasked.status, 1);
  EXPECT_THAT(unasked.errors, HasSubstr("Repeat with --yes"));
  EXPECT_EQ(Ctl(fmt::format("projection check {} {}", group.path(), state)).status, 1);

  const Answer accepted =
      Ctl(fmt::format("projection accept {} {} --yes --json", group.path(), state));
  EXPECT_EQ(accepted.status, 0) << accepted.errors;
  EXPECT_EQ(Json::parse(accepted.out)["group"], "shop");
  EXPECT_EQ(Ctl(fmt::format("projection check {} {}", group.path(), state)).status, 0);
}

TEST(SchemaCommand, DiffListsCompatibleAndBreakingChanges) {
  const std::string head = "syntax = \"proto3\"; package t; ";
  const auto before = DescriptorsOf(head + "message M { string a = 1; }");
  const auto added = DescriptorsOf(head + "message M { string a = 1; int64 b = 2; }");
  const auto broken = DescriptorsOf(head + "message M { int64 a = 1; }");
  const auto diff = [](const auto& one, const auto& two, const char* options = "") {
    return Ctl(fmt::format("schema diff {} {} {}", one->path(), two->path(), options));
  };
  const Answer same = diff(before, before);
  EXPECT_EQ(same.status, 0);
  EXPECT_EQ(same.out, "no change\n");
  const Answer compatible = diff(before, added);
  EXPECT_EQ(compatible.status, 0);
  EXPECT_EQ(compatible.out, "compatible t.M.b: added (int64, number 2)\n");
  const Answer breaking = diff(before, broken);
  EXPECT_EQ(breaking.status, 1);
  EXPECT_EQ(breaking.out, "breaking   t.M.a: retyped from string to int64\n");
  EXPECT_THAT(breaking.errors, HasSubstr("1 breaking change: give the topic a new version"));
  const Json json = Json::parse(diff(before, broken, "--json").out);
  EXPECT_EQ(json["breaking"], 1);
  EXPECT_EQ(json["changes"][0]["element"], "t.M.a");
  const Answer none = Ctl(fmt::format("schema diff {} /nowhere.pb", before->path()));
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.errors, HasSubstr("/nowhere.pb"));
}

}  // namespace
}  // namespace lockstep::ctl
