#include <fmt/format.h>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "platform/status.h"
#include "projections/testing/test_group.h"
#include "projections/write/group_projector.h"

// From an event to cells, without a database.
namespace lockstep::projections {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kProto[] = R"(
syntax = "proto3";
package t;
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Size { SMALL = 0; LARGE = 1; }
message Inner { string city = 1; int64 zip = 2; }
message All {
  string id = 1;
  int32 i32 = 2; int64 i64 = 3; uint32 u32 = 4; uint64 u64 = 5; sint64 s64 = 6; fixed64 f64 = 7;
  float f = 8; double d = 9; bool b = 10; string s = 11; bytes raw = 12; Size size = 13;
  optional string os = 14; optional int64 oi = 15;
  Inner inner = 16;
  repeated string tags = 17; repeated int64 nums = 18; repeated Inner inners = 19;
  repeated Size sizes = 20;
  map<string, int64> stock = 21;
  oneof choice { string left = 22; Inner right = 23; }
  google.protobuf.Timestamp at = 24;
  google.protobuf.Duration took = 25;
  google.protobuf.Int64Value wi = 26; google.protobuf.StringValue ws = 27;
  google.protobuf.Struct extra = 28;
  google.protobuf.Value any = 29;
  google.protobuf.BytesValue wb = 30; repeated bytes raws = 31;
}
message Wrap { string event_id = 1; oneof body { All all = 5; Inner inner = 6; } }
)";

class MappingTest : public ::testing::Test {
 protected:
  MappingTest() {
    std::ifstream in(descriptors_->path(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    google::protobuf::FileDescriptorSet set;
    EXPECT_TRUE(set.ParseFromString(text.str()));
    for (const auto& file : set.file()) pool_.BuildFile(file);
  }

  void Load(const std::string& handler, const std::string& group_keys = "") {
    auto loaded = LoadText(
        "group: g\nsubscription: s\ndescriptors: %DESCRIPTORS%\n" + group_keys +
            "projections:\n  - name: p\n    table: x.y\n    key: {id: {attribute: aggregate_id}}\n"
            "    version: v\n    events:\n      All:\n" +
            handler,
        descriptors_->path());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    group_ = *std::move(loaded);
  }
  // The columns `c: <spec>` of a replace or merge.
  void LoadColumn(const std::string& spec, const std::string& operation = "merge") {
    Load(fmt::format("        {}: {{c: {}}}\n", operation, spec));
  }

  std::string Encode(const std::string& type, const std::string& text) {
    const auto* descriptor = pool_.FindMessageTypeByName(type);
    std::unique_ptr<google::protobuf::Message> message(factory_.GetPrototype(descriptor)->New());
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, message.get())) << text;
    return message->SerializeAsString();
  }

  // The cells behind the key: text, `null` or `absent`; or the error's words.
  std::vector<std::string> Map(const Event& event) {
    const auto change = group_.projector->Map(event);
    if (!change.ok()) return {std::string(MessageOf(change.status()))};
    const auto& mapped = static_cast<const MappedChange&>(**change);
    std::vector<std::string> cells;
    for (const RowChange& row : mapped.rows) {
      for (size_t i = row.first_cell + 1; i < mapped.cells.size(); ++i) {
        const Cell& cell = mapped.cells[i];
        cells.push_back(cell.state == CellState::kText   ? std::string(mapped.Text(cell))
                        : cell.state == CellState::kNull ? "null"
                                                         : "absent");
      }
    }
    return cells;
  }
  std::vector<std::string> Proto(const std::string& text) {
    return Map(MakeEvent("All", "a", 1, Encode("t.All", text), "application/protobuf"));
  }
  std::vector<std::string> Json(const std::string& text) {
    return Map(MakeEvent("All", "a", 1, text, "application/json"));
  }

  std::unique_ptr<TempFile> descriptors_ = DescriptorsOf(kProto);
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_;
  GroupDeclaration group_;
};

