#include "runner/seek/epoch_log.h"

#include "platform/log/log.h"
#include "state/groups/overview.h"

namespace lockstep::runner {

void LogEpochChange(postgres::Connection& connection, const state::Schema& schema,
                    const std::string& group, int64_t epoch) {
  const auto rows = state::Overview(schema).History(connection, ConsumerGroup(group), 1);
  const auto text = [&](std::string_view column) {
    return rows.ok() && !rows->empty() ? (*rows)[0].String(column) : std::string();
  };
  log::Info("the epoch has changed", {{"group", group},
                                      {"epoch", epoch},
                                      log::IfAny("action", text("action")),
                                      log::IfAny("operator", text("operator")),
                                      log::IfAny("reason", text("reason")),
                                      log::IfAny("old", text("old")),
                                      log::IfAny("new", text("new"))});
}

}  // namespace lockstep::runner
