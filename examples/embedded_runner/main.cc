// A service that runs its consumer in its own process, with a projection in C++ and with offsets in
// a table of its own. Works off what the subscription has, then ends.
//
//   export LOCKSTEP_DATABASE=postgresql://user@host/database
//   lockstepctl migrate up --set state --schema orders_state
//   psql "$LOCKSTEP_DATABASE" -f read_model.sql
//   lockstepctl --config pubsub.yaml provision --yes
//   embedded_runner "$LOCKSTEP_DATABASE" runner.yaml
#include <cstdio>

#include "postgres/connection.h"
#include "runner/service/runner.h"
#include "state/positions/offset_provider.h"

namespace {

using lockstep::ConsumerGroup;
using lockstep::postgres::Transaction;
using lockstep::projections::Event;
using lockstep::projections::RowSink;
using lockstep::state::GroupOffset;
using lockstep::state::LaneOffset;
using lockstep::state::ResetRecord;

// How many orders there are in each state.
class OrdersByState : public lockstep::projections::Projection {
 public:
  std::string Name() const override { return "orders_by_state"; }
  bool Wants(const Event& event) const override { return event.event_type == "shop.OrderPlaced"; }
  std::vector<lockstep::projections::CodeTable> Tables() const override {
    return {{.table = "shop_read.orders_by_state", .key = {"state"}, .columns = {"orders"}}};
  }
  absl::Status Map(const Event&, RowSink& rows) const override {
    return rows.Increment(0, {"placed"}, {{"orders", "1"}});
  }
};

// The least of the lanes'. A process that is gone holds it back, which is only ever too careful.
constexpr char kLoad[] =
    "SELECT * FROM shop_read.offsets WHERE consumer_group = $1 "
    "ORDER BY publish_time, message_id LIMIT 1";

// Forward only.
constexpr char kSave[] =
    "INSERT INTO shop_read.offsets AS o "
    "  (consumer_group, instance, lane, subscription, publish_time, message_id, epoch) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7) "
    "ON CONFLICT (consumer_group, instance, lane) DO UPDATE SET "
    "  subscription = excluded.subscription, publish_time = excluded.publish_time, "
    "  message_id = excluded.message_id, epoch = excluded.epoch, updated_at = now() "
    "WHERE (o.publish_time, o.message_id) < (excluded.publish_time, excluded.message_id)";

constexpr char kForget[] = "DELETE FROM shop_read.offsets WHERE consumer_group = $1";

// Keeps the offsets in a table of the service's own, shop_read.offsets, in the transaction of the
// batch that they stand for.
class ShopOffsets : public lockstep::state::OffsetProvider {
 public:
  absl::StatusOr<std::optional<GroupOffset>> Load(Transaction* transaction,
                                                  const ConsumerGroup& group) override {
    const auto rows = transaction->Execute(kLoad, group);
    if (!rows.ok()) return rows.status();
    if (rows->empty()) return std::nullopt;
    const lockstep::postgres::Row row = (*rows)[0];
    return GroupOffset{
        .subscription = row.String("subscription"),
        .position = {.publish_time = row.Time("publish_time"),
                     .message_id = lockstep::MessageId(row.String("message_id"))},
        .epoch = row.Int("epoch"),
        .updated_at = row.Time("updated_at"),
        .updated_by = row.String("instance"),
    };
  }

  absl::Status Save(Transaction* transaction, const LaneOffset& offset) override {
    return transaction->Run(kSave, offset.group, offset.instance, offset.lane, offset.subscription,
                            offset.position.publish_time, offset.position.message_id, offset.epoch);
  }

  absl::Status Reset(Transaction* transaction, const ResetRecord& record) override {
    const absl::Status forgotten = transaction->Run(kForget, record.group);
    if (!forgotten.ok() || !record.to.has_value()) return forgotten;
    return Save(transaction, {.group = record.group,
                              .instance = record.operator_name,
                              .subscription = record.subscription,
                              .position = *record.to,
                              .epoch = record.epoch});
  }
};

absl::Status Run(const std::string& database, const std::string& config) {
  ShopOffsets offsets;
  lockstep::runner::Extensions own;
  own.projections["orders"].push_back(std::make_shared<OrdersByState>());
  own.offsets = &offsets;
  const auto runner = lockstep::runner::Runner::Open(config, {{"database", database}}, own);
  if (!runner.ok()) return runner.status();
  if (const absl::Status started = (*runner)->Start(); !started.ok()) return started;
  const absl::Status ended = (*runner)->RunOnce({});  // a service would go on to its own work
  (*runner)->Stop();
  return ended;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: embedded_runner postgresql://user@host/database runner.yaml\n");
    return 2;
  }
  const absl::Status ran = Run(argv[1], argv[2]);
  if (ran.ok()) return 0;
  std::fprintf(stderr, "embedded_runner: %s\n", ran.ToString().c_str());
  return 1;
}
