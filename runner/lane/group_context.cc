#include "runner/lane/group_context.h"

#include <utility>

#include "postgres/connection.h"

namespace lockstep::runner {

GroupContext::GroupContext(GroupOptions group_options,
                           std::unique_ptr<projections::Projector> group_projector,
                           const GroupEnvironment& group_environment)
    : environment(group_environment),
      options(std::move(group_options)),
      projector(std::move(group_projector)),
      schema(environment.state_schema),
      epochs(schema, ConsumerGroup(options.name)),
      own_offsets(environment.offsets == nullptr ? std::make_unique<state::Offsets>(schema)
                                                 : nullptr),
      batch(schema, epochs.group(), *projector, own_offsets ? *own_offsets : *environment.offsets,
            options.batch_rules()),
      handlers(projector->Calls(), environment.metrics, options.name),
      metrics(environment.metrics, options.name),
      budget(options.dead_letter_budget, options.dead_letter_window),
      witness(schema, epochs, environment.transport.admin(), environment.instance,
              options.checkpoints, 2 * options.ack_fence) {}

postgres::ConnectionOptions GroupContext::connection() const {
  return {.url = environment.database,
          .application_name = "lockstep-runner " + options.name,
          .statement_timeout = options.statement_timeout,
          // Sooner, so that the error tells who waits for somebody from who is slow.
          .lock_timeout = options.statement_timeout * 3 / 4,
          .settings = postgres::kPlannedOnce};
}

}  // namespace lockstep::runner
