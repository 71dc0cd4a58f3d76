// lockstepctl erase: what one aggregate's events say is taken out of Lockstep's own tables.
#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/group/runner_context.h"
#include "platform/status.h"
#include "postgres/identifier.h"
#include "publisher/outbox/outbox_rows.h"
#include "state/events/erasure.h"

namespace lockstep::ctl {
namespace {

struct EraseOptions {
  std::string type, id, tenant, outbox, schema;

  envelope::Aggregate aggregate() const {
    envelope::Aggregate named{.type = type, .id = id};
    if (!tenant.empty()) named.tenant_id = tenant;
    return named;
  }
};

absl::Status Ask(const Context& context, const EraseOptions& options, const std::string& where) {
  return context.Confirm(fmt::format("This erases for good what events of {} {} say, in {}.",
                                     Printable(options.type), Printable(options.id), where));
}

absl::Status EraseInOutbox(const Context& context, const EraseOptions& options) {
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options.outbox));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  RETURN_IF_ERROR(Ask(context, options, table.ToString()));
  const std::string actor = OperatorAtHost();
  ASSIGN_OR_RETURN(const int64_t rows,
                   publisher::EraseRows(*connection, table, options.type, options.id,
                                        options.tenant, actor, context.reason));
  return context.Answer({{"rows", rows}}, [&] { Print("erased: {} rows\n", rows); });
}

absl::Status EraseInState(const Context& context, const EraseOptions& options) {
  ASSIGN_OR_RETURN(const auto runner, OpenRunner(context, options.schema));
  RETURN_IF_ERROR(Ask(context, options, runner.options.state_schema));
  ASSIGN_OR_RETURN(const state::Erased erased,
                   state::EraseAggregate(*runner.connection, runner.schema(), options.aggregate(),
                                         OperatorName(), context.reason));
  return context.Answer({{"dead_letters", erased.dead_letters}, {"parked", erased.parked}}, [&] {
    Print("erased: {} dead letters, {} parked events\n", erased.dead_letters, erased.parked);
  });
}

absl::Status Erase(const Context& context, const EraseOptions& options) {
  return options.outbox.empty() ? EraseInState(context, options) : EraseInOutbox(context, options);
}

}  // namespace

void AddErase(const Command& program) {
  const auto o = std::make_shared<EraseOptions>();
  program
      .Add("erase",
           "take what one aggregate's events say out of an outbox (--outbox), or out of the dead "
           "letters and parked events of a service (--config or --schema); ids and versions stay",
           o, Erase)
      .With({{"type", &o->type, "the aggregate's type, such as video", Option::kRequired},
             {"id", &o->id, "the aggregate's id", Option::kRequired},
             {"--tenant", &o->tenant, "its tenant, where it has one"},
             {"--outbox", &o->outbox, "schema.name of an outbox"},
             {"--schema", &o->schema, "the service's state schema, where no --config says it"}})
      .Changes(Command::kReasonRequired);
}

}  // namespace lockstep::ctl
