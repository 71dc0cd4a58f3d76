#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/status.h"
#include "postgres/sql_error.h"
#include "projections/testing/test_group.h"

// Handlers that are functions in the database: what they get, and what a check says of them.
namespace lockstep::projections {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kYaml[] = R"(
group: g
subscription: s
undeclared_events: ignore
projections:
  - {name: things, table: x.thing, key: id, version: version, events: {Made: {replace: [a]}}}
handlers:
  - name: log
    events:
      Made: {call: x.on_made}
      Gone: {call: x.on_made}
)";
constexpr char kTables[] =
    "CREATE SCHEMA x;"
    "CREATE TABLE x.thing (id text PRIMARY KEY, a text, version bigint NOT NULL);"
    "CREATE TABLE x.log (at serial, line text)";
constexpr char kAsArray[] = R"(
CREATE FUNCTION x.on_made(events lockstep_state.event[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO x.log (line)
  SELECT concat_ws(' ', e.event_type, e.tenant_id, e.aggregate_type, e.aggregate_id, e.version,
                   e.schema_version, e.content_type, convert_from(e.payload, 'UTF8'),
                   e.data ->> 'a', e.attributes ->> 'more', e.kind, e.replay,
                   extract(epoch FROM e.publish_time), e.occurred_at IS NOT NULL)
    FROM unnest(events) WITH ORDINALITY AS e ORDER BY e.ordinality $$)";
constexpr char kAsJson[] = R"(
CREATE FUNCTION x.on_made(events jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO x.log (line)
  SELECT concat_ws(' ', e ->> 'event_type', e ->> 'aggregate_id', e ->> 'version',
                   e -> 'data' ->> 'a', e ->> 'payload', e ->> 'replay')
    FROM jsonb_array_elements(events) WITH ORDINALITY AS j (e, n) ORDER BY n $$)";

Event Made(const std::string& id, int64_t version = 1) {
  return MakeEvent("Made", id, version, fmt::format(R"({{"id":"{}","a":"x"}})", id));
}

class FunctionTest : public ::testing::Test {
 protected:
  FunctionTest() { group_.db().Run(kTables); }

  // The messages that the events came with; they outlive the options.
  ApplyOptions With(const std::vector<Event>& events) {
    ApplyOptions options;
    messages_.clear();
    for (const Event& event : events) {
      messages_.push_back({.publish_time = WallTime(std::chrono::seconds(7)), .event = event});
    }
    for (const auto& message : messages_) options.messages.push_back(&message);
    return options;
  }
  absl::StatusOr<std::vector<Outcome>> Apply(const std::vector<Event>& events) {
    return group_.TryApply(events, With(events));
  }
  std::vector<std::string> Log() { return group_.Rows("SELECT line FROM x.log ORDER BY at"); }
  std::string Complaint() { return std::string(MessageOf(group_.Check())); }

  TestGroup group_{kYaml, ""};
  std::vector<envelope::Received> messages_;
};

TEST_F(FunctionTest, GetsTheEventsOfABatchAtOnceAfterTheTables) {
  group_.db().Run(kAsArray);
  ASSERT_TRUE(group_.Check().ok()) << group_.Check();
  Event first = Made("ant");
  first.aggregate.tenant_id = "acme";
  first.attributes["more"] = "words";
  first.attributes["od\"d"] = "back\\slash \n and \"quotes\"";
  const auto outcomes = Apply({first, Made("bee", 3), MakeEvent("Gone", "bee", 4, "{}")});
  ASSERT_TRUE(outcomes.ok()) << outcomes.status();
  EXPECT_THAT(*outcomes, ElementsAre(Outcome::kApplied, Outcome::kApplied, Outcome::kApplied));
  EXPECT_THAT(Log(),
              ElementsAre("Made acme video ant 1 1 application/json {\"id\":\"ant\",\"a\":\"x\"} x "
                          "words event f 7.000000 t",
                          "Made video bee 3 1 application/json {\"id\":\"bee\",\"a\":\"x\"} x "
                          "event f 7.000000 t",
                          "Gone video bee 4 1 application/json {} event f 7.000000 t"));
  EXPECT_THAT(group_.Rows("SELECT count(*) FROM x.thing"), ElementsAre("2"));
}

TEST_F(FunctionTest, MayTakeThemAsJson) {
  group_.db().Run(kAsJson);
  ASSERT_TRUE(group_.Check().ok()) << group_.Check();
  ASSERT_TRUE(Apply({Made("ant"), Made("bee")}).ok());
  EXPECT_THAT(Log(), ElementsAre("Made ant 1 x false", "Made bee 1 x false"));
}

TEST_F(FunctionTest, IsPlannedAsTheServerPlansAndOursAreNot) {
  group_.db().Run(R"(
CREATE FUNCTION x.on_made(events jsonb) RETURNS void LANGUAGE sql AS $$
  INSERT INTO x.log (line) VALUES (current_setting('enable_seqscan')) $$)");
  const auto connection = group_.db().Connect();
  ASSERT_TRUE(connection->Run(postgres::kPlannedOnce).ok());
  const std::vector<Event> events = {Made("ant")};
  const ApplyOptions options = With(events);
  const auto change = group_.projector().Map(events[0]);
  for (int i = 0; i < 2; ++i) {  // the second time its statements are known
    auto transaction = connection->Begin();
    ASSERT_TRUE(group_.projector().Apply(*transaction, {change->get()}, options).ok());
    const auto after = transaction->Execute("SELECT current_setting('enable_seqscan')");
    EXPECT_EQ(after->Text(0, 0), "off");
    ASSERT_TRUE(transaction->Commit().ok());
    group_.db().Run("TRUNCATE x.thing");
  }
  EXPECT_THAT(Log(), ElementsAre("on", "on"));
}

TEST_F(FunctionTest, RefusesOneEventByItsName) {
  group_.db().Run(R"(
CREATE FUNCTION x.on_made(events lockstep_state.event[]) RETURNS void LANGUAGE sql AS $$
  SELECT lockstep_state.refuse(e.event_id, 'bees sting') FROM unnest(events) e
   WHERE e.aggregate_id = 'bee' $$)");
  const Event bee = Made("bee");
  const auto refused = Apply({Made("ant"), bee});
  const Refusal refusal = RefusalIn(refused.status());
  EXPECT_EQ(refusal.event, bee.event_id) << refused.status();
  EXPECT_EQ(refusal.reason, "bees sting");
  EXPECT_EQ(postgres::Classify(refused.status()), postgres::ErrorClass::kData);
  EXPECT_THAT(group_.Rows("SELECT count(*) FROM x.thing"), ElementsAre("0"));
}

TEST(Refusal, IsReadOutOfNoOtherFailure) {
  EXPECT_TRUE(RefusalIn(absl::OkStatus()).event.empty());
  EXPECT_TRUE(RefusalIn(postgres::SqlError("P0001", "ERROR:  no")).event.empty());
  EXPECT_TRUE(
      RefusalIn(postgres::SqlError("LS001", "ERROR:  made by somebody else")).event.empty());
  const EventId id("00000000-0000-4000-8000-000000000001");
  const Refusal own = RefusalIn(RefuseEvent(id, "so be it"));
  EXPECT_EQ(own.event, id);
  EXPECT_EQ(own.reason, "so be it");
}

TEST_F(FunctionTest, IsToldWhatIsAReplayAndSkipsItIfItSaysSo) {
  group_.db().Run(kAsJson);
  const std::vector<Event> events = {Made("ant"), Made("bee")};
  ApplyOptions options = With(events);
  options.replays = {true, false};
  group_.Apply(events, options);
  EXPECT_THAT(Log(), ElementsAre("Made ant 1 x true", "Made bee 1 x false"));

  std::string yaml = kYaml;
  yaml.replace(yaml.find("    events:\n      Made"), 0, "    replay: skip\n");
  TestGroup skips(yaml, "");
  skips.db().Run(kTables);
  skips.db().Run(kAsJson);
  skips.Apply(events, options);
  EXPECT_THAT(skips.Rows("SELECT line FROM x.log"), ElementsAre("Made bee 1 x false"));
}

TEST_F(FunctionTest, TakesNoSnapshotUnlessItSaysSo) {
  group_.db().Run(kAsArray);
  Event snapshot = Made("ant", 4);
  snapshot.kind = envelope::EventKind::kSnapshot;
  const auto refused = group_.projector().Map(snapshot);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  EXPECT_THAT(std::string(MessageOf(refused.status())), HasSubstr("snapshots: call"));
  for (const bool calls : {true, false}) {
    std::string yaml = kYaml;
    yaml.replace(yaml.find("    events:\n      Made"), 0,
                 calls ? "    snapshots: call\n" : "    snapshots: ignore\n");
    TestGroup takes(yaml, "");
    takes.db().Run(kTables);
    takes.db().Run(kAsArray);
    EXPECT_THAT(takes.Apply({snapshot}, With({snapshot})), ElementsAre(Outcome::kApplied));
    EXPECT_THAT(takes.Rows("SELECT count(*) FROM x.log WHERE line LIKE '% snapshot %'"),
                ElementsAre(calls ? "1" : "0"));
    EXPECT_THAT(takes.Rows("SELECT version FROM x.thing"), ElementsAre("4"));
  }
}

TEST_F(FunctionTest, GetsProtobufAsJsonToo) {
  constexpr char kProto[] = "syntax = \"proto3\"; message Made { string id = 1; string a = 2; }";
  std::string yaml = kYaml;
  yaml.replace(yaml.find("subscription: s\n"), 0, "descriptors: [%DESCRIPTORS%]\n");
  const auto descriptors = DescriptorsOf(kProto);
  TestGroup group(yaml, descriptors->path());
  group.db().Run(kTables);
  group.db().Run(R"(
CREATE FUNCTION x.on_made(events lockstep_state.event[]) RETURNS void LANGUAGE sql AS $$
  INSERT INTO x.log (line) SELECT e.data::text || encode(e.payload, 'hex') FROM unnest(events) e $$)");
  const std::string payload = {'\x0a', 1, 'k', '\x12', 1, '\xff' - '\xff' + 'v'};
  const Event event = MakeEvent("Made", "k", 1, payload, "application/protobuf");
  ASSERT_THAT(group.Apply({event}, With({event})), ElementsAre(Outcome::kApplied));
  EXPECT_THAT(group.Rows("SELECT line FROM x.log"),
              ElementsAre(R"({"a": "v", "id": "k"}0a016b120176)"));
}

TEST_F(FunctionTest, EveryMistakeIsASentence) {
  EXPECT_THAT(Complaint(), HasSubstr("function x.on_made does not exist; create "
                                     "\"x\".\"on_made\"(events \"lockstep_state\".event[])"));
  group_.db().Run("CREATE FUNCTION x.on_made(text) RETURNS void LANGUAGE sql AS ''");
  EXPECT_THAT(Complaint(), HasSubstr("x.on_made(text) takes no events: create"));
  group_.db().Run(kAsArray);
  EXPECT_TRUE(group_.Check().ok()) << Complaint();
  group_.db().Run("CREATE FUNCTION x.on_made(jsonb) RETURNS void LANGUAGE sql AS ''");
  EXPECT_THAT(Complaint(), HasSubstr("more than one function x.on_made"));
  group_.db().Run("DROP FUNCTION x.on_made(jsonb)");
  group_.db().Run(
      "CREATE FUNCTION x.on_made(lockstep_state.event[], n int DEFAULT 1) RETURNS void "
      "LANGUAGE sql AS ''");
  EXPECT_THAT(Complaint(), HasSubstr("more than one function x.on_made"));
  group_.db().Run(
      "DROP FUNCTION x.on_made(lockstep_state.event[], int);"
      "DROP FUNCTION x.on_made(lockstep_state.event[]);"
      "CREATE PROCEDURE x.on_made(jsonb) LANGUAGE sql AS ''");
  EXPECT_THAT(Complaint(), HasSubstr("x.on_made is a procedure"));
}

TEST(FunctionRights, AreLookedAt) {
  TestGroup group(
      "group: g\nsubscription: s\nhandlers:\n  - {name: h, call: x.on_made, events: [Made]}\n");
  group.db().Run(kTables);
  group.db().Run(kAsArray);
  const std::string role = "caller_" + group.db().name();
  group.db().Run("CREATE ROLE " + role + " LOGIN; GRANT USAGE ON SCHEMA lockstep_state TO " + role +
                 "; GRANT ALL ON ALL TABLES IN SCHEMA lockstep_state TO " + role +
                 "; GRANT ALL ON ALL TABLES IN SCHEMA x TO " + role +
                 "; REVOKE EXECUTE ON FUNCTION x.on_made FROM PUBLIC");
  {
    const auto connection = group.db().Connect();
    ASSERT_TRUE(connection->Run("SET ROLE " + role).ok());
    const auto complaint = [&] {
      return std::string(MessageOf(group.projector().Check(*connection)));
    };
    EXPECT_THAT(complaint(), HasSubstr("may not use schema x; GRANT USAGE ON SCHEMA \"x\" TO"));
    group.db().Run("GRANT USAGE ON SCHEMA x TO " + role);
    EXPECT_THAT(complaint(), HasSubstr("may not execute x.on_made; GRANT EXECUTE ON FUNCTION "));
    group.db().Run("GRANT EXECUTE ON FUNCTION x.on_made TO " + role);
    EXPECT_THAT(complaint(), IsEmpty());
  }
  group.db().Run("DROP OWNED BY " + role + "; DROP ROLE " + role);
}

TEST(HandlerFile, RefusesWhatMakesNoSense) {
  const auto complaint = [](const std::string& handlers) {
    return std::string(
        MessageOf(LoadText("group: g\nsubscription: s\nhandlers:\n" + handlers).status()));
  };
  EXPECT_THAT(complaint("  - {name: a, events: {Made: {call: x.f}}}\n"), IsEmpty());
  EXPECT_THAT(complaint("  - {name: a, call: x.f, events: [Made, Gone]}\n"), IsEmpty());
  EXPECT_THAT(
      complaint(
          "  - {name: a, events: {Made: {call: https://h/x, when: {field: a, equals: 1}}}}\n"),
      IsEmpty());
  EXPECT_THAT(complaint("  - {name: a, events: [Made]}\n"),
              HasSubstr("what is to be called is missing"));
  EXPECT_THAT(complaint("  - {name: a, call: f, events: [Made]}\n"),
              HasSubstr("'f' is neither a function as schema.name nor an address"));
  EXPECT_THAT(complaint("  - {name: a, call: ftp://x.y/z, events: [Made]}\n"),
              HasSubstr("neither a function"));
  EXPECT_THAT(complaint("  - {name: a, call: 'https://u:geheim@h/', events: [Made]}\n"),
              AllOf(HasSubstr(":4:"), HasSubstr("headers_file"), Not(HasSubstr("geheim"))));
  EXPECT_THAT(complaint("  - {name: a, call: 'https://h:99999/', events: [Made]}\n"),
              HasSubstr("is no address to send to"));
  EXPECT_THAT(complaint("  - {name: a, call: x.f, events: [Made], timeout: 1s}\n"),
              HasSubstr("'timeout' belongs to a handler that calls an address"));
  EXPECT_THAT(complaint("  - {name: a, call: https://h/, events: [Made], timeout: 5m}\n"),
              HasSubstr("timeout: '5m' is no time such as 2s"));
  EXPECT_THAT(complaint("  - {name: a, call: https://h/, events: [Made], concurrency: 0}\n"),
              HasSubstr("concurrency: '0' is no number from 1"));
  EXPECT_THAT(complaint("  - {name: a, call: https://h/, events: [Made], tables: [x.y]}\n"),
              HasSubstr("'tables' are those that a function writes"));
  EXPECT_THAT(complaint("  - {name: a, call: x.f, events: [Made], snapshots: maybe}\n"),
              HasSubstr("none of refuse, ignore, call"));
  EXPECT_THAT(complaint("  - {name: a, call: x.f, events: [Made], retry: 3}\n"),
              HasSubstr("retry"));
  EXPECT_THAT(complaint("  - {name: a, call: x.f, events: [M]}\n  - {name: a, call: x.g, events: "
                        "[M]}\n"),
              HasSubstr("there is a projection or handler a already"));
  EXPECT_THAT(std::string(MessageOf(
                  LoadText("group: g\nsubscription: s\nprojections:\n  - {name: a, table: x.t, "
                           "key: id, version: v, events: {M: {call: x.f}}}\n")
                      .status())),
              HasSubstr("call belongs under handlers:"));
}

}  // namespace
}  // namespace lockstep::projections
