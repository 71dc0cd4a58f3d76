#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "platform/status.h"
#include "projections/declare/group_file.h"
#include "projections/decode/descriptors.h"
#include "projections/testing/test_group.h"
#include "projections/tools/ddl.h"
#include "projections/tools/explain.h"
#include "projections/tools/schema_diff.h"

// What lockstepctl projection and schema are made of, and the page that describes it all.
namespace lockstep::projections {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

GroupPlan Plan(const std::string& file) {
  GroupDeclaration declaration;
  auto plan = LoadPlan(file, {}, &declaration);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

TEST(Ddl, PrintsTheEngagementExamplesTables) {
  const std::string folder = LOCKSTEP_EXAMPLES "/engagement/";
  const std::string sql = ReadFile(folder + "read_model.sql");
  EXPECT_EQ(CreateTables(Plan(folder + "engagement.yaml")), sql.substr(sql.find('\n') + 1));
}

TEST(Ddl, InfersTypes) {
  const auto descriptors = DescriptorsOf(
      "syntax = \"proto3\"; package t; import \"google/protobuf/timestamp.proto\";"
      "message M { string id = 1; uint64 u = 2; repeated int64 l = 3; map<string, string> m = 4;"
      " google.protobuf.Timestamp at = 5; bytes raw = 6; }");
  const TempFile file(
      "ddl.yaml",
      "group: g\nsubscription: s\ndescriptors: " + descriptors->path() +
          "\nprojections:\n  - name: p\n    table: x.\"Odd Name\"\n    key: {id: {field: id, type: "
          "uuid}}\n    version: v\n    deleted_at: gone\n    events:\n      M:\n        replace:\n"
          "          u: u\n          l: l\n          m: m\n          at: at\n          raw: raw\n"
          "          flag: {value: true}\n          n: {value: 7}\n          s: {value: seven}\n");
  EXPECT_EQ(
      CreateTables(Plan(file.path())),
      "CREATE SCHEMA IF NOT EXISTS x;\n\n"
      "CREATE TABLE x.\"Odd Name\" (\n  id uuid NOT NULL,\n  u numeric(20,0),\n  l bigint[],\n"
      "  m jsonb,\n  at timestamptz,\n  raw bytea,\n  flag boolean,\n  n bigint,\n  s text,\n"
      "  v bigint NOT NULL,\n  gone timestamptz,\n  PRIMARY KEY (id)\n);\n");
}

// What `lockstepctl dead-letters show --payload` prints.
TEST(PayloadText, DecodesProtobufWithTheMessageThatTheFileNames) {
  const GroupPlan plan = Plan(LOCKSTEP_EXAMPLES "/engagement/engagement.yaml");
  const std::string liked =
      "\x0a\x01"
      "a\x12\x01v";
  const auto text = [&](const std::string& type, const std::string& payload,
                        const std::string& content_type) {
    return PayloadAsJson(plan, MakeEvent(type, "a/v", 1, payload, content_type));
  };
  EXPECT_EQ(text("engagement.events.Liked", liked, "application/protobuf"),
            R"({"user_id":"a","video_id":"v"})");
  EXPECT_EQ(text("engagement.events.Liked", "\xff", "application/protobuf"), std::nullopt);
  EXPECT_EQ(text("engagement.events.Unknown", liked, "application/protobuf"), std::nullopt);
  EXPECT_EQ(text("engagement.events.Unknown", "{}", "application/json"), "{}");
}

TEST(Explain, SaysWhatAnEventWouldWrite) {
  const GroupProjector projector(Plan(LOCKSTEP_EXAMPLES "/engagement/engagement.yaml"));
  const TempFile file("event.json", R"([
    {"event_type": "engagement.events.Watched", "aggregate_id": "a/v", "version": 4,
     "payload": {"user_id": "a", "video_id": "v", "seconds": 9}},
    {"event_type": "engagement.events.Liked", "aggregate_id": "a/v", "version": "5",
     "payload": "CgFhEgF2"}])");
  const auto events = ReadEventFile(file.path());
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_EQ(events->size(), 2);
  const auto watched = Explain(projector, (*events)[0]);
  ASSERT_TRUE(watched.ok()) << watched.status();
  ASSERT_EQ(watched->size(), 2);
  EXPECT_EQ((*watched)[0].operation, "merge");
  EXPECT_THAT((*watched)[0].key, ElementsAre(Pair("user_id", "a"), Pair("video_id", "v")));
  EXPECT_THAT((*watched)[0].columns, ElementsAre(Pair("version", "4"), Pair("updated_at", "now")));
  EXPECT_THAT((*watched)[0].absent, ElementsAre("watched_seconds", "liked"));
  EXPECT_EQ((*watched)[1].operation, "increment");
  EXPECT_THAT((*watched)[1].columns, ElementsAre(Pair("views", "1"), Pair("watch_seconds", "9"),
                                                 Pair("updated_at", "now")));
  const auto liked = Explain(projector, (*events)[1]);
  ASSERT_TRUE(liked.ok()) << liked.status();
  EXPECT_THAT((*liked)[0].columns[0], Pair("liked", "true"));
}

TEST(Explain, RefusesAnEventFileThatIsNone) {
  const auto words = [](const std::string& text) {
    const TempFile file("event.json", text);
    return std::string(MessageOf(ReadEventFile(file.path()).status()));
  };
  EXPECT_THAT(words("{"), HasSubstr("is not JSON"));
  EXPECT_THAT(words("{}"), HasSubstr("event 1: 'event_type' is missing"));
  EXPECT_THAT(words(R"({"event_typ": "x"})"), HasSubstr("did you mean 'event_type'?"));
  EXPECT_THAT(words(R"({"event_type": "x", "payload": "?"})"), HasSubstr("base64"));
  EXPECT_THAT(std::string(MessageOf(ReadEventFile("/nowhere").status())), HasSubstr("/nowhere"));
}

std::vector<std::string> Diff(const std::string& before, const std::string& after) {
  const std::string head = "syntax = \"proto3\"; package t; ";
  const auto old_set = DescriptorsOf(head + before);
  const auto new_set = DescriptorsOf(head + after);
  Descriptors old_types;
  Descriptors new_types;
  EXPECT_TRUE(old_types.LoadFile(old_set->path()).ok());
  EXPECT_TRUE(new_types.LoadFile(new_set->path()).ok());
  std::vector<std::string> lines;
  for (const SchemaChange& change : DiffSchemas(old_types, new_types)) {
    lines.push_back(
        fmt::format("{}{}: {}", change.breaking ? "! " : "", change.element, change.what));
  }
  return lines;
}

TEST(SchemaDiff, TellsCompatibleFromBreaking) {
  EXPECT_THAT(Diff("message M { string a = 1; }", "message M { string a = 1; }"), ElementsAre());
  EXPECT_THAT(
      Diff("message M { string a = 1; }", "message M { string a = 1; int64 b = 2; } message N {}"),
      UnorderedElementsAre("t.M.b: added (int64, number 2)", "t.N: message added"));
  EXPECT_THAT(Diff("message M { string a = 1; } message N {}", "message M { }"),
              UnorderedElementsAre("! t.M.a: removed", "! t.N: message removed"));
  EXPECT_THAT(Diff("message M { string a = 1; }", "message M { string a = 2; }"),
              ElementsAre("! t.M.a: renumbered from 1 to 2"));
  EXPECT_THAT(Diff("message M { string a = 1; }", "message M { string b = 1; }"),
              ElementsAre("! t.M.a: renamed to b: JSON and mappings go by name"));
  EXPECT_THAT(Diff("message M { int32 a = 1; }", "message M { repeated int64 a = 1; }"),
              ElementsAre("! t.M.a: retyped from int32 to repeated int64"));
  EXPECT_THAT(
      Diff("message M { int32 a = 1; optional int32 b = 2; }",
           "message M { optional int32 a = 1; int32 b = 2; }"),
      UnorderedElementsAre("t.M.a: is optional now: absence can be told from the default",
                           "! t.M.b: is no longer optional: absent and default look the same"));
  EXPECT_THAT(Diff("message M { string a = 1; }", "message M { oneof o { string a = 1; } }"),
              ::testing::Contains("! t.M.a: moved into oneof o"));
  EXPECT_THAT(Diff("enum E { A = 0; B = 1; C = 2; }", "enum E { A = 0; C = 3; D = 4; }"),
              UnorderedElementsAre("! t.E.B: value removed", "! t.E.C: renumbered from 2 to 3",
                                   "t.E.D: value added (number 4)"));
  EXPECT_THAT(Diff("message M { message I { string a = 1; } I i = 1; map<string, int32> m = 2; }",
                   "message M { message I { int64 a = 1; } I i = 1; map<string, int64> m = 2; }"),
              UnorderedElementsAre("! t.M.m: retyped from map<string, int32> to map<string, int64>",
                                   "! t.M.I.a: retyped from string to int64"));
}

TEST(Documentation, ShowsFilesThatLoad) {
  const std::string page = ReadFile(LOCKSTEP_SOURCE "/docs/projections.md") +
                           ReadFile(LOCKSTEP_SOURCE "/docs/modelling.md");
  int loaded = 0;
  for (size_t at = page.find("```yaml\ngroup:"); at != std::string::npos;
       at = page.find("```yaml\ngroup:", at + 1)) {
    const size_t start = at + 8;
    std::string yaml = page.substr(start, page.find("```", start) - start);
    const std::string descriptors = ": video_events.pb";
    if (const size_t found = yaml.find(descriptors); found != std::string::npos) {
      yaml.replace(found, descriptors.size(), ": " LOCKSTEP_EXAMPLES "/catalog/video_events.pb");
    }
    const auto group = LoadText(yaml);
    EXPECT_TRUE(group.ok()) << group.status() << "\n" << yaml;
    ++loaded;
  }
  EXPECT_GE(loaded, 5);
}

}  // namespace
}  // namespace lockstep::projections
