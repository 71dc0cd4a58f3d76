#pragma once

#include <atomic>
#include <memory>
#include <pqxx/pqxx>
#include <set>
#include <string>
#include <vector>

#include "postgres/connection.h"

// What a Result and a Connection hold; for this folder's own sources only.
namespace lockstep::postgres {

struct Result::Impl {
  explicit Impl(const pqxx::result& rows) : result(rows) {}

  pqxx::result result;
  mutable std::atomic<int> next_column{0};  // where Result::Column looks first
};

// libpqxx writes warnings to stderr unless told otherwise; ours say nothing that a log line
// doesn't. They are counted: Transaction::Commit wants to know of one.
#if PQXX_VERSION_MAJOR >= 7
struct Warnings {
  explicit Warnings(pqxx::connection& connection) {
    connection.set_notice_handler([this](pqxx::zview) noexcept { ++count; });
  }
  int64_t count = 0;
};
#else
struct Warnings : pqxx::errorhandler {
  explicit Warnings(pqxx::connection_base& connection) : pqxx::errorhandler(connection) {}
  bool operator()(const char[]) noexcept override {
    ++count;
    return false;
  }
  int64_t count = 0;
};
#endif

struct Connection::Impl {
  explicit Impl(const std::string& url) : connection(url), warnings(connection) {}

  template <typename Work>
  absl::StatusOr<Result> Guard(Work work);

  pqxx::connection connection;
  Warnings warnings;
  std::set<std::string, std::less<>> prepared;
  std::set<std::string, std::less<>> known;  // have run: the server has them under their names
  bool lost = false;
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
