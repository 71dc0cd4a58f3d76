#include "projections/declare/group_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"
#include "projections/testing/test_group.h"

// What is refused before the first message: every mistake with its place and its cure.
namespace lockstep::projections {
namespace {

using ::testing::HasSubstr;

constexpr char kProto[] = R"(
syntax = "proto3";
package shop;
import "google/protobuf/duration.proto";
enum Size { SMALL = 0; LARGE = 1; }
message Owner { string name = 1; }
message Made {
  string id = 1;
  int64 price = 2;
  Size size = 3;
  Owner owner = 4;
  repeated string tags = 5;
  map<string, int64> stock = 6;
  google.protobuf.Duration age = 7;
}
message Wrap { oneof body { Made made = 1; } }
)";

TEST(Mapping, IsTheSameUnlessEventsBecomeOtherRows) {
  const auto mapping = [](const std::string& columns, const std::string& head) {
    const TempFile file(
        "group.yaml", "group: shop\n" + head +
                          "projections:\n  - name: things\n    table: shop.thing\n    key: id\n    "
                          "version: version\n    events:\n      Made:\n        replace: {" +
                          columns + "}\n");
    const auto loaded = LoadGroup(file.path());
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded->projector->Mapping();
  };
  const std::string before = mapping("a: x, b: y", "subscription: s\n");
  EXPECT_EQ(before.size(), 16U);
  EXPECT_EQ(mapping("b: y,   a: x", "# words\nsubscription: other\nsettings: {lanes: 2}\n"),
            before);
  EXPECT_NE(mapping("a: x, b: x", "subscription: s\n"), before);
  EXPECT_NE(mapping("a: x, b: y", "subscription: s\nundeclared_events: ignore\n"), before);
}

// A sound file, of which each case spoils one line.
std::string Yaml(const std::string& event, const std::string& table_keys = "",
                 const std::string& group_keys = "") {
  return "group: shop\nsubscription: s\ndescriptors: %DESCRIPTORS%\n" + group_keys +
         "projections:\n  - name: things\n    table: shop.thing\n    key: id\n" +
         (table_keys.empty() ? "    version: version\n" : table_keys) + "    events:\n" + event;
}

class RefusalTest : public ::testing::Test {
 protected:
  // The status's words, with the file's name as FILE.
  std::string Refusal(const std::string& yaml) {
    const TempFile file("group.yaml", [&] {
      std::string text = yaml;
      const std::string mark = "%DESCRIPTORS%";
      if (const size_t at = text.find(mark); at != std::string::npos) {
        text.replace(at, mark.size(), descriptors_->path());
      }
      return text;
    }());
    const auto loaded = LoadGroup(file.path());
    if (loaded.ok()) return "OK";
    std::string words(MessageOf(loaded.status()));
    for (size_t at = words.find(file.path()); at != std::string::npos;
         at = words.find(file.path())) {
      words.replace(at, file.path().size(), "FILE");
    }
    return words;
  }

