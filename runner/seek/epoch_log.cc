#include "runner/seek/epoch_log.h"

#include "platform/log/log.h"

namespace lockstep::runner {
namespace {

constexpr std::string_view kNewest = R"(
SELECT action, operator, reason, old, new FROM {state}.audit
 WHERE group_name = $1 ORDER BY id DESC LIMIT 1)";

}  // namespace

void LogEpochChange(postgres::Connection& connection, const offsets::StateSchema& schema,
                    const std::string& group, int64_t epoch) {
  const auto rows = connection.Execute(schema.Sql(kNewest), group);
  const auto text = [&](int column) {
    const bool known = rows.ok() && !rows->empty() && !rows->IsNull(0, column);
    return known ? std::string(rows->Text(0, column)) : std::string();
  };
  log::Info("the epoch has changed", {{"group", group},
                                      {"epoch", epoch},
                                      log::IfAny("action", text(0)),
                                      log::IfAny("operator", text(1)),
                                      log::IfAny("reason", text(2)),
                                      log::IfAny("old", text(3)),
                                      log::IfAny("new", text(4))});
}

}  // namespace lockstep::runner
