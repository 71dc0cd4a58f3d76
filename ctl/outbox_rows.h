#pragma once

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "ctl/command.h"

namespace lockstep::ctl {

// outbox pending | dead | show | replay | quarantine | release, under `outbox`.
void AddOutboxRows(CLI::App& outbox, Context& context);

// A missing schema or function is a database that was never migrated: says so.
absl::Status ExplainMissing(const absl::Status& status);

}  // namespace lockstep::ctl
