#include "sagas/definition/definition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <utility>

#include "platform/status.h"

namespace lockstep::sagas {
namespace {

using ::testing::HasSubstr;

// A file of that text, while it lives.
class File {
 public:
  explicit File(const std::string& text)
      : path_(fmt::format("{}/saga_{}_{}.yaml", ::testing::TempDir(), ::getpid(), ++count_)) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~File() { std::remove(path_.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const std::string& path() const { return path_; }

 private:
  static inline int count_ = 0;
  const std::string path_;
};

absl::StatusOr<Definition> Load(const std::string& yaml) {
  return LoadDefinition(File(yaml).path());
}

// What is said of a file that is refused, with its name as FILE.
std::string Refusal(const std::string& yaml) {
  const File file(yaml);
  const auto loaded = LoadDefinition(file.path());
  if (loaded.ok()) return "OK";
  std::string words(MessageOf(loaded.status()));
  for (size_t at = words.find(file.path()); at != std::string::npos; at = words.find(file.path())) {
    words.replace(at, file.path().size(), "FILE");
  }
  return words;
}

constexpr char kOrder[] = R"(saga: order
version: 3
timeout: 1h
outbox: shop.outbox
steps:
  - name: reserve
    action: sql:shop.reserve_stock
    request: {order: $.input.order_id, items: $.input.items}
    compensate: {action: sql:shop.release_stock, request: {reservation: $.steps.reserve.id}}
  - name: charge
    action: http://127.0.0.1:8080/charge/{$.input.order_id}
    request: {order: $.input.order_id, cents: $.input.total, rate: 1.50, times: 1e3, code: '007', no: no}
    idempotent: false
    timeout: 10s
    retry: {max_attempts: 3, base: 500ms}
    when: $.input.total > 0 and not $.input.free
    concurrency_tag: pay
    compensate: {action: http://127.0.0.1:8080/refund, request: {charge: $.steps.charge.id}, idempotent: true}
  - name: score
    action: fn:risk.score
    concurrency_tag: pay
    settled_by: idempotency_key
  - name: announce
    action: bus:order.placed.v1
    reply: true
    compensate: bus:order.withdrawn.v1
  - name: approve
    action: wait
    timeout: 24h
)";

TEST(LoadDefinition, ReadsWhatIsWritten) {
  const auto loaded = Load(kOrder);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Definition& order = *loaded;
  EXPECT_EQ(order.name, "order");
  EXPECT_EQ(order.version, 3);
  EXPECT_EQ(order.timeout, std::chrono::hours(1));
  EXPECT_EQ(order.on_failure, OnFailure::kCompensate);
  ASSERT_EQ(order.steps.size(), 5u);
  const Step& reserve = order.steps[0];
  EXPECT_EQ(reserve.action.kind, ActionKind::kSql);
  EXPECT_EQ(reserve.action.target, "shop.reserve_stock");
  EXPECT_TRUE(reserve.action.idempotent);
  EXPECT_EQ(reserve.action.timeout, Millis(30'000));
  EXPECT_EQ(reserve.action.retry.max_attempts, 6);
  EXPECT_EQ(reserve.action.retry.jitter_amount, 0.2);
  ASSERT_TRUE(reserve.compensate.has_value());
  EXPECT_EQ(reserve.compensate->request["reservation"], "$.steps.reserve.id");
  const Step& charge = order.steps[1];
  EXPECT_EQ(charge.action.kind, ActionKind::kHttp);
  EXPECT_EQ(charge.action.target, "http://127.0.0.1:8080/charge/{$.input.order_id}");
  EXPECT_FALSE(charge.action.idempotent);
  EXPECT_EQ(charge.action.request["rate"], 1.5);
  EXPECT_EQ(charge.action.request["times"], 1000);
  EXPECT_EQ(charge.action.request["code"], "007");
  EXPECT_EQ(charge.action.request["no"], "no");
  EXPECT_EQ(charge.action.retry.max_attempts, 3);
  EXPECT_EQ(charge.action.retry.base, Millis(500));
  EXPECT_EQ(charge.action.retry.cap, Millis(60'000));
  EXPECT_EQ(charge.when, "$.input.total > 0 and not $.input.free");
  EXPECT_TRUE(charge.compensate->idempotent);
  EXPECT_TRUE(order.steps[2].action.settled_by_key);
  EXPECT_FALSE(order.steps[2].action.idempotent);
  EXPECT_EQ(order.steps[3].action.timeout, Millis(0)) << "a reply is waited for without end";
  EXPECT_EQ(order.steps[3].compensate->timeout, Millis(30'000));
  EXPECT_EQ(order.steps[4].action.timeout, std::chrono::hours(24));
  EXPECT_TRUE(order.Validate().ok()) << order.Validate();
}

TEST(Definition, IsTheSameThroughJsonAndAsAFileOfIt) {
  const Definition order = *Load(kOrder);
  const Json json = order.ToJson();
  const auto back = Definition::FromJson(json);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->ToJson().dump(), json.dump());
  EXPECT_EQ(back->Hash(), order.Hash());
  const auto from_file = Load(json.dump(2));
  ASSERT_TRUE(from_file.ok()) << from_file.status();
  EXPECT_EQ(from_file->Hash(), order.Hash());
  EXPECT_THAT(order.Hash(), ::testing::MatchesRegex("[0-9a-f]{64}"));
}

// As jsonb keeps it: keys by length, then by bytes; numbers as written by Postgres.
Json AsPostgresKeepsIt(const Json& value) {
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& item : value) list.push_back(AsPostgresKeepsIt(item));
    return list;
  }
  if (!value.is_object()) return value;
  std::map<std::pair<size_t, std::string>, Json> sorted;
  for (const auto& item : value.items()) {
    sorted[{item.key().size(), item.key()}] = AsPostgresKeepsIt(item.value());
  }
  Json map = Json::object();
  for (auto& [key, member] : sorted) map[key.second] = std::move(member);
  return map;
}

TEST(Definition, HasOneHashWhateverTheOrderOfKeys) {
  const Definition order = *Load(kOrder);
  EXPECT_EQ(Definition::FromJson(AsPostgresKeepsIt(order.ToJson()))->Hash(), order.Hash());
  const std::string a =
      "saga: s\nversion: 1\nsteps: [{name: a, action: sql:f.g, request: {x: 1, y: {b: 2, c: [1, "
      "2]}}}]";
  const std::string b =
      "steps:\n- request: {y: {c: [1.0, 2e0], b: 2}, x: 1}\n  action: sql:f.g\n  name: a\nversion: "
      "1\nsaga: s";
  EXPECT_EQ(Load(a)->Hash(), Load(b)->Hash());
}

TEST(Definition, HasOneHashWhetherDefaultsAreWrittenOut) {
  const std::string head = "saga: s\nversion: 1\n";
  EXPECT_EQ(
      Load(head + "steps: [{name: a, action: 'http://a.example/'}]")->Hash(),
      Load(head +
           "timeout: 0\non_failure: compensate\nsteps: [{name: a, action: 'http://a.example/', "
           "idempotent: false, timeout: 30000ms, retry: {cap: 1m, factor: 2.0, jitter: 0.2, "
           "base: 1s, max_attempts: 6}}]")
          ->Hash());
}

TEST(Definition, HasAnotherHashWhenItMeansSomethingElse) {
  const std::string head = "saga: s\nversion: 1\nsteps:\n";
  std::set<std::string> hashes;
  const std::vector<std::string> texts = {
      "- {name: a, action: sql:f.g}\n- {name: b, action: sql:f.h}",
      "- {name: b, action: sql:f.h}\n- {name: a, action: sql:f.g}",
      "- {name: a, action: sql:f.g, request: [1, 2]}",
      "- {name: a, action: sql:f.g, request: [2, 1]}",
      "- {name: a, action: sql:f.g, request: ['2', 1]}",
      "- {name: a, action: sql:f.g, request: {}}",
      "- {name: a, action: sql:f.g}",
      "- {name: a, action: sql:f.g, timeout: 31s}",
      "- {name: a, action: sql:f.g, compensate: sql:f.h}",
      "- {name: a, action: sql:f.g, when: 'true'}",
      "- {name: a, action: fn:f.g}",
      "- {name: a, action: fn:f.g, idempotent: true}",
      "- {name: a, action: fn:f.g, settled_by: idempotency_key}",
  };
  for (const std::string& text : texts) hashes.insert(Load(head + text)->Hash());
  EXPECT_EQ(hashes.size(), texts.size());
}

TEST(Definition, KeepsNumbersThatPostgresWritesInOtherDigits) {
  // jsonb writes 1e15 as 1000000000000000 and 1e20 as its digits.
  const Definition definition = *Load(
      "saga: s\nversion: 1\nsteps: [{name: a, action: sql:f.g, request: [1e15, 1e20, -0.0, 0.1, "
      "1.0]}]");
  Json json = definition.ToJson();
  json["steps"][0]["request"] =
      Json::parse("[1000000000000000, 100000000000000000000, 0, 0.1, 1.0]");
  EXPECT_EQ(Definition::FromJson(json)->Hash(), definition.Hash());
}

struct Mistake {
  std::string name;
  std::string yaml;
  std::string says;  // a part of it
};
void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

std::string NameOf(const ::testing::TestParamInfo<Mistake>& mistake) { return mistake.param.name; }

class LoadRefuses : public ::testing::TestWithParam<Mistake> {};

TEST_P(LoadRefuses, WithPlaceAndCure) {
  EXPECT_THAT(Refusal(GetParam().yaml), HasSubstr(GetParam().says)) << GetParam().yaml;
}

std::string Head(const std::string& steps) { return "saga: s\nversion: 1\nsteps:\n" + steps; }
std::string Called(const std::string& keys) {
  return Head("- name: a\n  action: https://a.example/x\n" + keys);
}

INSTANTIATE_TEST_SUITE_P(
    OfTheWhole, LoadRefuses,
    ::testing::Values(
        Mistake{"NoYaml", "saga: [", "FILE:1:1: not YAML"},
        Mistake{"NoMap", "just text", "FILE:1:1: definition: a map of keys is wanted here"},
        Mistake{"Empty", "", "definition: a map of keys is wanted here"},
        Mistake{"UnknownKey", "saga: s\nversion: 1\ntimout: 1h\nsteps: [{name: a, action: wait}]",
                "FILE:3:1: definition: unknown key 'timout'; did you mean 'timeout'?"},
        Mistake{"KeyTwice", "saga: s\nsaga: t\nversion: 1\nsteps: [{name: a, action: wait}]",
                "FILE:2:1: key 'saga' stands here twice; keep one"},
        Mistake{"NoName", "version: 1\nsteps: [{name: a, action: wait}]",
                "FILE:1:1: 'saga' is missing; name the saga"},
        Mistake{"BadName", "saga: Order!\nversion: 1\nsteps: [{name: a, action: wait}]",
                "FILE:1:7: 'Order!' is no name"},
        Mistake{"NameOfDigits", "saga: 12\nversion: 1\nsteps: [{name: a, action: wait}]",
                "FILE:1:7: saga: a text is wanted here; put it in quotes"},
        Mistake{"LongName",
                "saga: " + std::string(65, 'a') + "\nversion: 1\nsteps: [{name: a, action: wait}]",
                "64 characters at most"},
        Mistake{"NoVersion", "saga: s\nsteps: [{name: a, action: wait}]", "'version' is missing"},
        Mistake{"VersionZero", "saga: s\nversion: 0\nsteps: [{name: a, action: wait}]",
                "FILE:2:10: the version is a whole number from 1"},
        Mistake{"VersionText", "saga: s\nversion: '1'\nsteps: [{name: a, action: wait}]",
                "FILE:2:10: version: a whole number is wanted here"},
        Mistake{"VersionHuge", "saga: s\nversion: 5000000000\nsteps: [{name: a, action: wait}]",
                "version: a whole number is wanted"},
        Mistake{"VersionFraction", "saga: s\nversion: 1.5\nsteps: [{name: a, action: wait}]",
                "version: a whole number is wanted"},
        Mistake{"TimeoutNumber",
                "saga: s\nversion: 1\ntimeout: 60\nsteps: [{name: a, action: wait}]",
                "FILE:3:10: timeout: a time such as 30s"},
        Mistake{"TimeoutLong",
                "saga: s\nversion: 1\ntimeout: 367d\nsteps: [{name: a, action: wait}]",
                "FILE:3:10: the longest time is 366d"},
        Mistake{"OnFailure",
                "saga: s\nversion: 1\non_failure: undo\nsteps: [{name: a, action: wait}]",
                "FILE:3:13: 'undo' is neither compensate nor stop"},
        Mistake{"Outbox", "saga: s\nversion: 1\noutbox: outbox\nsteps: [{name: a, action: wait}]",
                "FILE:3:9: "},
        Mistake{"NoSteps", "saga: s\nversion: 1", "'steps' is missing"},
        Mistake{"NullSteps", "saga: s\nversion: 1\nsteps:", "'steps' is missing"},
        Mistake{"EmptySteps", "saga: s\nversion: 1\nsteps: []", "FILE:3:8: there is no step"},
        Mistake{"StepsAMap", "saga: s\nversion: 1\nsteps: {a: wait}",
                "FILE:3:8: steps: a list of steps is wanted"},
        Mistake{"AliasBomb", "a: &a [*a]", "too deep or too large"},
        Mistake{"FlowWithoutQuotes", "saga: {a: $.input.x?}",
                "stands in quotes: '$.input.coupon?'"},
        Mistake{"NoUtf8",
                "saga: s\nversion: 1\nsteps: [{name: a, action: sql:f.g, request: \"\xff\"}]",
                "FILE:"},
        Mistake{"Tag", "saga: !!binary s\nversion: 1\nsteps: [{name: a, action: wait}]",
                "FILE:1:7: tags such as"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    OfSteps, LoadRefuses,
    ::testing::Values(
        Mistake{"StepAText", Head("- wait\n"), "FILE:4:3: step: a map of keys is wanted"},
        Mistake{"NoName", Head("- action: wait\n"), "FILE:4:3: 'name' is missing"},
        Mistake{"NoAction", Head("- name: a\n"), "FILE:4:3: 'action' is missing; write sql:"},
        Mistake{"NameTwice", Head("- {name: a, action: wait}\n- {name: a, action: wait}\n"),
                "FILE:5:10: there is a step a already"},
        Mistake{"UnknownKey", Head("- {name: a, action: wait, compensat: x}\n"),
                "FILE:4:27: step: unknown key 'compensat'; did you mean 'compensate'?"},
        Mistake{"UnknownAction", Head("- {name: a, action: 'sq:f.g'}\n"), "(did you mean 'sql'?)"},
        Mistake{"BareFunction", Head("- {name: a, action: f.g}\n"), "'f.g' is no action"},
        Mistake{"SqlWithoutSchema", Head("- {name: a, action: sql:f}\n"),
                "FILE:4:21: sql: names a function as schema.function"},
        Mistake{"BusWithoutOutbox", Head("- {name: a, action: bus:t}\n"),
                "FILE:4:21: bus: needs an outbox; name it above the steps"},
        Mistake{"BusBlank",
                "saga: s\nversion: 1\noutbox: a.b\nsteps: [{name: a, action: 'bus:a b'}]",
                "bus: names a topic"},
        Mistake{"EventTypeOfDigits",
                "saga: s\nversion: 1\noutbox: a.b\nsteps: [{name: a, action: 'bus:a', event_type: "
                "a.1}]",
                "FILE:4:48: an event type is a name as in protobuf"},
        Mistake{
            "EventTypeEnds",
            "saga: s\nversion: 1\noutbox: a.b\nsteps: [{name: a, action: 'bus:a', event_type: a.}]",
            "an event type is a name as in protobuf"},
        Mistake{"Topic", "saga: s\nversion: 1\noutbox: a.b\nsteps: [{name: a, action: 'bus:A_b'}]",
                "bus: names a topic: a to z"},
        Mistake{"FunctionBlank", Head("- {name: a, action: 'fn:'}\n"), "fn: names a registered"},
        Mistake{"UrlWithPassword", Head("- {name: a, action: 'https://u:p@a.example/'}\n"),
                "it has a user or password"},
        Mistake{"UrlPlaceholderHost", Head("- {name: a, action: 'https://{$.input.host}/x'}\n"),
                "whom we call is not for the input to say"},
        Mistake{"UrlPlaceholderPort",
                Head("- {name: a, action: 'https://a.example:8{$.input.p}/x'}\n"), "FILE:4:21: "},
        Mistake{"UrlBraces", Head("- {name: a, action: 'https://a.example/{id}'}\n"),
                "braces hold a path, as {$.input.order_id}"},
        Mistake{"Timeout", Called("  timeout: soon\n"), "FILE:6:12: timeout: a time such as"},
        Mistake{"TimeoutZero", Called("  timeout: 0\n"),
                "FILE:6:12: a call that may take for ever"},
        Mistake{"Idempotent", Called("  idempotent: yes\n"),
                "FILE:6:15: idempotent: true or false is wanted"},
        Mistake{"IdempotentSql", Head("- {name: a, action: sql:f.g, idempotent: false}\n"),
                "FILE:4:42: sql: is done exactly once"},
        Mistake{"SettledBy", Called("  settled_by: luck\n"), "FILE:6:15: 'luck' is not known"},
        Mistake{"SettledBySql", Head("- {name: a, action: sql:f.g, settled_by: idempotency_key}\n"),
                "only http: and fn: leave a step in doubt"},
        Mistake{"Reply", Called("  reply: true\n"), "FILE:6:10: only bus: waits for a reply"},
        Mistake{"EventType", Called("  event_type: x\n"), "only bus: has an event type"},
        Mistake{"RetryKey", Called("  retry: {max_atempts: 3}\n"), "did you mean 'max_attempts'?"},
        Mistake{"RetryText", Called("  retry: often\n"), "FILE:6:10: retry: a map of keys"},
        Mistake{"Attempts", Called("  retry: {max_attempts: -1}\n"),
                "FILE:6:25: a number from 1 to 1000"},
        Mistake{"Base", Called("  retry: {base: 0}\n"), "FILE:6:17: a time from 1ms"},
        Mistake{"Cap", Called("  retry: {base: 10s, cap: 1s}\n"), "not shorter than base (10s)"},
        Mistake{"Factor", Called("  retry: {factor: 0.5}\n"), "a number from 1 to 100"},
        Mistake{"Jitter", Called("  retry: {jitter: 20}\n"), "a share of the wait"},
        Mistake{"RetryOfWait", Head("- {name: a, action: wait, retry: {base: 1s}}\n"),
                "wait is not tried again"},
        Mistake{"RequestOfWait", Head("- {name: a, action: wait, request: {}}\n"),
                "wait sends nothing"},
        Mistake{"When", Called("  when: $.input.a = 1\n"),
                "FILE:6:9: at character 11: '=' is no comparison; write =="},
        Mistake{"Tag", Called("  concurrency_tag: A B\n"), "FILE:6:20: 'A B' is no tag"},
        Mistake{"CompensateAList", Called("  compensate: []\n"), "compensate: a map of keys"},
        Mistake{"CompensateKey", Called("  compensate: {action: sql:f.g, when: 'true'}\n"),
                "compensate: unknown key 'when'"},
        Mistake{"CompensateNoFunction", Called("  compensate: 'sql:'\n"),
                "FILE:6:15: sql: names a function"},
        Mistake{"CompensateNoAction", Called("  compensate: {request: {}}\n"),
                "FILE:6:15: 'action' is missing"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    OfPaths, LoadRefuses,
    ::testing::Values(
        Mistake{"NoRoot", Called("  request: {a: {b: [1, $.inputs.x]}}\n"),
                "FILE:6:24: $.inputs.x: there is no $.inputs; did you mean 'input'?"},
        Mistake{"BehindOddKeys", Called("  request: {a/b: {'~1': [$.inputs]}}\n"),
                "FILE:6:26: $.inputs: there is no $.inputs"},
        Mistake{"NotAPath", Called("  request: [$.input.a b]\n"),
                "FILE:6:13: '$.input.a b' is no path"},
        Mistake{"OfSaga", Called("  request: $.saga.tennant\n"), "did you mean 'tenant'?"},
        Mistake{"WholeSteps", Called("  request: $.steps\n"), "there is no step ''"},
        Mistake{"UnknownStep",
                Head("- {name: reserve, action: sql:f.g}\n- {name: b, action: sql:f.g, request: "
                     "$.steps.reserv.id}\n"),
                "there is no step 'reserv'; did you mean 'reserve'?"},
        Mistake{
            "LaterStep",
            Head(
                "- {name: a, action: sql:f.g, request: $.steps.b.id}\n- {name: b, action: wait}\n"),
            "step b comes later; put it before this one"},
        Mistake{"Itself", Head("- {name: a, action: sql:f.g, request: $.steps.a.id}\n"),
                "has no result before it is done"},
        Mistake{"ItselfInWhen", Head("- {name: a, action: sql:f.g, when: $.steps.a.id == 1}\n"),
                "has no result before it is done"},
        Mistake{
            "SideBySide",
            Head("- {name: a, action: sql:f.g, concurrency_tag: t}\n- {name: b, action: sql:f.g, "
                 "concurrency_tag: t, request: $.steps.a.id}\n"),
            "runs at the same time"},
        Mistake{"InAnAddress", Head("- {name: a, action: 'https://a.example/{$.steps.b}'}\n"),
                "there is no step 'b'"},
        Mistake{"LaterInCompensation",
                Head("- {name: a, action: sql:f.g, compensate: {action: sql:f.h, request: "
                     "$.steps.b.id}}\n- {name: b, action: wait}\n"),
                "step b comes later"},
        Mistake{"Nul", Called("  request: \"a\\0b\"\n"), "a NUL character"},
        Mistake{"TooLarge", Called("  request: [1e999]\n"),
                "FILE:6:13: a number too large for JSON"}),
    NameOf);

TEST(LoadDefinition, TakesPathsToWhatWillBeThere) {
  EXPECT_EQ(
      Refusal(Head("- {name: a, action: sql:f.g, concurrency_tag: t, compensate: {action: sql:f.h, "
                   "request: [$.steps.a.id, '$.steps.a.gone?', $.saga.id]}}\n"
                   "- {name: b, action: sql:f.g}\n"
                   "- {name: c, action: sql:f.g, concurrency_tag: t, request: {$.keys.are.free: "
                   "[$.steps.a, $.steps.b.x, $.input, $$.x]}, when: $.steps.b.ok}\n")),
      "OK");
}

TEST(LoadDefinition, LetsAPersonUndoAStep) {
  const auto loaded = Load(Called("  compensate: wait\n"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->steps[0].compensate->kind, ActionKind::kWait);
  EXPECT_EQ(loaded->steps[0].compensate->timeout, Millis(0)) << "it is waited for without end";
}

TEST(LoadDefinition, ListsEveryMistakeInTheOrderOfTheFile) {
  EXPECT_EQ(
      Refusal("saga: S\nversion: x\nsteps:\n"
              "- {name: a, action: no}\n"
              "- {name: b, action: wait, wen: 'true'}\n"
              "- {name: c, action: 'https://a.example/', timeout: 1, request: $.input.}\n"),
      "FILE:1:7: 'S' is no name; it begins with a to z, goes on with those, digits, _ and -, and "
      "has 64 characters at most\n"
      "FILE:2:10: version: a whole number is wanted here\n"
      "FILE:4:21: 'no' is no action; write sql:schema.function, https://…, bus:topic, fn:name or "
      "wait\n"
      "FILE:5:27: step: unknown key 'wen'; did you mean 'when'?\n"
      "FILE:6:52: timeout: a time such as 30s, 5m or 24h is wanted here\n"
      "FILE:6:64: a name is wanted after '.'; one with other characters than letters, digits, _ "
      "and - is written [\"so\"]");
}

TEST(LoadDefinition, KeepsItsLimits) {
  std::string steps;
  for (int i = 0; i < kMaxSteps; ++i) steps += fmt::format("- {{name: s{}, action: wait}}\n", i);
  EXPECT_EQ(Refusal(Head(steps)), "OK");
  EXPECT_THAT(Refusal(Head(steps + "- {name: more, action: wait}\n")),
              HasSubstr("FILE:4:1: 65 steps are more than 64"));
  EXPECT_THAT(Refusal(Called("  request: " + std::string(70'000, 'x') + "\n")),
              HasSubstr("the definition has more than 64 KiB"));
  const auto nested = [](int depth) {
    return Called("  request: " + std::string(depth, '[') + std::string(depth, ']') + "\n");
  };
  EXPECT_EQ(Refusal(nested(kMaxTemplateDepth)), "OK");
  EXPECT_THAT(Refusal(nested(kMaxTemplateDepth + 2)), HasSubstr("deeper than 16 levels"));
  EXPECT_THAT(Refusal(nested(100)), HasSubstr("too deep or too large"));
}

TEST(LoadDefinition, NamesAFileThatIsNotThere) {
  EXPECT_THAT(std::string(MessageOf(LoadDefinition("/nowhere/order.yaml").status())),
              HasSubstr("/nowhere/order.yaml can't be read"));
}

TEST(Definition, OfCodeIsHeldToTheSame) {
  Definition definition;
  definition.name = "order";
  definition.steps.push_back(
      {.name = "Charge", .action = {.kind = ActionKind::kHttp, .target = "x"}});
  EXPECT_THAT(std::string(MessageOf(definition.Validate())),
              HasSubstr("steps/0/name: 'Charge' is no name"));
  definition.steps[0] = {.name = "charge",
                         .action = {.kind = ActionKind::kFunction, .target = "pay"}};
  EXPECT_TRUE(definition.Validate().ok()) << definition.Validate();
  definition.steps[0].action.request = "\xff";
  EXPECT_FALSE(definition.Validate().ok());
  EXPECT_EQ(definition.Hash().size(), 64u);
}

TEST(Definition, FromJsonSaysWhereItIsWrong) {
  for (const char* text : {"null", "[]", "7", "{}", R"({"saga": []})", R"({"steps": [[]]})"}) {
    EXPECT_FALSE(Definition::FromJson(Json::parse(text)).ok()) << text;
  }
  const auto wrong = Definition::FromJson(
      Json::parse(R"({"saga": "s", "version": 1, "steps": [{"name": "a", "action": "nope"}]})"));
  EXPECT_THAT(std::string(MessageOf(wrong.status())),
              HasSubstr("steps/0/action: 'nope' is no action"));
}

}  // namespace
}  // namespace lockstep::sagas
