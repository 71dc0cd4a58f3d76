#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "ctl/testing/offsets_ctl.h"
#include "publisher/backfill/worker.h"

namespace lockstep::ctl {

// Of a table that snapshots can fill.
inline constexpr char kStates[] = R"(group: feed
subscription: items.feed
projections:
  - name: items
    table: rm.items
    key: id
    version: version
    events:
      ItemChanged: {replace: {a: a}}
)";

// A source whose items a, b and c never were events, and a group that knows none of them.
class BackfillCtl : public ::testing::Test {
 protected:
  BackfillCtl() {
    world_.projection = kStates;
    world_.group_settings = "    ack_fence: 500ms\n    seek_takeover: 1s\n";
    world_.database.Run("DROP TRIGGER wait ON rm.items");
    EXPECT_EQ(world_.Ctl("migrate up --set outbox --database " + source_.url()).status, 0);
    EXPECT_EQ(world_.Ctl("outbox create shop.outbox --database " + source_.url()).status, 0);
    source_.Run(
        "CREATE TABLE shop.items (id text PRIMARY KEY, version int, a text);"
        "INSERT INTO shop.items VALUES ('a', 2, '2'), ('b', 1, '1'), ('c', 1, '1')");
    std::ofstream(world_.folder + "/items.yaml") << R"(backfill: items
outbox: shop.outbox
topic: shop.events
table: shop.items
key: [id]
aggregate_type: item
version: version
event_type: ItemChanged
payload:
  fields: [id, a]
)";
  }

  // Its publisher, as far as backfills go.
  void StartPublisher(const std::string& topic = kTopic) {
    sender_ = world_.transport->NewPublisher({});
    worker_ = std::make_unique<publisher::BackfillWorker>(
        publisher::BackfillWorker::Options{.database = source_.url(),
                                           .instance = "publisher",
                                           .outboxes = {"shop.outbox"},
                                           .look = Millis(20)},
        *sender_, [topic](const std::string&) { return topic; }, metrics_);
    EXPECT_TRUE(worker_->Start().ok());
  }
  std::string Declaration() const { return "--declaration " + world_.folder + "/items.yaml "; }
  std::string Source() const { return "--source " + source_.url() + " "; }
  int64_t Backfills(const std::string& where = "true") {
    return source_.QueryInt("SELECT count(*) FROM lockstep.backfills WHERE " + where);
  }

  BinaryWorld world_;
  testing::TestDatabase source_;
  std::unique_ptr<testing::Process> runner_;

 private:
  MetricsRegistry metrics_;
  std::unique_ptr<pubsub::Publisher> sender_;
  std::unique_ptr<publisher::BackfillWorker> worker_;
};

}  // namespace lockstep::ctl