struct Value {
  const char* spec;
  const char* proto;
  const char* json;
  const char* cell;
};

TEST_F(MappingTest, CarriesEveryTypeFromProtobufAndJson) {
  const std::vector<Value> values = {
      {"i32", "i32: -7", R"({"i32":-7})", "-7"},
      {"i64", "i64: 9223372036854775807", R"({"i64":9223372036854775807})", "9223372036854775807"},
      {"i64", "i64: -9223372036854775808", R"({"i64":"-9223372036854775808"})",
       "-9223372036854775808"},
      {"u32", "u32: 4294967295", R"({"u32":4294967295})", "4294967295"},
      {"u64", "u64: 18446744073709551615", R"({"u64":18446744073709551615})",
       "18446744073709551615"},
      {"s64", "s64: -5", R"({"s64":"-5"})", "-5"},
      {"f64", "f64: 12", R"({"f64":12})", "12"},
      {"f", "f: 0.1", R"({"f":0.1})", "0.1"},
      {"d", "d: 1e100", R"({"d":1e+100})", "1e+100"},
      {"b", "b: true", R"({"b":true})", "true"},
      {"s", "s: 'a\"b\\\\c'", R"({"s":"a\"b\\c"})", "a\"b\\c"},
      {"raw", "raw: '\\001\\377'", R"({"raw":"Af8="})", "\\x01ff"},
      {"wb", "wb { value: '\\001\\377' }", R"({"wb":"Af8="})", "\\x01ff"},
      {"raws", "raws: ['\\001', '\\377']", R"({"raws":["AQ==","/w=="]})", R"({"\\x01","\\xff"})"},
      // In JSON bytes are base64, as protobuf's own JSON has them.
      {"{field: raw, as: jsonb}", "raw: '\\001\\377'", R"({"raw":"Af8="})", R"("Af8=")"},
      {"{field: raws, as: jsonb}", "raws: ['\\001', '\\377']", R"({"raws":["AQ==","/w=="]})",
       R"(["AQ==","/w=="])"},
      {"size", "size: LARGE", R"({"size":"LARGE"})", "LARGE"},
      {"size", "size: LARGE", R"({"size":1})", "LARGE"},
      {"{field: size, as: number}", "size: LARGE", R"({"size":"LARGE"})", "1"},
      {"os", "os: ''", R"({"os":""})", ""},
      {"oi", "oi: 0", R"({"oi":0})", "0"},
      {"oi", "", "{}", "absent"},
      {"inner.city", "inner { city: 'Bern' }", R"({"inner":{"city":"Bern"}})", "Bern"},
      {"inner.city", "", R"({"inner":{}})", "absent"},
      {"inner", "inner { city: 'Bern' zip: 3 }", R"({"inner":{"city":"Bern","zip":3}})",
       R"({"city":"Bern","zip":3})"},
      {"tags", "tags: ['a,b', 'c\"d']", R"({"tags":["a,b","c\"d"]})", R"({"a,b","c\"d"})"},
      {"nums", "nums: [1, -2]", R"({"nums":[1,-2]})", R"({"1","-2"})"},
      {"{field: tags, as: jsonb}", "tags: ['a', 'b']", R"({"tags":["a","b"]})", R"(["a","b"])"},
      {"inners", "inners { city: 'x' zip: 1 }", R"({"inners":[{"city":"x","zip":1}]})",
       R"([{"city":"x","zip":1}])"},
      {"sizes", "sizes: [SMALL, LARGE]", R"({"sizes":["SMALL","LARGE"]})", R"({"SMALL","LARGE"})"},
      {"stock", "stock { key: 'a' value: 9007199254740993 }", R"({"stock":{"a":9007199254740993}})",
       R"({"a":9007199254740993})"},
      {"left", "left: 'l'", R"({"left":"l"})", "l"},
      {"left", "right { city: 'r' }", R"({"right":{"city":"r"}})", "absent"},
      {"right.city", "right { city: 'r' }", R"({"right":{"city":"r"}})", "r"},
      {"at", "at { seconds: 1700000000 nanos: 123456000 }",
       R"({"at":"2023-11-14T22:13:20.123456Z"})", "2023-11-14T22:13:20.123456Z"},
      {"{field: took, as: seconds}", "took { seconds: -3 nanos: -500000000 }",
       R"({"took":"-3.5s"})", "-3.5"},
      {"wi", "wi { value: 0 }", R"({"wi":"0"})", "0"},
      {"wi", "", "{}", "absent"},
      {"ws", "ws { value: 'w' }", R"({"ws":"w"})", "w"},
      {"extra", "extra { fields { key: 'k' value { bool_value: true } } }",
       R"({"extra":{"k":true}})", R"({"k":true})"},
      {"any", "any { null_value: NULL_VALUE }", R"({"any":null})", "null"},
      {"any", "any { string_value: 'x' }", R"({"any":"x"})", "\"x\""},
      {"{value: 5}", "", "{}", "5"},
      {"{value: null}", "", "{}", "null"},
      {"{now: true}", "", "{}", "now"},
      {"{attribute: version}", "", "{}", "1"},
      {"{attribute: topic}", "", "{}", "catalog.video"},
      {"{attribute: tenant_id}", "", "{}", "null"},
      {"{attribute: nothing}", "", "{}", "absent"},
      {"{attribute: occurred_at}", "", "{}", "2023-11-14T22:13:20.000000Z"},
      {"{field: i64, omit_default: true}", "i64: 0", "{}", "absent"},
  };
  for (const Value& value : values) {
    LoadColumn(value.spec);
    EXPECT_THAT(Proto(value.proto), ElementsAre(value.cell)) << value.spec << " " << value.proto;
    EXPECT_THAT(Json(value.json), ElementsAre(value.cell)) << value.spec << " " << value.json;
  }
}

