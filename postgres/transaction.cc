#include <utility>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/connection_impl.h"
#include "postgres/identifier.h"
#include "postgres/sql_error.h"

namespace lockstep::postgres {
namespace {

// A statement that the server knows, in the words of SQL.
std::string CallOf(const Statement& statement, const Params& params) {
  std::string call = "EXECUTE " + QuoteIdentifier(statement.name);
  char separator = '(';
  for (const auto& value : params.values()) {
    call += separator;
    call += value ? QuoteLiteral(*value) : "NULL";
    separator = ',';
  }
  if (separator == ',') call += ')';
  return call;
}

}  // namespace

Transaction::Transaction(Transaction&& other) noexcept
    : connection_(std::exchange(other.connection_, nullptr)),
      begun_(other.begun_),
      unsent_(std::move(other.unsent_)),
      failed_(std::move(other.failed_)) {}

Transaction::~Transaction() {
  if (connection_ != nullptr) Rollback().IgnoreError();
}

absl::StatusOr<Result> Transaction::Note(absl::StatusOr<Result> result) {
  if (!result.ok()) failed_.Update(result.status());
  return result;
}

// What is unsent, then this one, whose rows are answered.
absl::StatusOr<Result> Transaction::Send(std::string_view last) {
  begun_ = true;
  return Note(connection_->Execute(std::exchange(unsent_, {}).append(last)));
}

absl::StatusOr<Result> Transaction::ExecuteText(std::string_view sql, const Params& params) {
  if (params.values().empty()) return Send(sql);
  if (!unsent_.empty()) RETURN_IF_ERROR(Send("").status());
  return Note(connection_->Execute(sql, params));
}

absl::StatusOr<Result> Transaction::ExecutePrepared(const Statement& statement,
                                                    const Params& params) {
  if (unsent_.empty()) return Note(connection_->Execute(statement, params));
  if (auto refused = RefuseNul(params); !refused.ok()) return Note(std::move(refused));
  if (connection_->impl_->known.contains(statement.name)) return Send(CallOf(statement, params));
  RETURN_IF_ERROR(Send("").status());
  return Note(connection_->Execute(statement, params));
}

absl::Status Transaction::DeferWith(const Statement& statement, const Params& params) {
  // Only what the server knows already can be called by name.
  if (!connection_->impl_->known.contains(statement.name)) {
    return ExecutePrepared(statement, params).status();
  }
  if (auto refused = RefuseNul(params); !refused.ok()) return Note(std::move(refused)).status();
  unsent_ += CallOf(statement, params) + "; ";
  return absl::OkStatus();
}

absl::Status Transaction::Commit() {
  // COMMIT of a failed transaction answers without an error, having rolled back.
  if (!failed_.ok()) {
    absl::Status failed = failed_;
    Rollback().IgnoreError();
    return failed;
  }
  Connection* const connection = std::exchange(connection_, nullptr);
  Connection::Impl& impl = *connection->impl_;
  impl.notices.standby_not_waited_for = false;
  impl.Verbose(true);
  absl::Status committed = connection->Run(unsent_ + "COMMIT");
  impl.Verbose(false);
  if (committed.ok() && impl.notices.standby_not_waited_for) {
    impl.lost = true;
    return InDoubtError("the COMMIT's wait for a synchronous standby was cancelled");
  }
  if (committed.ok()) return committed;
  if (connection->broken()) return InDoubtError(MessageOf(committed));
  // A statement before it that fails keeps the COMMIT from being run.
  if (!unsent_.empty()) connection->Run("ROLLBACK").IgnoreError();
  return committed;
}

absl::Status Transaction::Rollback() {
  Connection* const connection = std::exchange(connection_, nullptr);
  if (connection == nullptr || !begun_ || connection->broken()) return absl::OkStatus();
  return connection->Run("ROLLBACK");
}

}  // namespace lockstep::postgres
