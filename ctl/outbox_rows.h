#pragma once

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "ctl/command.h"
#include "postgres/identifier.h"

namespace lockstep::ctl {

// outbox pending | dead | show | replay | quarantine | release, under `outbox`.
void AddOutboxRows(CLI::App& outbox, Context& context);

// A missing schema or function is a database that was never migrated: says so. A missing `table` is
// no outbox: says where to look.
absl::Status ExplainMissing(const absl::Status& status,
                            const postgres::QualifiedName* table = nullptr);

}  // namespace lockstep::ctl