TEST_F(MappingTest, KeepsPresenceHonest) {
  LoadColumn("oi");
  EXPECT_THAT(Json(R"({"oi":null})"), ElementsAre("null"));
  EXPECT_THAT(Json("{}"), ElementsAre("absent"));
  // A field without presence is its default in protobuf, and in a snapshot in JSON too.
  LoadColumn("i64", "replace");
  EXPECT_THAT(Proto(""), ElementsAre("0"));
  EXPECT_THAT(Json("{}"), ElementsAre("0"));
  LoadColumn("size", "replace");
  EXPECT_THAT(Json("{}"), ElementsAre("SMALL"));
  LoadColumn("i64", "merge");
  EXPECT_THAT(Json("{}"), ElementsAre("absent"));
}

TEST_F(MappingTest, FillsInAScalarOfAMessageThatIsThere) {
  LoadColumn("inner.city", "replace");
  EXPECT_THAT(Proto("inner { zip: 1 }"), ElementsAre(""));
  EXPECT_THAT(Json(R"({"inner":{"zip":1}})"), ElementsAre(""));
  EXPECT_THAT(Proto(""), ElementsAre("absent"));
  EXPECT_THAT(Json("{}"), ElementsAre("absent"));
  EXPECT_THAT(Json(R"({"inner":[]})"), ElementsAre("absent"));
  LoadColumn("inner.zip", "replace");
  EXPECT_THAT(Json(R"({"inner":{"city":"x"}})"), ElementsAre("0"));
}

TEST_F(MappingTest, TakesTheMembersOfNullForNull) {
  LoadColumn("inner.city");
  EXPECT_THAT(Json(R"({"inner":null})"), ElementsAre("null"));
  EXPECT_THAT(Json(R"({"inner":{"city":null}})"), ElementsAre("null"));
  EXPECT_THAT(Json(R"({"inner":{}})"), ElementsAre("absent"));
  // Of a name that stands twice, the last counts.
  EXPECT_THAT(Json(R"({"inner":null,"inner":{}})"), ElementsAre("absent"));
  EXPECT_THAT(Json(R"({"inner":{"city":"x"},"inner":null})"), ElementsAre("null"));
}

