// docs/logs.md and docs/errors.md: what stands in the publisher's lines, and what never does.
#include "publisher/observe/relay_log.h"

#include <gmock/gmock.h>

#include <functional>
#include <map>

#include "platform/log/log.h"
#include "postgres/sql_error.h"

namespace lockstep::publisher {
namespace {

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
std::map<std::string, std::string> Lines(bool mask_tenant) {
  RelayLog log("shop.outbox", mask_tenant);
  const OutboxRow row = Row();
  return {
      {"outbox_flush_success", Line([&] { log.OnPublished(row, Millis(5)); })},
      {"outbox_flush_dedup_hit", Line([&] { log.OnDedupHit(row, Millis(5)); })},
      {"outbox_flush_retry",
       Line([&] { log.OnRetry(row, "UNKNOWN.INTERNAL", Millis(1000), "INTERNAL: it broke"); })},
      {"outbox_flush_retry ", Line([&] {
         log.OnOutage(row, "PROVIDER.UNAVAILABLE", absl::UnavailableError("away"), Millis(1000));
       })},
      {"outbox_flush_dead",
       Line([&] { log.OnDead(row, "SCHEMA.VALIDATION_FAILED", "INVALID_ARGUMENT: no"); })},
      {"outbox_flush_conflict", Line([&] { log.OnLostLease(row, R"({"locked_by": "another"})"); })},
  };
}

TEST(RelayLog, EveryLineOfARowSaysWhichAndHowItEnded) {
  for (const auto& [code, line] : Lines(false)) {
    EXPECT_THAT(line, HasSubstr("code=" + code.substr(0, code.find(' '))));
    EXPECT_THAT(
        line, AllOf(HasSubstr("table=shop.outbox"), HasSubstr("topic=shop.events"),
                    HasSubstr("event_id=00000000-0000-4000-8000-000000000001"),
                    HasSubstr("tenant_id=acme"), HasSubstr("sequence=42"), HasSubstr("attempts=")))
        << code;
    EXPECT_THAT(line, Not(HasSubstr("the payload"))) << code;
  }
}

TEST(RelayLog, TenantsAreMaskedWhereAsked) {
  for (const auto& [code, line] : Lines(true)) {
    EXPECT_THAT(line, HasSubstr("tenant_id=***")) << code;
    EXPECT_THAT(line, Not(HasSubstr("acme"))) << code;
  }
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
  RelayLog log("shop.outbox", false);
  const auto line = [&](const char* state) {
    return Line([&] { log.OnDatabaseError(postgres::SqlError(state, "it did not work")); });
  };
  EXPECT_THAT(line("57014"), HasSubstr("code=outbox_flush_db_timeout"));
  EXPECT_THAT(line("08006"), HasSubstr("code=outbox_flush_db_error"));
}

}  // namespace
}  // namespace lockstep::publisher
