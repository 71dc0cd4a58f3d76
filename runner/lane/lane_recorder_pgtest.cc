// docs/logs.md: every line about a message says which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "runner/testing/test_group.h"

namespace lockstep::runner {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";

class LaneLog : public ::testing::Test {
 protected:
  LaneLog() {
    log::Configure({.level = log::Level::kDebug});
    ::testing::internal::CaptureStderr();
  }
  ~LaneLog() override {
    if (!taken_) Lines();
    log::Configure({});
  }

  void Publish(const TestEvent& event) {
    pubsub::Message message = event.Message();
    message.ordering_key = "key-of-" + event.id;
    message.attributes["traceparent"] = std::string("00-") + kTrace + "-00f067aa0ba902b7-01";
    world_.PublishMessage(std::move(message));
    ASSERT_TRUE(world_.AwaitDrained());
  }
  void Start() { group_ = world_.NewGroup(); }

  // What was written, once all of it is; the group ends.
  std::vector<std::string> Lines() {
    taken_ = true;
    group_.reset();
    std::istringstream text(::testing::internal::GetCapturedStderr());
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  }

  // `what` with everything that names the event.
  static auto Names(const TestEvent& event, const std::string& what) {
    return Contains(
        ::testing::AllOf(HasSubstr(what), HasSubstr("group=feed message_id="),
                         HasSubstr(" event_id=" + event.Message().attributes.at("event_id") +
                                   " ordering_key=key-of-" + event.id + " trace_id=" + kTrace)));
  }

  GroupWorld world_;
  std::unique_ptr<Group> group_;
  bool taken_ = false;
};

TEST_F(LaneLog, NamesTheEventWhateverBecomesOfIt) {
  Start();
  const TestEvent one{.version = 1, .payload = Merge("a", "1")};
  const TestEvent two{.version = 2, .payload = Merge("b", "2")};
  const TestEvent three{.version = 3, .payload = Merge("a", "3")};
  const TestEvent late{.id = "other", .version = 1};
  const TestEvent ignored{.id = "ignored", .payload = R"({"ignore":true})"};
  const TestEvent dead{.id = "dead", .payload = "bad"};
  for (const TestEvent& event : {one, one, three}) Publish(event);
  Publish({.id = "other", .version = 2});
  for (const TestEvent& event : {late, ignored, dead, two}) Publish(event);
  const auto lines = Lines();
  EXPECT_THAT(lines, Names(one, "msg=committed"));
  EXPECT_THAT(lines, Names(one, "ending=applied"));
  EXPECT_THAT(lines, Names(one, "ending=duplicate"));
  EXPECT_THAT(lines, Names(three, "ending=parked"));
  EXPECT_THAT(lines, Names(three, "ending=applied")) << "when two had come";
  EXPECT_THAT(lines, Names(late, "ending=superseded"));
  EXPECT_THAT(lines, Names(ignored, "ending=ignored"));
  EXPECT_THAT(lines, Names(dead, "code=EVENT.MAPPING_FAILED"));
}

TEST_F(LaneLog, NamesAParkedEventThatDies) {
  Start();
  TestEvent divides{.version = 3, .payload = Merge("a", "3")};
  divides.payload.pop_back();
  divides.payload += R"(,"sql":"SELECT 1 / 0"})";
  Publish({.version = 1, .payload = Merge("a", "1")});
  Publish(divides);
  Publish({.version = 2, .payload = Merge("b", "2")});
  ASSERT_TRUE(world_.Await(
      [&] { return world_.Count("SELECT count(*) FROM feed_state.dead_letters") == 1; }));
  EXPECT_THAT(Lines(), Names(divides, "msg=\"dead letter\""));
}

TEST_F(LaneLog, NamesAnEventWhoseTransactionFails) {
  world_.options.max_attempts = 1;
  Start();
  const TestEvent divides{.payload = Running("SELECT 1 / 0")};
  Publish(divides);
  EXPECT_THAT(Lines(), Contains(::testing::AllOf(
                           HasSubstr("msg=\"a transaction failed\""), HasSubstr("group=feed"),
                           HasSubstr("message_id="), HasSubstr("sqlstate=22012"),
                           HasSubstr("ordering_key=key-of-k1 trace_id=" + std::string(kTrace)))));
}

// Log and page name the message of a batch that the database names.
TEST_F(LaneLog, NamesTheOffsetThatIsSaved) {
  world_.options.lanes = 1;
  world_.Publish({{.id = "k1"}, {.id = "k2"}, {.id = "k3"}});
  Start();
  ASSERT_TRUE(world_.AwaitDrained());
  const std::string saved = world_.Value("SELECT message_id FROM feed_state.offsets");
  const auto shown = [&] { return group_->status().lanes[0].last_message_id; };
  EXPECT_TRUE(world_.Await([&] { return shown() == saved; })) << shown() << ", not " << saved;
  std::string logged;
  for (const std::string& line : Lines()) {
    if (line.find("msg=\"offset saved\"") != std::string::npos) logged = line;
  }
  EXPECT_THAT(logged, HasSubstr(" message_id=" + saved + " "));
}

TEST_F(LaneLog, MasksWhatPostgresQuotesOfAnEvent) {
  MaskKeys(true);
  world_.options.max_attempts = 1;
  Start();
  Publish({.payload = Running("DO $$ BEGIN RAISE EXCEPTION 'not for Ottilie' USING ERRCODE = "
                              "'check_violation'; END $$")});
  const auto lines = Lines();
  MaskKeys(false);
  EXPECT_THAT(lines,
              Contains(::testing::AllOf(HasSubstr("msg=\"a transaction failed\""),
                                        HasSubstr("sqlstate=23514"), HasSubstr(" error=***"))));
  EXPECT_THAT(lines, Each(Not(HasSubstr("Ottilie"))));
}

TEST(LaneLogToPubsub, NamesAnEventThatIsGivenBack) {
  ::testing::internal::CaptureStderr();
  {
    GroupWorld world(/*ordered=*/false, "projects/p/topics/items.feed.dlq");
    world.may_park = false;
    world.options.dead_letter = DeadLetterTo::kPubsub;
    const auto group = world.NewGroup();
    world.Publish({{.id = "a", .payload = "bad", .event_id = Uuid(7), .ordered = false}});
    EXPECT_TRUE(world.bus.Await([&] { return !world.bus.released().empty(); }));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::ContainsRegex("given back: it can't be applied\" group=feed "
                                       "message_id=[^ ]+ event_id=" +
                                       Uuid(7)));
}

}  // namespace
}  // namespace lockstep::runner
