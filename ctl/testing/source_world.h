#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "postgres/migrator.h"
#include "runner/testing/binary_world.h"
#include "sql/migrations.h"
#include "tests/support/outbox_status.h"

namespace lockstep::ctl {

using namespace runner;  // fixtures of the runner as a process

// A runner, and beside it an outbox (shop.outbox, in the same database) with the rows of what the
// test publishes.
class SourceWorld : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto connection = world_.database.Connect();
    ASSERT_TRUE(postgres::Migrator(*connection, "lockstep", sql::OutboxMigrations()).Up().ok());
    world_.database.Run("SELECT lockstep.create_outbox('shop.outbox')");
    world_.database.Run(testing::StatusCanBeWritten("shop.outbox"));
    runner_ = world_.Runner();
  }
  // A row as the publisher leaves it, and the event's id. `published`: an expression, or NULL.
  std::string Enqueue(const std::string& item, int64_t version,
                      const std::string& published = "clock_timestamp()") {
    const std::string id = Uuid(++events_);
    world_.database.Run(fmt::format(
        // Also one whose version an outbox would refuse: it came to the bus by another way.
        "SET session_replication_role = replica;"
        "INSERT INTO shop.outbox (event_id, topic, aggregate_type, aggregate_id, event_type, "
        "version, payload, content_type) VALUES ('{0}', 'shop.item', 'item', '{1}', 'ItemChanged', "
        "{2}, '{{\"id\":\"{1}\",\"a\":\"x\"}}', 'application/json');"
        "RESET session_replication_role;"
        "INSERT INTO shop.outbox_pending (sequence, aggregate_hash, version) SELECT sequence, "
        "lockstep.aggregate_hash(aggregate_id, aggregate_type, tenant_id), version FROM "
        "shop.outbox WHERE event_id = '{0}';"
        "UPDATE shop.outbox_status SET published_at = {3} WHERE event_id = '{0}'",
        id, item, version, published));
    return id;
  }
  std::string Publish(const std::string& item, int64_t version, const std::string& data = "") {
    const std::string id = Enqueue(item, version);
    world_.Publish(item, version, data, id);
    return id;
  }
  // Before SetUp: the group knows events again by their versions.
  void GoByVersions() { world_.group_settings = "    inbox: aggregate\n    on_gap: park\n"; }
  // Until so many events wait, are dead or have settled a version: all from version 1 on.
  void AwaitVersions(int64_t events) {
    ASSERT_TRUE(world_.Await([&] {
      return world_.Count(
                 "SELECT coalesce(sum(settled_version + parked), 0) + count(blocked_version) "
                 "FROM feed_state.key_state") == events;
    })) << runner_->Errors();
  }
  void AwaitInbox(int64_t events) {
    ASSERT_TRUE(world_.Await([&] {
      return world_.Count("SELECT count(*) FROM feed_state.inbox") == events;
    })) << runner_->Errors();
  }
  std::string Source() const {
    return " --source '" + world_.database_url + "' --outbox shop.outbox ";
  }
  nlohmann::json Json(const std::string& command, int status = 0) {
    const auto ran = world_.Ctl("--json " + command);
    EXPECT_EQ(ran.status, status) << ran.err << ran.out;
    return nlohmann::json::parse(ran.out, nullptr, false);
  }

  BinaryWorld world_;
  std::unique_ptr<testing::Process> runner_;
  int events_ = 0;
};

}  // namespace lockstep::ctl
