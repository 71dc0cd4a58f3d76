// docs/logs.md and docs/errors.md: what stands in the publisher's lines, and what never does.
#include "publisher/observe/relay_log.h"

#include <gmock/gmock.h>

#include <functional>
#include <map>

#include "platform/log/log.h"
#include "platform/log/masking.h"
#include "postgres/sql_error.h"

namespace lockstep::publisher {
namespace {

using Kind = RowEvent::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

OutboxRow Row() {
  OutboxRow row;
  row.sequence = 42;
  row.event_id = EventId("00000000-0000-4000-8000-000000000001");
  row.tenant_id = "acme";
  row.topic = "shop.events";
  row.aggregate_id = "k";
  row.payload = "the payload";
  row.attempts = 3;
  return row;
}

std::string Line(const std::function<void()>& write) {
  log::Configure({.level = log::Level::kDebug});
  ::testing::internal::CaptureStderr();
  write();
  std::string line = ::testing::internal::GetCapturedStderr();
  log::Configure({});
  return line;
}

// What each event writes, by the outcome's code.
std::map<std::string, std::string> Lines(bool mask_keys) {
  MaskKeys(mask_keys);
  RelayLog log("shop.outbox");
  const OutboxRow row = Row();
  const auto line = [&](const RowEvent& event) { return Line([&] { log.OnRow(event); }); };
  return {
      {"outbox_flush_success",
       line({.kind = Kind::kPublished, .row = row, .took = Millis(5), .message_id = "77"})},
      {"outbox_flush_known", line({Kind::kKnown, row, Millis(5)})},
      {"outbox_flush_dedup_hit", line({Kind::kDedupHit, row, Millis(5)})},
      {"outbox_flush_retry", line({.kind = Kind::kRetry,
                                   .row = row,
                                   .wait = Millis(1000),
                                   .code = "UNKNOWN.INTERNAL",
                                   .error = "INTERNAL: acme broke it"})},
      {"outbox_flush_retry ", line({.kind = Kind::kOutage,
                                    .row = row,
                                    .wait = Millis(1000),
                                    .code = "PROVIDER.UNAVAILABLE",
                                    .error = "away"})},
      {"outbox_flush_dead", line({.kind = Kind::kDead,
                                  .row = row,
                                  .code = "SCHEMA.VALIDATION_FAILED",
                                  .error = "INVALID_ARGUMENT: no acme"})},
      {"outbox_flush_conflict", line({.kind = Kind::kLostLease,
                                      .row = row,
                                      .code = "STORAGE.CONFLICT",
                                      .state = R"({"locked_by": "another"})"})},
  };
}

TEST(RelayLog, EveryLineOfARowSaysWhichAndHowItEnded) {
  for (const auto& [code, line] : Lines(false)) {
    EXPECT_THAT(line, HasSubstr("code=" + code.substr(0, code.find(' '))));
    EXPECT_THAT(
        line, AllOf(HasSubstr("table=shop.outbox"), HasSubstr("topic=shop.events"),
                    HasSubstr("event_id=00000000-0000-4000-8000-000000000001"),
                    HasSubstr(code == "outbox_flush_success" ? "message_id=77 ordering_key=k"
                                                             : "ordering_key=k"),
                    HasSubstr("tenant_id=acme"), HasSubstr("sequence=42"), HasSubstr("attempts=")))
        << code;
    EXPECT_THAT(line, Not(HasSubstr("the payload"))) << code;
  }
}

TEST(RelayLog, TenantsAreMaskedWhereAsked) {
  const auto lines = Lines(true);
  for (const auto& [code, line] : lines) {
    EXPECT_THAT(line, HasSubstr("tenant_id=***")) << code;
    EXPECT_THAT(line, Not(HasSubstr("acme"))) << code;
  }
  EXPECT_THAT(lines.at("outbox_flush_dead"), HasSubstr(" error=***"));
  EXPECT_THAT(lines.at("outbox_flush_retry "), HasSubstr(" error=away")) << "about a topic";
}

TEST(RelayLog, FailuresNameTheErrorToo) {
  const auto lines = Lines(false);
  EXPECT_THAT(lines.at("outbox_flush_retry"),
              AllOf(HasSubstr("error_code=UNKNOWN.INTERNAL"), HasSubstr("attempts=4")));
  EXPECT_THAT(lines.at("outbox_flush_retry "),
              AllOf(HasSubstr("error_code=PROVIDER.UNAVAILABLE"), HasSubstr("attempts=3")));
  EXPECT_THAT(lines.at("outbox_flush_dead"), HasSubstr("error_code=SCHEMA.VALIDATION_FAILED"));
  EXPECT_THAT(lines.at("outbox_flush_conflict"),
              AllOf(HasSubstr("error_code=STORAGE.CONFLICT"), HasSubstr("another")));
}

TEST(RelayLog, TheDatabasesFaultsAreTimeoutsOrErrors) {
  RelayLog log("shop.outbox");
  const auto line = [&](const char* state) {
    return Line([&] { log.OnDatabaseError(postgres::SqlError(state, "it did not work")); });
  };
  EXPECT_THAT(line("57014"), HasSubstr("code=outbox_flush_db_timeout"));
  EXPECT_THAT(line("08006"), HasSubstr("code=outbox_flush_db_error"));
}

}  // namespace
}  // namespace lockstep::publisher
