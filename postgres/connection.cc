#include "postgres/connection.h"

#include <regex>
#include <utility>

#include "absl/strings/str_replace.h"
#include "platform/config/database_address.h"
#include "platform/duration.h"
#include "platform/log/log.h"
#include "platform/text.h"
#include "postgres/connection_impl.h"
#include "postgres/sql_error.h"

namespace lockstep::postgres {
namespace {

constexpr char kConnectionLost[] = "08006";
// So long after statement_timeout a server that works would have answered.
constexpr Millis kAnswerMargin{5'000};
// The classes of the SQLSTATEs that Postgres has itself.
constexpr std::string_view kItsClasses =
    "00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 10 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F "
    "40 42 44 53 54 55 57 58 72 F0 HV LS P0 XX";
// In place of a text that somebody's trigger wrote, which may hold values; it must not be kept.
constexpr char kRaised[] =
    "a function or trigger of the database refused it (RAISE, {}); the server's log says why";

// By RAISE or ASSERT in PL/pgSQL. One that raises a code of Postgres's own can't be told from it.
bool IsRaised(std::string_view sqlstate) {
  return sqlstate == "P0001" || sqlstate == "P0004" ||
         kItsClasses.find(sqlstate.substr(0, 2)) == std::string_view::npos;
}

absl::StatusOr<std::string> ConnectionString(const ConnectionOptions& options) {
  ASSIGN_OR_RETURN(std::string text, ReadPasswordFile(options.url));
  // Of several servers one may be a standby, or a primary that was demoted.
  static const std::regex kSeveralHosts(
      "^postgres(ql)?://([^/?]*@)?[^/?@]*,|(^|[ ?&])host(addr)? *= *[^ &]*,");
  if (std::regex_search(WithoutPassword(options.url), kSeveralHosts)) {
    AddParameter(text, "target_session_attrs", "read-write");
  }
  const int64_t seconds = std::max<int64_t>(2, options.connect_timeout.count() / 1000);
  AddParameter(text, "connect_timeout", fmt::format("{}", seconds));
  AddParameter(text, "application_name", options.application_name);
  // A server whose machine is gone answers nothing, not even a refusal: seconds, not the two hours
  // of the kernel, until that is an error.
  AddParameter(text, "keepalives_idle", "10");
  AddParameter(text, "keepalives_interval", "5");
  AddParameter(text, "keepalives_count", "3");
  AddParameter(text, "tcp_user_timeout", "30000");
  return text;
}

// The caller's settings, whatever the server or the role says. DateStyle and TimeZone make
// timestamps readable by Result::Time. Whoever may create in another schema must not have his
// functions and operators run by us, so that the path has Postgres's own alone. A statement must
// see what was committed before it, not before its transaction: the epoch is read after its lock
// was waited for.
std::string SessionSettings(const ConnectionOptions& options) {
  return fmt::format(
      "SET search_path = pg_catalog, pg_temp; {}SET client_encoding = 'UTF8'; SET DateStyle = ISO; "
      "SET IntervalStyle = postgres; SET extra_float_digits = 1; "
      "SET TimeZone = 'UTC'; SET bytea_output = hex; SET client_min_messages = warning; "
      "SET synchronous_commit = on; SET default_transaction_isolation = 'read committed'; "
      "SET statement_timeout = {}; SET lock_timeout = {}; "
      "SET idle_in_transaction_session_timeout = {}; SET idle_session_timeout = {}; "
      // The server's part of the bargain: the locks of a client whose machine is gone go too.
      "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; "
      "SET tcp_keepalives_count = 3; SET tcp_user_timeout = '30s'",
      options.settings, options.statement_timeout.count(), options.lock_timeout.count(),
      options.idle_in_transaction_timeout.count(), options.idle_session_timeout.count());
}

// As libpqxx wants them. REQUIRES: `params` outlives them.
#if PQXX_VERSION_MAJOR >= 7
pqxx::params Values(const Params& params) {
  pqxx::params values;
  values.reserve(params.values().size());
  for (const auto& value : params.values()) values.append(value);
  return values;
}
#else
std::vector<const char*> Values(const Params& params) {
  std::vector<const char*> values;
  for (const auto& value : params.values()) values.push_back(value ? value->c_str() : nullptr);
  return values;
}
#endif

}  // namespace

// libpqxx 6 gives some of its exceptions no SQLSTATE, and those of class 40 have no place for one.
std::string_view StateOf(const pqxx::sql_error& error) {
  if (!error.sqlstate().empty()) return error.sqlstate();
  if (dynamic_cast<const pqxx::insufficient_privilege*>(&error) != nullptr) return "42501";
  if (dynamic_cast<const pqxx::disk_full*>(&error) != nullptr) return "53100";
  if (dynamic_cast<const pqxx::out_of_memory*>(&error) != nullptr) return "53200";
  return kConnectionLost;
}
#if PQXX_VERSION_MAJOR < 7
std::string_view StateOf(const pqxx::transaction_rollback& error) {
  if (dynamic_cast<const pqxx::serialization_failure*>(&error) != nullptr) return "40001";
  if (dynamic_cast<const pqxx::deadlock_detected*>(&error) != nullptr) return "40P01";
  return "40000";
}
#endif

absl::Status RefuseNul(const Params& params) {
  for (const auto& value : params.values()) {
    if (!value || value->find('\0') == std::string::npos) continue;
    return SqlError("22021", "invalid byte sequence for encoding \"UTF8\": 0x00");
  }
  return absl::OkStatus();
}

template <typename Work>
absl::StatusOr<Result> Connection::Impl::Guard(Work work) {
  auto done = Try(std::move(work));
  if (!deadline || !deadline->passed()) return done;
  lost = true;
  if (done.ok()) return done;  // it came at the last moment
  return SqlError(kConnectionLost, fmt::format("the database has not answered for {}",
                                               FormatDuration(deadline->limit())));
}

template <typename Work>
absl::StatusOr<Result> Connection::Impl::Try(Work work) {
  const StatementDeadline::Waiting waiting(deadline.get());
  try {
    return Result(std::make_shared<Result::Impl>(work()));
  } catch (const pqxx::sql_error& e) {
    // The server's last words to a session that it ends come as an ordinary error.
    if (!connection.is_open()) lost = true;
    // The primary was demoted: another is to be looked for, by a new session.
    if (StateOf(e) == "25006") lost = true;
    return SqlError(StateOf(e), IsRaised(StateOf(e)) ? fmt::format(kRaised, StateOf(e)) : e.what());
#if PQXX_VERSION_MAJOR < 7
  } catch (const pqxx::transaction_rollback& e) {
    return SqlError(StateOf(e), e.what());
#endif
  } catch (const std::exception& e) {
    // Of a connection that is gone libpqxx tells what it could not do without one.
    if (dynamic_cast<const pqxx::broken_connection*>(&e) != nullptr || !connection.is_open()) {
      lost = true;
    }
    return lost ? SqlError(kConnectionLost, "the connection to the database was lost")
                : SqlError("XX000", e.what());
  }
}

absl::StatusOr<Result> Connection::ExecuteText(std::string_view sql, const Params& params) {
  RETURN_IF_ERROR(RefuseNul(params));
  return impl_->Guard([&] {
    const std::string text(sql);
    pqxx::nontransaction run(impl_->connection);
    if (params.values().empty()) return run.exec(text);
    auto values = Values(params);
#if PQXX_VERSION_MAJOR < 7
    return run.exec_params(text, pqxx::prepare::make_dynamic_params(values));
#elif PQXX_VERSION_MAJOR > 7 || PQXX_VERSION_MINOR >= 9
    return run.exec(pqxx::zview(text), values);
#else
    return run.exec_params(pqxx::zview(text), values);
#endif
  });
}

absl::StatusOr<Result> Connection::ExecutePrepared(const Statement& statement,
                                                   const Params& params) {
  RETURN_IF_ERROR(RefuseNul(params));
  auto result = impl_->Guard([&] {
    const std::string name(statement.name);
    if (!impl_->prepared.contains(statement.name)) {
      impl_->connection.prepare(name, std::string(statement.sql));
      impl_->prepared.insert(name);
    }
    pqxx::nontransaction run(impl_->connection);
    auto values = Values(params);
#if PQXX_VERSION_MAJOR < 7
    return run.exec_prepared(name, pqxx::prepare::make_dynamic_params(values));
#elif PQXX_VERSION_MAJOR > 7 || PQXX_VERSION_MINOR >= 9
    return run.exec(pqxx::prepped{name}, values);
#else
    return run.exec_prepared(pqxx::zview(name), values);
#endif
  });
  if (result.ok() && !impl_->known.contains(statement.name)) impl_->known.emplace(statement.name);
  return result;
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const ConnectionOptions& options) {
  std::unique_ptr<Impl> impl;
  const auto address = ConnectionString(options);
  if (!address.ok()) {
    return SqlError(kConnectionLost, fmt::format("can't connect to Postgres: its password file: {}",
                                                 MessageOf(address.status())));
  }
  try {
    impl = std::make_unique<Impl>(*address);
#if PQXX_VERSION_MAJOR >= 7
    impl->connection.set_verbosity(pqxx::error_verbosity::terse);
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    // libpqxx 6 would reconnect in silence; there is no other way to forbid it.
    impl->connection.activate();
    impl->connection.inhibit_reactivation(true);
#pragma GCC diagnostic pop
    impl->connection.set_verbosity(pqxx::connection_base::terse);
#endif
  } catch (const std::exception& e) {
    const std::string line = absl::StrReplaceAll(std::string(Trim(e.what())), {{"\n", " "}});
    // libpq names host, user and database; of an address that it can't read it quotes any part.
    return SqlError(kConnectionLost,
                    fmt::format("can't connect to Postgres: {}", ScrubPassword(line, *address)));
  }
  if (options.statement_timeout > Millis(0)) {
    impl->deadline = std::make_unique<StatementDeadline>(impl->connection.sock(),
                                                         options.statement_timeout + kAnswerMargin);
    if (!impl->deadline->can_shut()) {
      return SqlError(kConnectionLost, "no file descriptor is left for the session");
    }
  }
  std::unique_ptr<Connection> opened(new Connection(std::move(impl)));
  RETURN_IF_ERROR(opened->Run(SessionSettings(options)));
  return opened;
}

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::~Connection() = default;

absl::StatusOr<Transaction> Connection::Begin() {
  RETURN_IF_ERROR(Run("BEGIN"));
  return Transaction(this);
}

Transaction Connection::BeginLater() { return Transaction(this, "BEGIN; "); }

bool Connection::broken() const { return impl_->lost || !impl_->connection.is_open(); }
int Connection::backend_pid() const { return impl_->connection.backendpid(); }
std::string Connection::database() const { return impl_->connection.dbname(); }
int Connection::socket() const { return impl_->connection.sock(); }

absl::Status Connection::Listen(std::string_view channel) {
  const auto listening = impl_->Guard([&] {
    const std::string name(channel);
#if PQXX_VERSION_MAJOR >= 7
    impl_->connection.listen(name, [this](pqxx::notification event) {
      impl_->notifications.push_back({std::string(event.channel), std::string(event.payload)});
    });
#else
    impl_->receivers.push_back(
        std::make_unique<Impl::Receiver>(impl_->connection, name, impl_->notifications));
#endif
    return pqxx::result();
  });
  return listening.status();
}

absl::StatusOr<std::vector<Notification>> Connection::TakeNotifications() {
  const auto taken = impl_->Guard([&] {
    impl_->connection.get_notifs();
    return pqxx::result();
  });
  if (!taken.ok()) return taken.status();
  return std::exchange(impl_->notifications, {});
}

}  // namespace lockstep::postgres
