#include "publisher/outbox/outbox_reader.h"

#include "platform/status.h"
#include "postgres/identifier.h"
#include "publisher/outbox/outbox_upkeep.h"

namespace lockstep::publisher {
namespace {

constexpr int kCostLimit = 50;  // a count that took t is not repeated before 50 t have gone by

}  // namespace

OutboxReader::OutboxReader(const std::string& database)
    : options_{.url = database,
               .application_name = "lockstep-publisher status",
               .statement_timeout = Millis(5'000)} {}

absl::StatusOr<OutboxRecord> OutboxReader::Read(const std::string& name) {
  Table& table = tables_[name];
  const SteadyTime began = Clock::System().Steady();
  if (session_ == nullptr || session_->broken()) {
    session_.reset();
    ASSIGN_OR_RETURN(session_, postgres::Connection::Open(options_));
  }
  if (began < table.next) {
    // Too early to count again, yet the database should be known to answer.
    RETURN_IF_ERROR(session_->Execute("SELECT 1").status());
    table.record.replays = 0;
    return table.record;
  }
  ASSIGN_OR_RETURN(const auto qualified, postgres::QualifiedName::Parse(name));
  ASSIGN_OR_RETURN(const Backlog backlog, CountBacklog(*session_, qualified));
  ASSIGN_OR_RETURN(const DeadRows dead, ReadDeadRows(*session_, qualified));
  ASSIGN_OR_RETURN(const int64_t replays, CountNewReplays(*session_, qualified, table.audit));
  const SteadyTime now = Clock::System().Steady();
  table.next = now + kCostLimit * (now - began);
  table.record = {backlog, dead.dead, dead.quarantined, replays, /*known=*/true};
  table.record.part = {{"pending", backlog.pending},
                       {"locked", backlog.locked},
                       {"oldest_ms", backlog.oldest.count()},
                       {"pending_is_at_least", backlog.pending >= Backlog::kCountAtMost},
                       {"dead", dead.dead},
                       {"quarantined", dead.quarantined},
                       {"dead_rows", dead.newest}};
  return table.record;
}

}  // namespace lockstep::publisher