TEST_F(MappingTest, KnowsAnIntegerFromJsonInItsWholeRange) {
  struct Case {
    const char* spec;
    const char* json;
    const char* cell;
  };
  for (const Case& c :
       std::vector<Case>{{"i64", R"({"i64":"9223372036854775807"})", "9223372036854775807"},
                         {"i64", R"({"i64":-9223372036854775808})", "-9223372036854775808"},
                         {"i64", R"({"i64":9007199254740993})", "9007199254740993"},
                         {"i64", R"({"i64":1e3})", "1000"},
                         {"i64", R"({"i64":-2.0})", "-2"},
                         {"u64", R"({"u64":"18446744073709551615"})", "18446744073709551615"},
                         {"wi", R"({"wi":-9223372036854775808})", "-9223372036854775808"},
                         {"nums", R"({"nums":["9223372036854775807",-9223372036854775808]})",
                          R"({"9223372036854775807","-9223372036854775808"})"}}) {
    LoadColumn(c.spec);
    EXPECT_THAT(Json(c.json), ElementsAre(c.cell)) << c.json;
  }
  for (const Case& c : std::vector<Case>{{"i64", R"({"i64":9223372036854775808})", "int64"},
                                         {"i64", R"({"i64":"1.5"})", "int64"},
                                         {"i64", R"({"i64":""})", "int64"},
                                         {"i64", R"({"i64":true})", "int64"},
                                         {"i64", R"({"i64":"0x10"})", "int64"},
                                         {"i64", R"({"i64":{}})", "an object or a list"},
                                         {"i32", R"({"i32":2147483648})", "int32"},
                                         {"u32", R"({"u32":-1})", "uint32"},
                                         {"u64", R"({"u64":-1.0})", "uint64"},
                                         {"nums", R"({"nums":[1,"x"]})", "int64"}}) {
    LoadColumn(c.spec);
    EXPECT_THAT(Json(c.json), ElementsAre(HasSubstr(c.cell))) << c.json;
  }
}

TEST_F(MappingTest, LetsNewFieldsAndEnumNumbersPass) {
  LoadColumn("size");
  EXPECT_THAT(
      Map(MakeEvent("All", "a", 1, std::string("\x68\x2a\xf8\x3f\x01"), "application/protobuf")),
      ElementsAre("42"));
  EXPECT_THAT(Json(R"({"size":"HUGE","new":[{"deep":1}]})"), ElementsAre("HUGE"));
}

TEST_F(MappingTest, OpensTheEnvelope) {
  Load("        replace: {c: s}\n", "envelope: {message: t.Wrap, oneof: body}\n");
  EXPECT_THAT(
      Map(MakeEvent("All", "a", 1, Encode("t.Wrap", "all { s: 'in' }"), "application/protobuf")),
      ElementsAre("in"));
  EXPECT_THAT(Json(R"({"event_id":"e","all":{"s":"in"}})"), ElementsAre("in"));
  EXPECT_THAT(Map(MakeEvent("All", "a", 1, Encode("t.Wrap", "inner { city: 'x' }"),
                            "application/protobuf")),
              ElementsAre(HasSubstr("does not hold a t.All")));
  EXPECT_THAT(Json(R"({"inner":{}})"), ElementsAre(HasSubstr("does not hold a t.All")));
}

