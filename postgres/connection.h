#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/clock.h"
#include "platform/status.h"
#include "postgres/params.h"
#include "postgres/result.h"

namespace lockstep::postgres {

// Session settings for few rows at a time, found by index, by the same statements again and again:
// none is planned twice (for one row the planner costs more than the execution), and the one plan,
// made when the tables may have been empty, must hold when they are large: so it may not read a
// table from end to end, nor keep one for a join.
inline constexpr char kPlannedOnce[] =
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off; "
    "SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off; ";

struct ConnectionOptions {
  std::string url;  // libpq's URI or key=value form
  std::string application_name = "lockstep";
  Millis connect_timeout{5'000};
  Millis statement_timeout{30'000};  // 0 = none
  Millis lock_timeout{0};            // of one wait for a lock, 55P03; 0 = none
  Millis idle_in_transaction_timeout{60'000};
  Millis idle_session_timeout{0};  // a session that its owner stops pinging is ended
  std::string settings;  // further ones, as statements, each with its semicolon; those above win
};

// A statement that is prepared on first use on each connection. Made for constants:
//   constexpr Statement kClaim{"claim", "UPDATE …"};
struct Statement {
  std::string_view name;  // unique among the statements of one connection
  std::string_view sql;
};

struct Notification {
  std::string channel;
  std::string payload;
};

// What statements are run on: a connection, where each commits by itself, or a transaction. Values
// after the statement are its parameters. Errors are SqlError/InDoubtError statuses: see
// sql_error.h.
class Executor {
 public:
  virtual ~Executor() = default;

  template <class... Values>
  absl::StatusOr<Result> Execute(std::string_view sql, const Values&... values) {
    return ExecuteText(sql, Params(values...));
  }
  template <class... Values>
  absl::StatusOr<Result> Execute(const Statement& statement, const Values&... values) {
    return ExecutePrepared(statement, Params(values...));
  }
  absl::StatusOr<Result> Execute(std::string_view sql, const Params& params) {
    return ExecuteText(sql, params);
  }
  absl::StatusOr<Result> Execute(const Statement& statement, const Params& params) {
    return ExecutePrepared(statement, params);
  }

  // For a statement whose rows nobody wants; without parameters also several, separated by
  // semicolons.
  template <class Sql, class... Values>
  absl::Status Run(const Sql& sql, const Values&... values) {
    return Execute(sql, values...).status();
  }
  // How many rows it has changed.
  template <class Sql, class... Values>
  absl::StatusOr<int64_t> Affected(const Sql& sql, const Values&... values) {
    ASSIGN_OR_RETURN(const Result result, Execute(sql, values...));
    return result.affected_rows();
  }
  // The one number that it answers; 0 for NULL. REQUIRES: it always answers a row.
  template <class Sql, class... Values>
  absl::StatusOr<int64_t> Number(const Sql& sql, const Values&... values) {
    ASSIGN_OR_RETURN(const Result result, Execute(sql, values...));
    return result.Int(0, 0);
  }

 private:
  virtual absl::StatusOr<Result> ExecuteText(std::string_view sql, const Params& params) = 0;
  virtual absl::StatusOr<Result> ExecutePrepared(const Statement& statement,
                                                 const Params& params) = 0;
};

class Transaction;

// One session. Owned by one thread, with all that came from it. Never reconnects by itself: a
// session that broke stays broken (its locks, its LISTENs and its transaction are gone), and its
// owner opens another.
class Connection : public Executor {
 public:
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const ConnectionOptions& options);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // REQUIRES: no other transaction of this connection is open.
  absl::StatusOr<Transaction> Begin();
  // The same without a round trip: the BEGIN goes with the first statement, whose failure it is.
  Transaction BeginLater();

  bool broken() const;
  int backend_pid() const;
  std::string database() const;

  // For LISTEN: what has arrived, without waiting; `socket` to wait on.
  absl::Status Listen(std::string_view channel);
  absl::StatusOr<std::vector<Notification>> TakeNotifications();
  int socket() const;

 private:
  friend class Transaction;
  struct Impl;
  explicit Connection(std::unique_ptr<Impl> impl);

  absl::StatusOr<Result> ExecuteText(std::string_view sql, const Params& params) override;
  absl::StatusOr<Result> ExecutePrepared(const Statement& statement, const Params& params) override;

  std::unique_ptr<Impl> impl_;
};

// Work that commits together or not at all. Rolls back when destroyed uncommitted.
class Transaction : public Executor {
 public:
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction() override;

  // For a statement whose answer nobody needs: it is sent along with the next one or the COMMIT, in
  // one round trip. Its failure is theirs.
  template <class... Values>
  absl::Status Defer(const Statement& statement, const Values&... values) {
    return DeferWith(statement, Params(values...));
  }

  // InDoubtError when the connection was lost before the answer came: it may have happened.
  // A transaction in which a statement failed does not commit.
  absl::Status Commit();
  absl::Status Rollback();

 private:
  friend class Connection;
  explicit Transaction(Connection* connection, std::string_view unsent = "")
      : connection_(connection), begun_(unsent.empty()), unsent_(unsent) {}

  absl::StatusOr<Result> ExecuteText(std::string_view sql, const Params& params) override;
  absl::StatusOr<Result> ExecutePrepared(const Statement& statement, const Params& params) override;
  absl::Status DeferWith(const Statement& statement, const Params& params);
  absl::StatusOr<Result> Send(std::string_view last);
  absl::StatusOr<Result> Note(absl::StatusOr<Result> result);

  Connection* connection_;  // null once ended
  bool begun_;              // the server knows of it
  std::string unsent_;      // statements that go with the next one, each with its semicolon
  absl::Status failed_;     // the first failure since Begin
};

}  // namespace lockstep::postgres
