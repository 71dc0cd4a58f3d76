#include "tests/support/test_database.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "platform/status.h"

namespace lockstep::testing {
namespace {

std::unique_ptr<postgres::Connection> Open(const std::string& url) {
  postgres::ConnectionOptions options;
  options.url = url;
  options.application_name = "lockstep-test";
  options.settings = "SET search_path = public; ";
  auto connection = postgres::Connection::Open(options);
  if (!connection.ok()) throw std::runtime_error(std::string(MessageOf(connection.status())));
  return *std::move(connection);
}

// postgresql://user@host:port/database
std::string WithDatabase(const std::string& url, const std::string& database) {
  return url.substr(0, url.rfind('/') + 1) + database;
}

}  // namespace

std::string TestCluster() {
  const char* url = std::getenv("LOCKSTEP_TEST_PG");
  return url == nullptr ? "" : url;
}

TestDatabase::TestDatabase() {
  static std::atomic<int> count = 0;
  if (TestCluster().empty()) {
    throw std::runtime_error(
        "this test needs Postgres: run it with scripts/test, or with scripts/with-postgres");
  }
  name_ = fmt::format("test_{}_{}_{}", ::getpid(), ++count, ::time(nullptr));
  auto admin = Open(TestCluster());
  const auto created = admin->Execute("CREATE DATABASE " + name_);
  if (!created.ok()) throw std::runtime_error(std::string(MessageOf(created.status())));
  url_ = WithDatabase(TestCluster(), name_);
  connection_ = Connect();
}

TestDatabase::~TestDatabase() {
  connection_.reset();
  auto admin = Open(TestCluster());
  const auto dropped = admin->Execute(fmt::format("DROP DATABASE {} WITH (FORCE)", name_));
  if (!dropped.ok()) ADD_FAILURE() << dropped.status();
}

std::string TestDatabase::UrlAs(const std::string& role) const {
  const size_t start = url_.find("://") + 3;
  return url_.substr(0, start) + role + url_.substr(url_.find('@'));
}

std::unique_ptr<postgres::Connection> TestDatabase::Connect() const { return Open(url_); }

void TestDatabase::Run(const std::string& sql) {
  const absl::Status done = connection_->Run(sql);
  if (!done.ok()) ADD_FAILURE() << sql << "\n" << done;
}

postgres::Result TestDatabase::Query(const std::string& sql, const postgres::Params& params) {
  auto result = connection_->Execute(sql, params);
  if (!result.ok()) {
    throw std::runtime_error(fmt::format("{}\n{}", sql, MessageOf(result.status())));
  }
  return *std::move(result);
}

int64_t TestDatabase::QueryInt(const std::string& sql, const postgres::Params& params) {
  const postgres::Result result = Query(sql, params);
  return result.empty() ? 0 : result.Int(0, 0);
}

}  // namespace lockstep::testing
