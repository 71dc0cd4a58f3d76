#include "platform/log/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "platform/log/masking.h"

namespace lockstep::log {
namespace {

std::string Logged(const Options& options) {
  Configure(options);
  ::testing::internal::CaptureStderr();
  Info("it \"happened\"", {{"group", ConsumerGroup("g 1")}, {"count", 3}});
  const std::string line = ::testing::internal::GetCapturedStderr();
  Configure({});
  return line;
}

TEST(Log, WritesOneLineOfKeysAndValues) {
  const std::string line = Logged({});
  EXPECT_NE(line.find("level=info msg=\"it \\\"happened\\\"\" group=\"g 1\" count=3\n"),
            std::string::npos)
      << line;
}

TEST(Log, WritesJson) {
  const auto object = nlohmann::json::parse(Logged({.json = true}));
  EXPECT_EQ(object["msg"], "it \"happened\"");
  EXPECT_EQ(object["group"], "g 1");
}

TEST(Log, LeavesOutWhatIsBelowItsLevel) { EXPECT_EQ(Logged({.level = Level::kWarning}), ""); }

TEST(Log, LeavesOutAFieldThatHasNoValue) {
  Configure({});
  ::testing::internal::CaptureStderr();
  Info("a", {IfAny("trace_id", ""), IfAny("group", "g")});
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.find("trace_id"), std::string::npos) << line;
  EXPECT_NE(line.find(" group=g\n"), std::string::npos) << line;
}

// A value may come from anywhere, and a terminal does what control characters say.
TEST(Log, WritesNoControlCharacters) {
  Configure({});
  ::testing::internal::CaptureStderr();
  Info("a", {{"group", std::string("b\0c", 3)}, {"reason", "\x1b[2J\n"}, {"key", "\u202e"}});
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find(R"( group="b\u0000c" reason="\u001b[2J\n" key="\u202e")"), std::string::npos)
      << line;
}

TEST(Log, WritesNoControlCharactersIntoJson) {
  Configure({.json = true});
  ::testing::internal::CaptureStderr();
  Info("a", {{"group", "\u009b\x7f\u202e\"\n"}});
  const std::string line = ::testing::internal::GetCapturedStderr();
  Configure({});
  EXPECT_NE(line.find(R"("group":"\u009b\u007f\u202e\"\n"})"), std::string::npos) << line;
  EXPECT_EQ(nlohmann::json::parse(line)["group"], "\u009b\x7f\u202e\"\n");
}

TEST(Log, MasksWhoseEventsTheyAre) {
  Configure({});
  MaskKeys(true);
  ::testing::internal::CaptureStderr();
  Info("a", {{"ordering_key", "ann"}, IfAny("tenant_id", ""), {"reason", "ann's"}, {"key", "a.b"}});
  const std::string line = ::testing::internal::GetCapturedStderr();
  MaskKeys(false);
  EXPECT_NE(line.find(" ordering_key=*** reason=*** key=a.b\n"), std::string::npos) << line;
}

TEST(Log, MasksEveryFieldThatTellsAKey) {
  MaskKeys(true);
  for (const char* field : {"ordering_key", "aggregate", "aggregate_id", "aggregate_key", "tenant",
                            "tenant_id", "reason", "why", "last_error"}) {
    Configure({});  // and no line is a repeat
    ::testing::internal::CaptureStderr();
    Info("a", {{field, "ann"}});
    const std::string line = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(line.find(std::string(" ") + field + "=***\n"), std::string::npos) << line;
  }
  MaskKeys(false);
}

int LinesOf(const std::string& text, const std::string& part) {
  int lines = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++lines;
  return lines;
}

TEST(Log, ARepeatedLineIsWrittenAFewTimesAndThenCounted) {
  Configure({.level = Level::kDebug, .repeats = {.burst = 3, .interval = Millis(3'600'000)}});
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 126; ++i) {
    Warning("it failed", {{"group", "a"}, {"event_id", i}});
    Debug("in detail", {{"group", "a"}});
  }
  Warning("it failed", {{"group", "b"}, {"event_id", 7}});
  TellRepeats();  // not due
  TellRepeats(/*all=*/true);
  const std::string text = ::testing::internal::GetCapturedStderr();
  Configure({});
  EXPECT_EQ(LinesOf(text, "msg=\"it failed\" group=a"), 3) << text;
  EXPECT_EQ(LinesOf(text, "msg=\"it failed\" group=b"), 1) << "another group's is another line";
  EXPECT_EQ(
      LinesOf(text, "level=warning msg=\"it failed … repeated 123 times\" group=a repeats=123"), 1)
      << text;
  EXPECT_EQ(LinesOf(text, "msg=\"in detail\""), 126) << "who debugs wants them all";
}

TEST(Log, RepeatsAreToldByTheNextLineOnceTheirTimeIsOver) {
  Configure({.repeats = {.burst = 1, .interval = Millis(1)}});
  ::testing::internal::CaptureStderr();
  // However slow the machine: within one of these intervals at least two lines fall.
  for (int i = 0; i < 100'000; ++i) Info("again", {{"group", "a"}});
  TellRepeats(/*all=*/true);
  const std::string text = ::testing::internal::GetCapturedStderr();
  Configure({});
  int64_t lines = 0;
  for (size_t at = text.find("msg="); at != std::string::npos; at = text.find("msg=", at + 1)) {
    const size_t times = text.find("repeats=", at);
    const size_t end = text.find('\n', at);
    lines += times < end ? std::stoll(text.substr(times + 8)) : 1;
  }
  EXPECT_EQ(lines, 100'000) << "none is lost without being counted";
}

}  // namespace
}  // namespace lockstep::log
