#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <set>
#include <string>

#include "publisher/backfill/worker.h"
#include "publisher/testing/backfill_test.h"
#include "tests/support/fake_bus.h"

namespace lockstep::publisher {

// A worker, or several, on shop.items and a bus in memory.
class BackfillWorkerTest : public BackfillTest {
 protected:
  static constexpr char kTopic[] = "projects/p/topics/shop.events";

  BackfillWorkerTest() { AddTopic(bus_); }
  static void AddTopic(testing::FakeBus& bus) {
    pubsub::Topic topic;
    topic.name = kTopic;
    EXPECT_TRUE(bus.admin().CreateTopic(topic).ok());
  }

  struct Worker {
    std::unique_ptr<pubsub::Publisher> publisher;
    MetricsRegistry metrics;
    std::unique_ptr<BackfillWorker> worker;
  };
  std::unique_ptr<Worker> Make(testing::FakeBus& bus, const std::string& name = "a",
                               Millis turn = Millis(600'000), const std::string& database = "",
                               Millis lease = Millis(60'000), const std::string& replica = "") {
    auto made = std::make_unique<Worker>();
    made->publisher = bus.NewPublisher({});
    BackfillWorker::Options options{.database = database.empty() ? db_.url() : database,
                                    .replica = replica,
                                    .instance = name,
                                    .outboxes = {kTable},
                                    .look = Millis(5),
                                    .lease = lease,
                                    .turn = turn};
    made->worker = std::make_unique<BackfillWorker>(
        options, *made->publisher,
        [](const std::string& topic) {
          return topic == "shop.events" ? std::string(kTopic) : std::string();
        },
        made->metrics);
    return made;
  }

  std::string Start(const Declaration& declaration) {
    return store_.Create(declaration, 0, "ann", "").value();
  }
  BackfillRecord Of(const std::string& id) { return store_.Find(id).value(); }

  // "1:1 2:1", sorted, each once.
  static std::set<std::string> Sent(const testing::FakeBus& bus) {
    std::set<std::string> rows;
    for (const auto& published : bus.published()) {
      rows.insert(published.message.ordering_key + ":" +
                  published.message.attributes.at("version"));
    }
    return rows;
  }
  static std::set<std::string> Rows(int count) {
    std::set<std::string> rows;
    for (int i = 1; i <= count; ++i) rows.insert(fmt::format("{}:1", i));
    return rows;
  }

  testing::FakeBus bus_;
  std::unique_ptr<postgres::Connection> connection_ = db_.Connect();
  BackfillStore store_{*connection_};
};

}  // namespace lockstep::publisher
