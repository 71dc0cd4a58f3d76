#pragma once

#include <atomic>
#include <memory>
#include <pqxx/pqxx>
#include <set>
#include <string>
#include <vector>

#include "postgres/connection.h"
#include "postgres/statement_deadline.h"

// What a Result and a Connection hold; for this folder's own sources only.
namespace lockstep::postgres {

struct Result::Impl {
  explicit Impl(const pqxx::result& rows) : result(rows) {}

  pqxx::result result;
  mutable std::atomic<int> next_column{0};  // where Result::Column looks first
};

// libpqxx writes notices to stderr unless told otherwise; ours say nothing that a log line doesn't.
// One counts: a COMMIT that waited for a synchronous standby and was cancelled succeeds, and its
// transaction is on this server alone.
struct Notices {
  bool standby_not_waited_for = false;

  // The words come in the server's language; the name of its source file, which a verbose message
  // ends with, does not.
  void Hear(std::string_view text) noexcept {
    if (text.find("syncrep.c") != text.npos) standby_not_waited_for = true;
  }
#if PQXX_VERSION_MAJOR >= 7
  explicit Notices(pqxx::connection& connection) {
    connection.set_notice_handler([this](pqxx::zview text) noexcept { Hear(text); });
  }
#else
  explicit Notices(pqxx::connection_base& connection) : handler(connection, *this) {}
  struct Handler : pqxx::errorhandler {
    Handler(pqxx::connection_base& connection, Notices& to)
        : pqxx::errorhandler(connection), notices(to) {}
    bool operator()(const char text[]) noexcept override {
      notices.Hear(text);
      return false;
    }
    Notices& notices;
  };
  Handler handler;
#endif
};

// A text ends for libpq at its first NUL: what Postgres would refuse it would never see.
absl::Status RefuseNul(const Params& params);

struct Connection::Impl {
  explicit Impl(const std::string& url) : connection(url), notices(connection) {}

  // Runs something that calls libpqxx: its exceptions end here, and so does patience.
  template <typename Work>
  absl::StatusOr<Result> Guard(Work work);
  template <typename Work>
  absl::StatusOr<Result> Try(Work work);
  // Whether what the server says comes with the place in its sources.
  void Verbose(bool on) {
#if PQXX_VERSION_MAJOR >= 7
    connection.set_verbosity(on ? pqxx::error_verbosity::verbose : pqxx::error_verbosity::terse);
#else
    connection.set_verbosity(on ? pqxx::connection_base::verbose : pqxx::connection_base::terse);
#endif
  }

  pqxx::connection connection;
  Notices notices;
  std::set<std::string, std::less<>> prepared;
  std::set<std::string, std::less<>> known;  // have run: the server has them under their names
  bool lost = false;
  std::unique_ptr<StatementDeadline> deadline;
#if PQXX_VERSION_MAJOR < 7
  struct Receiver : pqxx::notification_receiver {
    Receiver(pqxx::connection_base& c, const std::string& name, std::vector<Notification>& to)
        : pqxx::notification_receiver(c, name), inbox(to) {}
    void operator()(const std::string& payload, int) override {
      inbox.push_back({channel(), payload});
    }
    std::vector<Notification>& inbox;
  };
  std::vector<std::unique_ptr<Receiver>> receivers;
#endif
  std::vector<Notification> notifications;
};

}  // namespace lockstep::postgres
