#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "idempotency/postgres_store.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "sql/migrations.h"
#include "tests/support/test_database.h"

namespace lockstep::idempotency {

inline Request Ask(const std::string& key, const std::string& hash = "h") {
  Request request;
  request.key = key;
  request.hash = hash;
  return request;
}

// A database with idempotency keys.
class KeysTest : public ::testing::Test {
 protected:
  KeysTest() {
    const auto migrated =
        postgres::Migrator(*connection_, "lockstep", sql::IdempotencyMigrations()).Up();
    EXPECT_TRUE(migrated.ok()) << migrated.status();
  }

  // The database's clock jumps: all that is written is so much older, or younger, than it was.
  void Jump(Millis by) {
    db_.Run(
        fmt::format("UPDATE lockstep.idempotency_keys SET lease_until = lease_until - {0}, "
                    "expires_at = expires_at - {0}, created_at = created_at - {0}, "
                    "updated_at = updated_at - {0}",
                    fmt::format("interval '{} milliseconds'", by.count())));
  }
  // The key is taken by a caller that is not heard of again; its token.
  std::string TakeAndDie(const std::string& key) {
    const auto connection = db_.Connect();
    return PostgresStore(*connection).CheckAndPut(Ask(key))->token;
  }
  // By one that comes on a session of its own.
  Answer Call(const Request& request) {
    const auto connection = db_.Connect();
    const auto answer = PostgresStore(*connection).CheckAndPut(request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.value_or(Answer());
  }
  Outcome OutcomeOf(const std::string& key) { return Call(Ask(key)).outcome; }
  int64_t Keys(const std::string& where = "true") {
    return db_.QueryInt("SELECT count(*) FROM lockstep.idempotency_keys WHERE " + where);
  }

  testing::TestDatabase db_;
  const std::unique_ptr<postgres::Connection> connection_ = db_.Connect();
  PostgresStore store_{*connection_};
};

}  // namespace lockstep::idempotency