// A repair sends the fields of the key, and here there are none: it is the aggregate's id.
TEST_F(MappingTest, AGhostNeedsNoEnvelope) {
  Load("        replace: {c: s}\n", "envelope: {message: t.Wrap, oneof: body}\n");
  for (const char* const payload : {"{}", R"({"all":{}})"}) {
    Event ghost = MakeEvent("All", "a", 1, payload);
    ghost.kind = envelope::EventKind::kSnapshot;
    ghost.overwrite = ghost.absent = true;
    const auto change = group_.projector->Map(ghost);
    ASSERT_TRUE(change.ok()) << change.status();
    const auto& mapped = static_cast<const MappedChange&>(**change);
    ASSERT_EQ(mapped.rows.size(), 1u);
    EXPECT_EQ(mapped.rows[0].operation, Operation::kDelete);
    EXPECT_EQ(mapped.Text(mapped.cells[mapped.rows[0].first_cell]), "a");
    ghost.absent = false;
    EXPECT_EQ(group_.projector->Map(ghost).ok(), std::string_view(payload) != "{}")
        << "a snapshot has something in it";
  }
}

TEST_F(MappingTest, ChoosesByConditionsInOrder) {
  Load(
      "        - {when: {field: size, equals: LARGE}, merge: {c: {value: large}}}\n"
      "        - {when: [{field: oi, present: true}, {field: i32, in: [1, 2]}], merge: {c: s}}\n"
      "        - {when: {attribute: topic, not_equals: catalog.video}, merge: {c: {value: x}}}\n");
  EXPECT_THAT(Proto("size: LARGE oi: 1 i32: 1"), ElementsAre("large"));
  EXPECT_THAT(Proto("oi: 1 i32: 2 s: 'two'"), ElementsAre("two"));
  EXPECT_THAT(Proto("i32: 2"), IsEmpty());
  EXPECT_THAT(Json(R"({"oi":null,"i32":2,"s":"j"})"), ElementsAre("j"));
  EXPECT_THAT(Json(R"({"oi":5,"i32":3})"), IsEmpty());
}

TEST_F(MappingTest, ChoosesBySchemaVersion) {
  Load(
      "        - {schema_version: 1, merge: {c: s}}\n"
      "        - {schema_version: [2, 3], merge: {c: left}}\n");
  Event event = MakeEvent("All", "a", 1, R"({"s":"one","left":"two"})");
  EXPECT_THAT(Map(event), ElementsAre("one"));
  event.schema_version = 3;
  EXPECT_THAT(Map(event), ElementsAre("two"));
  event.schema_version = 4;
  EXPECT_THAT(Map(event), ElementsAre("event type 'All' has no mapping for schema_version 4"));
}

// A column without a time zone would not mind the offset.
TEST_F(MappingTest, CarriesATimeOfJsonInUtc) {
  LoadColumn("at");
  EXPECT_THAT(Json(R"({"at":"2026-01-01T23:30:00.25-05:00"})"),
              ElementsAre("2026-01-02T04:30:00.25Z"));
  EXPECT_THAT(Json(R"({"at":"2026-01-01"})"), ElementsAre("2026-01-01")) << "Postgres judges";
}

