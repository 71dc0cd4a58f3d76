// A service that runs its publisher in its own process: it writes an order and its event in one
// transaction, and the publisher brings the event to Pub/Sub once that has committed.
//
//   export LOCKSTEP_DATABASE=postgresql://user@host/database
//   lockstepctl migrate up --set outbox
//   lockstepctl outbox create shop.order_outbox
//   psql "$LOCKSTEP_DATABASE" -f orders.sql
//   embedded_publisher "$LOCKSTEP_DATABASE" [PROJECT]
//
// Without a project the topic goes to a route of the program's own (custom:mail), and no Pub/Sub is
// needed.
#include <cstdio>

#include "postgres/connection.h"
#include "publisher/dispatch/in_process_bus.h"
#include "publisher/outbox/enqueue.h"
#include "publisher/service/publisher.h"

namespace {

using lockstep::postgres::Connection;

// Answers the order's id.
absl::StatusOr<std::string> PlaceOrder(Connection& connection) {
  auto transaction = connection.Begin();
  if (!transaction.ok()) return transaction.status();
  const auto written =
      transaction->Execute("INSERT INTO shop.orders (state) VALUES ('placed') RETURNING id");
  if (!written.ok()) return written.status();
  lockstep::publisher::NewEvent event;
  event.topic = "shop.order.placed.v1";
  event.aggregate_type = "order";
  event.aggregate_id = (*written)[0].String("id");
  event.event_type = "shop.OrderPlaced";
  event.version = 1;
  event.content_type = "application/json";
  event.payload = R"({"state": "placed"})";
  const auto enqueued = lockstep::publisher::Enqueue(*transaction, "shop.order_outbox", event);
  if (!enqueued.ok()) return enqueued.status();
  const absl::Status committed = transaction->Commit();
  if (!committed.ok()) return committed;
  return event.aggregate_id;
}

// Places an order and waits until its event has gone where `topics` says. `mail` is the route
// custom:mail, or null.
absl::Status Publish(const lockstep::publisher::PublisherConfig& config,
                     lockstep::publisher::Dispatcher& bus,
                     lockstep::publisher::Dispatcher* mail = nullptr) {
  auto connection = Connection::Open({.url = config.database});
  if (!connection.ok()) return connection.status();
  lockstep::MetricsRegistry metrics;
  lockstep::publisher::PublisherService publisher(config, bus, metrics);
  if (mail != nullptr) publisher.AddRoute("mail", *mail);
  if (const absl::Status started = publisher.Start(); !started.ok()) return started;
  const auto order = PlaceOrder(**connection);
  if (!order.ok()) return order.status();
  const absl::Status drained = publisher.WaitUntilDrained();
  publisher.Stop();
  if (drained.ok()) std::printf("published the event of order %s\n", order->c_str());
  return drained;
}

absl::Status Run(const std::string& database, const std::string& project) {
  lockstep::publisher::PublisherConfig config;
  config.database = database;
  config.tables.emplace_back().table = "shop.order_outbox";
  config.topics["shop.order.placed.v1"] = "shop.order.placed.v1";  // logical -> Pub/Sub
  if (!project.empty()) {
    const auto bus =
        lockstep::publisher::OpenPubsubDispatcher({{"pubsub.project", project}}, config);
    return bus.ok() ? Publish(config, **bus) : bus.status();
  }
  config.topics["shop.order.placed.v1"] = "custom:mail";  // or {"custom:mail", "https://…"}
  lockstep::publisher::InProcessBus mail;
  mail.Subscribe("shop.order.placed.v1", [](const lockstep::publisher::Event& event) {
    std::printf("heard %s of order %s\n", event.row.event_type.c_str(),
                event.row.aggregate_id.c_str());
    return absl::OkStatus();
  });
  lockstep::publisher::NoBus none;
  return Publish(config, none, &mail);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: embedded_publisher postgresql://user@host/database [PROJECT]\n");
    return 2;
  }
  const absl::Status ran = Run(argv[1], argc == 3 ? argv[2] : "");
  if (ran.ok()) return 0;
  std::fprintf(stderr, "embedded_publisher: %s\n", ran.ToString().c_str());
  return 1;
}
