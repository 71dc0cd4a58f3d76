#pragma once

#include <memory>
#include <string>

#include "postgres/connection.h"

namespace lockstep::testing {

// A database of its own for one test case, on the cluster that LOCKSTEP_TEST_PG names; dropped
// afterwards, with whoever is still connected. Locks, notifications and schemas of parallel cases
// can't meet. Without a cluster the case fails with a sentence (run scripts/test).
class TestDatabase {
 public:
  TestDatabase();
  ~TestDatabase();
  TestDatabase(const TestDatabase&) = delete;
  TestDatabase& operator=(const TestDatabase&) = delete;

  const std::string& url() const { return url_; }
  const std::string& name() const { return name_; }
  // The same database as another role (which the caller has created).
  std::string UrlAs(const std::string& role) const;

  // A new session, as the cluster's superuser. Fails the test when it can't be had.
  std::unique_ptr<postgres::Connection> Connect() const;

  // For short checks, on a session of this object's own: each fails the test when SQL fails.
  void Run(const std::string& sql);
  postgres::Result Query(const std::string& sql, const postgres::Params& params = {});
  int64_t QueryInt(const std::string& sql, const postgres::Params& params = {});

 private:
  std::string url_;
  std::string name_;
  std::unique_ptr<postgres::Connection> connection_;
};

// The address of the cluster, or empty.
std::string TestCluster();

}  // namespace lockstep::testing