TEST_F(MappingTest, CallsTheRestPoison) {
  LoadColumn("s");
  EXPECT_THAT(Map(MakeEvent("All", "a", 1, "\xff\xff", "application/protobuf")),
              ElementsAre("the payload is not a t.All"));
  EXPECT_THAT(Json("{\"s\":"), ElementsAre(HasSubstr("not valid JSON")));
  EXPECT_THAT(Json("[1]"), ElementsAre("the payload is JSON, but not an object"));
  EXPECT_THAT(Json("7"), ElementsAre("the payload is JSON, but not an object"));
  EXPECT_THAT(Json(R"({"s":"a\u0000b"})"), ElementsAre(HasSubstr("NUL")));
  EXPECT_THAT(Proto("s: 'a\\000b'"), ElementsAre(HasSubstr("NUL")));
  EXPECT_THAT(Map(MakeEvent("All", "a", 1, "{}", "text/plain")),
              ElementsAre(HasSubstr("content_type 'text/plain'")));
  EXPECT_THAT(Map(MakeEvent("Other", "a", 1, "{}")),
              ElementsAre(HasSubstr("event type 'Other' is declared in no projection")));
  EXPECT_THAT(Map(MakeEvent("shop.events.All", "a", 1, "{}")),
              ElementsAre(HasSubstr("the file has 'All': did you mean that?")));
  EXPECT_THAT(Json(std::string(500, '[')), ElementsAre(HasSubstr("not an object")));
  EXPECT_THAT(Json("{\"x\":" + std::string(100'000, '[')), ElementsAre(HasSubstr("too deeply")));
  LoadColumn("at");
  EXPECT_THAT(Proto("at { seconds: 999999999999 }"),
              ElementsAre("a Timestamp is outside the years 1 to 9999"));
  LoadColumn("took");
  EXPECT_THAT(Proto("took { seconds: -9223372036854775808 }"),
              ElementsAre(HasSubstr("a Duration is beyond 10,000 years")));
  EXPECT_THAT(Proto("took { seconds: 1 nanos: -1 }"), ElementsAre(HasSubstr("differ in sign")));
  LoadColumn("{field: size, as: number}");
  EXPECT_THAT(Json(R"({"size":"HUGE"})"), ElementsAre(HasSubstr("does not have")));
}

TEST_F(MappingTest, NeverQuotesThePayload) {
  LoadColumn("s");
  EXPECT_THAT(Json("{\"s\":\"secret\"")[0], ::testing::Not(HasSubstr("secret")));
  LoadColumn("{field: size, as: number}");
  EXPECT_THAT(Json(R"({"size":"secret"})")[0], ::testing::Not(HasSubstr("secret")));
}

TEST_F(MappingTest, IgnoresUndeclaredEventsWhenTold) {
  Load("        replace: {c: s}\n", "undeclared_events: ignore\n");
  EXPECT_THAT(Map(MakeEvent("Other", "a", 1, "{}")), IsEmpty());
}

TEST(JsonMapping, NeedsNoDescriptors) {
  const auto loaded = LoadText(
      "group: g\nsubscription: s\nprojections:\n  - name: p\n    table: x.y\n    key: {id: k.id}\n"
      "    version: v\n    events:\n      E: {replace: {n: a.b, j: {field: a, as: jsonb}, "
      "l: {field: list, as: array}}}\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto change = loaded->projector->Map(
      MakeEvent("E", "a", 1,
                R"({"k":{"id":7},"a":{"b":12345678901234567890123.10,"c":[null,{}]},)"
                R"("list":["x",1,null,true,"a\"],[",[1,{"b":2}],12345678901234567890123]})"));
  ASSERT_TRUE(change.ok()) << change.status();
  const auto& mapped = static_cast<const MappedChange&>(**change);
  EXPECT_EQ(mapped.Text(mapped.cells[0]), "7");
  EXPECT_EQ(mapped.Text(mapped.cells[1]), "12345678901234567890123.10");
  EXPECT_EQ(mapped.Text(mapped.cells[2]), R"({"b":12345678901234567890123.10,"c":[null,{}]})");
  EXPECT_EQ(mapped.Text(mapped.cells[3]),
            R"({"x","1",NULL,"true","a\"],[","[1,{\"b\":2}]","12345678901234567890123"})");
}

TEST(JsonMapping, RefusesARowWithoutItsKey) {
  const auto loaded = LoadText(
      "group: g\nsubscription: s\nprojections:\n  - {name: p, table: x.y, key: id, version: v, "
      "events: {E: {replace: [a]}}}\n");
  for (const char* payload : {"{}", R"({"id":null})"}) {
    const auto change = loaded->projector->Map(MakeEvent("E", "a", 1, payload));
    EXPECT_THAT(std::string(MessageOf(change.status())), HasSubstr("key column")) << payload;
  }
}

}  // namespace
}  // namespace lockstep::projections
