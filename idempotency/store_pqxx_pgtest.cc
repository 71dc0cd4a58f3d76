#include "idempotency/store_pqxx.h"
#include "idempotency/testing/keys_test.h"

namespace lockstep::idempotency {
namespace {

class StorePqxx : public KeysTest {};

TEST_F(StorePqxx, WorksInATransactionOfLibpqxx) {
  pqxx::connection connection(db_.url());
  {
    pqxx::work rolled_back(connection);
    EXPECT_EQ(idempotency::CheckAndPut(rolled_back, Ask("k")).outcome, Outcome::kGo);
  }
  EXPECT_EQ(Keys(), 0);
  pqxx::work work(connection);
  Request request = Ask("k");
  request.tenant = "it's \"t\"";
  EXPECT_EQ(idempotency::CheckAndPut(work, request).outcome, Outcome::kGo);
  idempotency::Finish(work, {request.tenant, "k", ""}, "d");
  work.commit();
  pqxx::work again(connection);
  const Answer done = idempotency::CheckAndPut(again, request);
  EXPECT_EQ(done.outcome, Outcome::kDone);
  EXPECT_EQ(done.digest, "d");
  const Answer go = idempotency::CheckAndPut(again, Ask("f"));
  idempotency::Renew(again, {{}, "f", go.token}, Millis(1'000));
  idempotency::Fail(again, {{}, "f", go.token}, "no money");
  EXPECT_EQ(idempotency::CheckAndPut(again, Ask("f")).error, "no money");
}

TEST_F(StorePqxx, ALostKeyIsAnExceptionWithItsSqlState) {
  const std::string late = TakeAndDie("k");
  Jump(Millis(61'000));
  TakeAndDie("k");
  pqxx::connection connection(db_.url());
  pqxx::work work(connection);
  try {
    idempotency::Finish(work, {{}, "k", late}, "d");
    FAIL() << "it was taken";
  } catch (const pqxx::sql_error& error) {
    EXPECT_EQ(error.sqlstate(), kLostSqlState);
  }
}

}  // namespace
}  // namespace lockstep::idempotency
