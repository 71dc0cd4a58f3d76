// A service that runs its consumer in its own process, with a projection in C++ and with offsets in
// a table of its own. Works off what the subscription has, then ends.
//
//   export LOCKSTEP_DATABASE=postgresql://user@host/database
//   lockstepctl migrate up --set state --schema orders_state
//   psql "$LOCKSTEP_DATABASE" -f read_model.sql
//   lockstepctl --config pubsub.yaml provision --yes
//   embedded_runner "$LOCKSTEP_DATABASE" runner.yaml
#include <cstdio>

#include "offsets.h"
#include "runner/service/runner.h"

namespace {

using lockstep::projections::Event;
using lockstep::projections::RowSink;

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

absl::Status Run(const std::string& database, const std::string& config) {
  shop::ShopOffsets offsets;
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
