#include <gtest/gtest.h>

#include "postgres/server_load.h"
#include "tests/support/test_database.h"

namespace lockstep::postgres {
namespace {

TEST(ServerLoad, CountsWhatTheServerHasAndAllows) {
  testing::TestDatabase db;
  const auto connection = db.Connect();
  MetricsRegistry metrics;
  ServerLoad load(metrics, "runner");
  ASSERT_TRUE(load.Read(*connection).ok());
  const auto value = [&](const char* name) {
    return GaugeOf(metrics, name, "", {{"role", "runner"}}).Value();
  };
  EXPECT_GE(value("database_connections"), 1) << "this one at least";
  EXPECT_EQ(value("database_connections_max"),
            static_cast<double>(db.QueryInt("SELECT current_setting('max_connections')::int - "
                                            "current_setting('superuser_reserved_connections')"
                                            "::int")));
}

}  // namespace
}  // namespace lockstep::postgres
