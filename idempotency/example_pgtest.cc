// The C++ of docs/idempotency.md; tests/integration/idempotency_test.sh compares the two.
#include "idempotency/testing/keys_test.h"

namespace lockstep::idempotency_example {
namespace {

using idempotency::KeysTest;

absl::Status Repeat(const idempotency::Answer& taken) {
  return absl::AlreadyExistsError(taken.digest.value_or(""));
}
absl::StatusOr<std::string> Pay(const std::string& request, const std::string& key) {
  return request + " by " + key;
}

absl::Status Charge(postgres::Connection* connection, const std::string& key,
                    const std::string& request) {
  const std::string hash = request;
  idempotency::PostgresStore keys(*connection);  // each call commits by itself
  ASSIGN_OR_RETURN(const idempotency::Answer taken,
                   keys.CheckAndPut({.tenant = "acme", .key = key, .hash = hash}));
  if (taken.outcome != idempotency::Outcome::kGo) return Repeat(taken);
  ASSIGN_OR_RETURN(const std::string charge, Pay(request, key));
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection->Begin());
  RETURN_IF_ERROR(transaction.Run("INSERT INTO shop.receipt (charge) VALUES ($1)", charge));
  RETURN_IF_ERROR(
      idempotency::PostgresStore(transaction).Finish({"acme", key, taken.token}, charge));
  return transaction.Commit();
}

class Example : public KeysTest {};

TEST_F(Example, ChargesOnce) {
  db_.Run("CREATE SCHEMA shop; CREATE TABLE shop.receipt (charge text)");
  EXPECT_TRUE(Charge(connection_.get(), "k", "12 euros").ok());
  EXPECT_EQ(MessageOf(Charge(connection_.get(), "k", "12 euros")), "12 euros by k");
  EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM shop.receipt"), 1);
}

}  // namespace
}  // namespace lockstep::idempotency_example
