// A service that runs its publisher in its own process and hears its own events: it writes an order
// and its event in one transaction, and a handler gets the event once that has committed.
//
//   embedded_publisher postgresql://user@host/database
//
// With Pub/Sub in place of the in-process bus, the dispatcher is
//   publisher::MakePubsubDispatcher(*transport, "my-project", config).
#include <cstdio>
#include <future>

#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "publisher/dispatch/in_process_bus.h"
#include "publisher/outbox/enqueue.h"
#include "publisher/service/publisher.h"
#include "sql/migrations.h"

namespace {

absl::Status PlaceOrder(lockstep::postgres::Connection& connection) {
  auto transaction = connection.Begin();
  if (!transaction.ok()) return transaction.status();
  const auto written =
      transaction->Execute("INSERT INTO orders (state) VALUES ('placed') RETURNING id");
  if (!written.ok()) return written.status();
  lockstep::publisher::NewEvent event;
  event.topic = "shop.order.placed.v1";
  event.aggregate_type = "order";
  event.aggregate_id = std::string(written->Text(0, 0));
  event.event_type = "shop.OrderPlaced";
  event.version = 1;
  event.content_type = "application/json";
  event.payload = R"({"state": "placed"})";
  const auto enqueued = lockstep::publisher::Enqueue(*transaction, "shop.order_outbox", event);
  if (!enqueued.ok()) return enqueued.status();
  return transaction->Commit();
}

absl::Status Run(const std::string& database) {
  auto connection = lockstep::postgres::Connection::Open({.url = database});
  if (!connection.ok()) return connection.status();
  // What lockstepctl migrate up and lockstepctl outbox create do.
  const auto migrated =
      lockstep::postgres::Migrator(**connection, "lockstep", lockstep::sql::OutboxMigrations())
          .Up();
  if (!migrated.ok()) return migrated.status();
  const absl::Status made = (*connection)
                                ->Run(
                                    "SELECT lockstep.create_outbox('shop.order_outbox'); "
                                    "CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED "
                                    "ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL)");
  if (!made.ok()) return made;

  std::promise<std::string> heard;
  lockstep::publisher::InProcessBus bus;
  bus.Subscribe("shop.order.placed.v1", [&](const lockstep::publisher::Event& event) {
    heard.set_value(event.row.event_type + " of order " + event.row.aggregate_id);
    return absl::OkStatus();
  });
  lockstep::publisher::PublisherConfig config;
  config.database = database;
  config.tables.push_back({.table = "shop.order_outbox"});
  lockstep::MetricsRegistry metrics;
  lockstep::publisher::PublisherService publisher(config, bus, metrics);
  if (const absl::Status started = publisher.Start(); !started.ok()) return started;
  if (const absl::Status placed = PlaceOrder(**connection); !placed.ok()) return placed;
  std::printf("heard %s\n", heard.get_future().get().c_str());
  const absl::Status drained = publisher.WaitUntilDrained();
  publisher.Stop();
  return drained;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: embedded_publisher postgresql://user@host/database\n");
    return 2;
  }
  const absl::Status ran = Run(argv[1]);
  if (ran.ok()) return 0;
  std::fprintf(stderr, "embedded_publisher: %s\n", ran.ToString().c_str());
  return 1;
}
