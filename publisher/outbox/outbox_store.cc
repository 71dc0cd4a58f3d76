#include "publisher/outbox/outbox_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "platform/defect.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "publisher/outbox/outbox_sql.h"

namespace lockstep::publisher {
namespace {

using postgres::Array;
using postgres::Params;
using postgres::Result;
using postgres::Statement;

Array Ints(const std::vector<int>& values) {
  Array array;
  for (const int value : values) array.Add(int64_t{value});
  return array;
}

Array Sequences(const std::vector<int64_t>& values) {
  Array array(values.size() * 10);
  for (const int64_t value : values) array.Add(value);
  return array;
}

Array Texts(const std::vector<std::string>& values) {
  Array array;
  for (const std::string& value : values) array.Add(std::string_view(value));
  return array;
}

std::vector<int64_t> FirstColumn(const Result& result) {
  std::vector<int64_t> values;
  values.reserve(result.rows());
  for (int i = 0; i < result.rows(); ++i) values.push_back(result.Int(i, 0));
  return values;
}

// The columns behind the first four of a claim.
OutboxRow ReadRow(const Result& result, int i, const std::string& token) {
  OutboxRow row;
  int c = 4;
  row.sequence = result.Int(i, c++);
  row.event_id = EventId(std::string(result.Text(i, c++)));
  row.tenant_id = result.Optional(i, c++);
  row.topic = result.Text(i, c++);
  row.aggregate_type = result.Text(i, c++);
  row.aggregate_id = result.Text(i, c++);
  row.event_type = result.Text(i, c++);
  row.version = result.Int(i, c++);
  row.schema_version = result.Int(i, c++);
  row.payload = result.Bytes(i, c++);
  row.content_type = result.Text(i, c++);
  row.attributes = result.Text(i, c++);
  row.traceparent = result.Optional(i, c++);
  row.tracestate = result.Optional(i, c++);
  row.occurred_at = result.Text(i, c++);
  row.created_at = result.Time(i, c++);
  row.attempts = static_cast<int>(result.Int(i, c++));
  row.shard = static_cast<int>(result.Int(i, c++));
  row.first_claim = result.Bool(i, c++);
  row.lock_token = token;
  return row;
}

// Candidates of a claim for which little is done beforehand.
constexpr int kFew = 8;

// A deliberate defect.
void Spoil(std::string_view part, std::string_view with, std::string& sql) {
  if (const size_t at = sql.find(part); at != std::string::npos) sql.replace(at, part.size(), with);
}

}  // namespace

// The statements with the table's name in them. Prepared names carry the outbox's oid, for one
// connection may serve several.
struct OutboxStore::Sql {
  struct Text {
    std::string name;
    std::string sql;
    operator Statement() const { return {name, sql}; }  // NOLINT: that is what it is for
  };
  Sql(const postgres::QualifiedName& table, int64_t the_oid)
      : quoted(table.Quoted()), oid(the_oid) {}
  Text Make(const char* name, const char* sql) const {
    Text text{fmt::format("{} {}", name, oid),
              fmt::format(fmt::runtime(sql), quoted, candidate, outbox_sql::kEarlier,
                          outbox_sql::kClaimedRow)};
    if (defect::On("drop-lease-guard")) Spoil("t.lock_token = m.token", "true", text.sql);
    if (defect::On("skip-key-order")) {
      Spoil("r.version > b.limit_version", "false", text.sql);
      Spoil("LIMIT 1) IS NULL", "LIMIT 0) IS NULL", text.sql);
    }
    return text;
  }