  std::unique_ptr<TempFile> descriptors_ = DescriptorsOf(kProto);
};

TEST_F(RefusalTest, TakesASoundFile) {
  EXPECT_EQ(Refusal(Yaml("      Made: {replace: [price, size]}\n")), "OK");
}

struct Mistake {
  const char* name;
  std::string yaml;
  std::string words;
};

TEST_F(RefusalTest, NamesPlaceAndCure) {
  const std::vector<Mistake> mistakes = {
      {"not YAML", "group: [\n", "FILE:2:1: not YAML"},
      {"not a map", "- 1\n", "FILE:1:1: group file: a map of keys is wanted here"},
      {"unknown key", "grup: x\n",
       "FILE:1:1: group file: unknown key 'grup'; did you mean 'group'?"},
      {"no subscription", "group: x\nprojections: []\n",
       "FILE:1:1: 'subscription' is missing; name the Pub/Sub subscription"},
      {"no projections", "group: x\nsubscription: y\n", "FILE:1:1: 'projections' is missing"},
      {"missing descriptor set",
       "group: x\nsubscription: y\ndescriptors: nowhere.pb\nprojections: []\n",
       "FILE:3:14: descriptor set"},
      {"twice", Yaml("      Made: {replace: [price]}\n      Made: {replace: [price]}\n"),
       "FILE:11:7: events: key 'Made' stands here twice; keep one"},
      {"unknown message", Yaml("      Made: {replace: [price], message: shop.Mode}\n"),
       "FILE:10:41: message shop.Mode is not in the descriptor sets; did you mean shop.Made?"},
      {"no message for the event", Yaml("      Sold: {replace: [price]}\n"),
       "FILE:10:7: no message named Sold is in the descriptor sets; say which with message:"},
      {"unknown field", Yaml("      Made: {replace: [prise]}\n"),
       "FILE:10:24: message shop.Made has no field 'prise'; did you mean 'price'?"},
      {"unknown nested field", Yaml("      Made: {replace: {o: owner.nme}}\n"),
       "FILE:10:27: message shop.Owner has no field 'nme'; did you mean 'name'?"},
      {"path through a scalar", Yaml("      Made: {replace: {o: price.x}}\n"),
       "'price' can't be followed into price.x: it is not a message"},
      {"path through a map", Yaml("      Made: {replace: {o: stock.x}}\n"),
       "it is a map; map 'stock' itself (as: jsonb)"},
      {"unknown operation", Yaml("      Made: {replase: [price]}\n"),
       "FILE:10:14: event Made: unknown key 'replase'; did you mean 'replace'?"},
      {"unknown operation, short", Yaml("      Made: delte\n"),
       "FILE:10:13: 'delte' is no operation; did you mean 'delete'?"},
      {"two operations", Yaml("      Made: {replace: [price], merge: [size]}\n"),
       "FILE:10:39: replace and merge can't both be given"},
      {"no operation", Yaml("      Made: {when: {field: price, present: true}}\n"),
       "FILE:10:13: event Made: an operation is missing"},
      {"replace without columns", Yaml("      Made: replace\n"), "replace needs columns"},
      {"increment without columns", Yaml("      Made: {increment: }\n"),
       "FILE:10:7: increment needs columns; write increment: {column: field}"},
      {"increment with no column", Yaml("      Made: {increment: {}}\n"),
       "FILE:10:7: increment needs columns"},
      {"mix",
       Yaml("      Made: {replace: [price]}\n      Made2: {message: shop.Made, "
            "increment: {n: {value: 1}}}\n"),
       "FILE:11:14: increment can't stand beside replace, merge or delete in one table"},
      {"no version", Yaml("      Made: {replace: [price]}\n", "    updated_at: u\n"),
       "FILE:5:5: 'version' is missing; name the column that holds the row's version"},
      {"version of a counting table", Yaml("      Made: {increment: {n: {value: 1}}}\n"),
       "FILE:8:14: a counting table has no version"},
      {"no key",
       "group: x\nsubscription: y\nprojections:\n  - name: a\n    table: a.b\n"
       "    version: v\n    events: {E: delete}\n",
       "FILE:4:5: 'key' is missing; name the table's key columns"},
      {"key that is now",
       "group: x\nsubscription: y\nprojections:\n  - name: a\n    table: a.b\n"
       "    version: v\n    key: {at: {now: true}}\n    events:\n      E: {replace: [c]}\n",
       "FILE:9:7: key column at is now, which is another row each time an event is delivered"},
      {"key of the event and not of the aggregate",
       "group: x\nsubscription: y\nprojections:\n  - name: a\n    table: a.b\n"
       "    version: v\n    key: {id: {attribute: event_id}}\n    events:\n      E: {replace: "
       "[c]}\n"
       "      F: {merge: [c]}\n",
       "FILE:10:7: key column id is the event's event_id, which no two events of an aggregate "
       "share"},
      {"aggregate of a counting table",
       Yaml("      Made: {increment: {n: {value: 1}}}\n", "    aggregate: owner\n"),
       "FILE:8:16: a counting table is fed by many aggregates; leave aggregate out"},
      {"no events", Yaml("      {}\n"), "'events' is missing; name at least one event type"},
      {"bad table",
       "group: x\nsubscription: y\nprojections:\n  - {name: a, table: t, key: k, "
       "version: v, events: {E: delete}}\n",
       "FILE:4:22: "},
      {"as: number of no enum", Yaml("      Made: {replace: {p: {field: price, as: number}}}\n"),
       "FILE:10:46: field price: as: number is for enums, and it is int64"},
      {"as: seconds of no Duration",
       Yaml("      Made: {replace: {p: {field: price, as: seconds}}}\n"),
       "as: seconds is for Duration"},
      {"as: array of a scalar", Yaml("      Made: {replace: {p: {field: price, as: array}}}\n"),
       "as: array is for repeated scalars"},
      {"unknown as", Yaml("      Made: {replace: {p: {field: size, as: nummer}}}\n"),
       "as: 'nummer' is none of name, number, seconds, jsonb, array; did you mean 'number'?"},
      {"two sources", Yaml("      Made: {replace: {p: {field: price, value: 1}}}\n"),
       "'field' and 'value' can't both be given; keep one"},
      {"no source", Yaml("      Made: {replace: {p: {as: name}}}\n"),
       "one of field, attribute, value, now is wanted here"},
      {"negate elsewhere", Yaml("      Made: {replace: {p: {field: price, negate: true}}}\n"),
       "negate belongs to increment"},
      {"columns of a hard delete", Yaml("      Made: {delete: {p: price}}\n"),
       "FILE:10:23: a hard delete writes no columns"},
      {"bookkeeping mapped", Yaml("      Made: {replace: {version: price}}\n"),
       "FILE:10:24: column version is written by itself; leave it out here"},
      {"condition without test", Yaml("      Made: {replace: [price], when: {field: size}}\n"),
       "FILE:10:38: one of equals, not_equals, in, present is wanted here"},
      {"enum value that is none",
       Yaml("      Made: {replace: [price], when: {field: size, equals: HUGE}}\n"),
       "FILE:10:60: enum shop.Size has no value HUGE; it has SMALL, LARGE"},
      {"on_gap", Yaml("      Made: {merge: [price], on_gap: wait}\n"),
       "FILE:10:38: on_gap: 'wait' is neither park nor apply"},
      {"schema_version", Yaml("      Made: {merge: [price], schema_version: two}\n"),
       "schema_version: 'two' is not a number"},
      {"all ignored", Yaml("      Made: ignore\n"),
       "projection things ignores every event; give it one that writes"},
      {"unknown oneof",
       Yaml("      Made: {replace: [price]}\n", "",
            "envelope: {message: shop.Wrap, oneof: bodies}\n"),
       "FILE:4:39: message shop.Wrap has no oneof 'bodies'; it has body"},
      {"envelope without the event",
       Yaml("      Owner: {replace: {n: name}, key: {id: name}}\n", "",
            "envelope: {message: shop.Wrap, oneof: body}\n"),
       "FILE:11:7: the envelope shop.Wrap has no shop.Owner in its oneof body"},
      {"key field missing", Yaml("      Owner: {replace: {n: name}}\n"),
       "message shop.Owner has no field 'id'"},
      {"undeclared", Yaml("      Made: {replace: [price]}\n", "", "undeclared_events: drop\n"),
       "FILE:4:20: undeclared_events: 'drop' is neither ignore nor dead_letter"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(Refusal(mistake.yaml), HasSubstr(mistake.words)) << mistake.name;
  }
}

std::unique_ptr<GroupDeclaration> Declared(const std::string& projections) {
  auto loaded = LoadText("group: g\nsubscription: s\nprojections:\n" + projections, "",
                         TestGroup::DefaultOptions());
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? std::make_unique<GroupDeclaration>(*std::move(loaded)) : nullptr;
}

TEST(GroupFile, OnGapOfAProjectionHoldsForADeleteInOneWord) {
  static constexpr char kThings[] =
      "  - {{name: a, table: s.a, key: id, version: v{}, events: {{Made: {{replace: [x]}}, Gone: "
      "delete}}}}\n";
  for (const bool parks : {false, true}) {
    const auto group = Declared(fmt::format(kThings, parks ? ", on_gap: park" : ""));
    ASSERT_TRUE(group);
    for (const char* const type : {"Made", "Gone"}) {
      EXPECT_EQ(group->projector->ParksOnGap(MakeEvent(type, "id", 3, "")), parks) << type;
    }
  }
}

TEST(GroupFile, ADeleteLeavesNothingWhereEveryTableThatMergesLosesItsRow) {
  static constexpr char kThings[] =
      "  - {{name: {0}, table: s.{0}, key: id, version: v, events: {{Made: {{replace: [x]}}, "
      "Changed: {{merge: [x]}}, Gone: {1}}}}}\n";
  const auto leaves_nothing = [](const std::string& projections, const char* type = "Gone") {
    const auto group = Declared(projections);
    return group && group->projector->LeavesNothing(MakeEvent(type, "id", 3, ""));
  };
  const std::string a = fmt::format(kThings, "a", "delete");
  EXPECT_TRUE(leaves_nothing(a));
  EXPECT_TRUE(leaves_nothing(a + fmt::format(kThings, "b", "delete")));
  EXPECT_FALSE(leaves_nothing(a, "Made"));
  EXPECT_FALSE(leaves_nothing(a, "Changed"));
  EXPECT_FALSE(leaves_nothing(a, "Unknown"));
  EXPECT_FALSE(leaves_nothing(a + fmt::format(kThings, "b", "ignore")));
  EXPECT_FALSE(leaves_nothing(a + fmt::format(kThings, "b", "{merge: [x]}")));
  EXPECT_FALSE(leaves_nothing(
      fmt::format(kThings, "a", "[{delete: {}, when: {field: x, equals: y}}, {merge: [x]}]")));
  // A table that no event merges into knows its rows from every event.
  EXPECT_TRUE(leaves_nothing(
      a + "  - {name: b, table: s.b, key: id, version: v, events: {Made: {replace: [x]}}}\n"));
}

TEST_F(RefusalTest, ListsEveryMistakeAtOnce) {
  const std::string words =
      Refusal(Yaml("      Made: {replace: [prise, sise]}\n", "    verson: v\n"));
  EXPECT_THAT(words, HasSubstr("prise"));
  EXPECT_THAT(words, HasSubstr("sise"));
  EXPECT_THAT(words, HasSubstr("unknown key 'verson'; did you mean 'version'?"));
}

TEST_F(RefusalTest, RefusesATableTwice) {
  const std::string projection =
      "  - {name: a, table: x.y, key: id, version: v, events: {Made: {replace: [price]}}}\n";
  EXPECT_THAT(Refusal("group: g\nsubscription: s\ndescriptors: %DESCRIPTORS%\nprojections:\n" +
                      projection + projection),
              HasSubstr("FILE:6:22: table x.y belongs to projection a already"));
}

TEST_F(RefusalTest, RefusesAMissingFile) {
  const auto loaded = LoadGroup("/nowhere/group.yaml");
  EXPECT_THAT(std::string(MessageOf(loaded.status())),
              HasSubstr("/nowhere/group.yaml can't be read"));
}

TEST(GroupFile, HandsTheSettingsToTheRunner) {
  const auto loaded = LoadText(
      "group: g\nsubscription: s\nsettings:\n  lanes: 2\n  retry: {base: 2s}\n  list: [a, b]\n"
      "projections:\n  - {name: a, table: x.y, key: id, version: v, events: {E: delete}}\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->name.value(), "g");
  EXPECT_EQ(loaded->subscription, "s");
  EXPECT_EQ(loaded->settings.at("lanes").text, "2");
  EXPECT_EQ(loaded->settings.at("retry.base").text, "2s");
  EXPECT_EQ(loaded->settings.at("list").text, "a,b");
  EXPECT_THAT(loaded->settings.at("lanes").place, HasSubstr("group.yaml:4:10"));
}

TEST(GroupFile, WritesBesideTheLiveTablesInAShadowSlot) {
  LoadOptions options;
  options.table_suffix = "__shadow";
  const auto loaded = LoadText(
      "group: g\nsubscription: s\nprojections:\n"
      "  - {name: a, table: x.y, key: id, version: v, events: {E: delete}}\n",
      "", options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->projector->Tables(), ::testing::ElementsAre("x.y__shadow"));
}

}  // namespace
}  // namespace lockstep::projections
