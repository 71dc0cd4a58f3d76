#include "state/groups/audit.h"

#include <utility>

namespace lockstep::state {
namespace {

constexpr std::string_view kNewest = R"(
SELECT id, at, action, operator, reason, old, new,
       old ->> 'epoch' AS old_epoch, new ->> 'epoch' AS new_epoch
  FROM {state}.audit
 WHERE group_name = $1
 ORDER BY id DESC
 LIMIT $2)";

}  // namespace

Audit::Audit(const Schema& schema, ConsumerGroup group)
    : schema_(schema), group_(std::move(group)) {}

absl::StatusOr<postgres::Result> Audit::Newest(postgres::Connection& connection, int limit) const {
  return connection.Execute(schema_.Sql(kNewest), group_.value(), limit);
}

}  // namespace lockstep::state