  std::string quoted;
  int64_t oid;
  std::string candidate = fmt::format(outbox_sql::kCandidate, quoted);
  Text claim = Make("claim", outbox_sql::kClaim);
  Text claim_few = Make("claim_few", outbox_sql::kClaimFew);
  Text mark = Make("mark", outbox_sql::kMark);
  Text fail = Make("fail", outbox_sql::kFail);
  Text renew = Make("renew", outbox_sql::kRenew);
  Text release_behind = Make("release_behind", outbox_sql::kReleaseBehind);
  Text audit_lost = Make("audit_lost", outbox_sql::kAuditLost);
  Text next_due = Make("next_due", outbox_sql::kNextDue);
  Text position = Make("position", outbox_sql::kPosition);
  Text clean_published = Make("clean_published", outbox_sql::kCleanPublished);
  Text clean_dead = Make("clean_dead", outbox_sql::kCleanDead);
};

OutboxStore::OutboxStore(postgres::Connection& connection, const postgres::QualifiedName& table)
    : connection_(connection), name_(table.ToString()) {}

absl::StatusOr<std::unique_ptr<OutboxStore>> OutboxStore::Open(
    postgres::Connection& connection, const postgres::QualifiedName& table) {
  std::unique_ptr<OutboxStore> store(new OutboxStore(connection, table));
  RETURN_IF_ERROR(
      connection.Script(fmt::format("{}{}", postgres::kPlannedOnce, outbox_sql::kSession)));
  const auto found = connection.Execute(outbox_sql::kFind, table.Quoted());
  if (!found.ok() && postgres::SqlState(found.status()).starts_with("42")) {
    if (postgres::SqlState(found.status()) == "42501") return found.status();  // a missing right
    return FailedPrecondition(
        "database {} has no outboxes yet: run lockstepctl migrate up, then lockstepctl outbox "
        "create {}",
        connection.database(), table.ToString());
  }
  if (!found.ok()) return found.status();
  if (found->empty()) {
    return FailedPrecondition(
        "{} is not an outbox in database {}: make it with lockstepctl outbox create {}",
        table.ToString(), connection.database(), table.ToString());
  }
  store->oid_ = found->Int(0, 0);
  store->sql_ = std::make_shared<const Sql>(table, store->oid_);
  store->shards_ = static_cast<int>(found->Int(0, 1));
  store->channel_ = found->Text(0, 2);
  return store;
}

absl::StatusOr<Claim> OutboxStore::ClaimRows(const ClaimRequest& request, ClaimCursor& cursor) {
  if (request.few && request.rows > kFew) return ClaimFew(request, cursor);
  return ClaimBy(sql_->claim, request, cursor);
}

// What there is beyond a handful, or blocked among it, is the other statement's, in the same place:
// to it, those taken here are in this owner's hands already. It has a token of its own: if its
// answer is lost, what it took is in nobody's hands, and must not pass for ours.
absl::StatusOr<Claim> OutboxStore::ClaimFew(const ClaimRequest& request, ClaimCursor& cursor) {
  ClaimRequest part = request;
  part.rows = kFew;
  ASSIGN_OR_RETURN(Claim few, ClaimBy(sql_->claim_few, part, cursor));
  const int taken = static_cast<int>(few.rows.size());
  if (taken == 0 || taken < few.candidates || taken == kFew) {
    part.rows = request.rows - taken;
    part.token = request.rest_token;
    if (taken > 0) part.live_tokens.push_back(request.token);
    auto rest = ClaimBy(sql_->claim, part, cursor);
    if (!rest.ok() && taken == 0) return rest.status();
    // Those that were taken are not lost with it: the next claim meets the same trouble.
    few.candidates = rest.ok() ? taken + rest->candidates : request.rows;
    if (rest.ok()) {
      few.a_second_ago = std::move(rest->a_second_ago);
      std::move(rest->rows.begin(), rest->rows.end(), std::back_inserter(few.rows));
    }
  }
  std::sort(few.rows.begin(), few.rows.end(),
            [](const OutboxRow& a, const OutboxRow& b) { return a.sequence < b.sequence; });
  return few;
}

absl::StatusOr<Claim> OutboxStore::ClaimBy(const Statement& statement, const ClaimRequest& request,
                                           ClaimCursor& cursor) {
  ASSIGN_OR_RETURN(
      const Result result,
      connection_.Execute(statement, request.token, request.owner, request.lock_ttl.count(),
                          request.rows, Ints(request.shards), request.shard_count,
                          cursor.available_at, cursor.sequence, Texts(request.live_tokens),
                          Texts(request.paused_topics), request.dead_blocks));
  Claim claim;
  if (result.empty()) return claim;
  claim.candidates = static_cast<int>(result.Int(0, 0));
  claim.a_second_ago = result.Text(0, 3);
  if (!result.IsNull(0, 1)) {
    cursor.available_at = result.Text(0, 1);
    cursor.sequence = result.Int(0, 2);
  }
  for (int i = 0; i < result.rows() && !result.IsNull(i, 4); ++i) {
    claim.rows.push_back(ReadRow(result, i, request.token));
  }
  return claim;
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::Update(const Statement& statement,
                                                         const Params& params,
                                                         const std::vector<int64_t>& unblocking) {
  if (unblocking.empty()) {
    ASSIGN_OR_RETURN(const Result result, connection_.Execute(statement, params));
    return FirstColumn(result);
  }
  // Together, or a crash in between would leave the followers held until the safety net finds them.
  ASSIGN_OR_RETURN(auto transaction, connection_.Begin());
  ASSIGN_OR_RETURN(const Result result, transaction.Execute(statement, params));
  RETURN_IF_ERROR(transaction.Execute(sql_->release_behind, Sequences(unblocking)).status());
  RETURN_IF_ERROR(transaction.Commit());
  return FirstColumn(result);
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::MarkPublished(
    const std::vector<PublishedRow>& rows, const std::vector<int64_t>& unblocking) {
  Array sequences(rows.size() * 10);
  Array tokens(rows.size() * 40);
  Array message_ids(rows.size() * 20);
  for (const PublishedRow& row : rows) {
    sequences.Add(row.sequence);
    tokens.AddPlain(row.lock_token);
    if (row.message_id.empty()) {
      message_ids.AddNull();
    } else {
      message_ids.Add(std::string_view(row.message_id));
    }
  }
  return Update(sql_->mark, Params(sequences, tokens, message_ids), unblocking);
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::MarkFailed(
    const std::vector<RowFailure>& rows, const std::vector<int64_t>& unblocking) {
  Array sequences;
  Array tokens;
  Array spent;
  Array delays;
  Array errors;
  Array codes;
  Array dead;
  for (const RowFailure& row : rows) {
    sequences.Add(row.sequence);
    tokens.AddPlain(row.lock_token);
    spent.Add(int64_t{row.spent_attempts});
    delays.Add(row.delay.has_value() ? row.delay->count() : -1);
    errors.AddOptional(row.error.empty() ? std::nullopt : std::optional(row.error));
    codes.AddOptional(row.code.empty() ? std::nullopt : std::optional(row.code));
    dead.Add(row.dead);
  }
  return Update(sql_->fail, Params(sequences, tokens, spent, delays, errors, codes, dead),
                unblocking);
}

absl::StatusOr<std::vector<int64_t>> OutboxStore::Renew(const std::vector<PublishedRow>& rows) {
  Array sequences;
  Array tokens;
  for (const PublishedRow& row : rows) {
    sequences.Add(row.sequence);
    tokens.AddPlain(row.lock_token);
  }
  return Update(sql_->renew, Params(sequences, tokens), {});
}

absl::StatusOr<std::map<int64_t, std::string>> OutboxStore::AuditLost(
    const std::vector<int64_t>& sequences, const std::string& owner) {
  ASSIGN_OR_RETURN(const Result result, connection_.Execute(sql_->audit_lost, sql_->quoted,
                                                            Sequences(sequences), owner));
  std::map<int64_t, std::string> states;
  for (int i = 0; i < result.rows(); ++i) states[result.Int(i, 0)] = result.Text(i, 1);
  return states;
}

absl::StatusOr<int64_t> OutboxStore::ReleaseHeld(bool dead_blocks) {
  ASSIGN_OR_RETURN(const Result result,
                   connection_.Execute(outbox_sql::kReleaseHeld, sql_->quoted, dead_blocks));
  return result.Int(0, 0);
}

absl::StatusOr<std::optional<Millis>> OutboxStore::NextDue(const ClaimRequest& request,
                                                           const ClaimCursor& floor) {
  ASSIGN_OR_RETURN(const Result result,
                   connection_.Execute(sql_->next_due, Ints(request.shards), request.shard_count,
                                       request.lock_ttl.count(), floor.available_at));
  if (result.IsNull(0, 0)) return std::nullopt;
  return std::optional(Millis(std::max<int64_t>(0, result.Int(0, 0)) + 1));
}

absl::StatusOr<OutboxStore::Backlog> OutboxStore::CountBacklog(postgres::Connection& connection,
                                                               const postgres::QualifiedName& table,
                                                               int64_t at_most) {
  ASSIGN_OR_RETURN(const Result result,
                   connection.Execute(fmt::format(outbox_sql::kBacklog, table.Quoted()), at_most));
  return Backlog{result.Int(0, 0), result.Int(0, 1)};
}

absl::StatusOr<int64_t> OutboxStore::CountRetries(postgres::Connection& connection,
                                                  const postgres::QualifiedName& table) {
  ASSIGN_OR_RETURN(const Result result,
                   connection.Execute(fmt::format(outbox_sql::kRetries, table.Quoted())));
  return result.Int(0, 0);
}

absl::StatusOr<int64_t> OutboxStore::Position() {
  ASSIGN_OR_RETURN(const Result result, connection_.Execute(sql_->position));
  return result.Int(0, 0);
}

absl::StatusOr<bool> OutboxStore::TryWakeLocks(const std::vector<int>& shards) {
  ASSIGN_OR_RETURN(const Result result,
                   connection_.Execute(outbox_sql::kTryWakeLocks, oid_, Ints(shards)));
  std::vector<int> taken;
  for (int i = 0; i < result.rows(); ++i) {
    if (result.Bool(i, 1)) taken.push_back(static_cast<int>(result.Int(i, 0)));
  }
  if (taken.size() == shards.size()) return true;
  RETURN_IF_ERROR(WakeUnlock(taken));
  return false;
}

absl::Status OutboxStore::WakeUnlock(const std::vector<int>& shards) {
  if (shards.empty()) return absl::OkStatus();
  return connection_.Execute(outbox_sql::kWakeUnlock, oid_, Ints(shards)).status();
}

absl::StatusOr<int64_t> OutboxStore::CleanPublished(Millis age, int rows) {
  ASSIGN_OR_RETURN(const Result result,
                   connection_.Execute(sql_->clean_published, age.count(), rows));
  return result.affected_rows();
}

absl::StatusOr<int64_t> OutboxStore::CleanDead(Millis age, int rows) {
  ASSIGN_OR_RETURN(const Result result, connection_.Execute(sql_->clean_dead, age.count(), rows));
  return result.affected_rows();
}

}  // namespace lockstep::publisher
