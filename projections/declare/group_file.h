#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "platform/strong_id.h"
#include "projections/model/projection.h"
#include "projections/write/group_projector.h"

namespace lockstep::projections {

struct LoadOptions {
  // Appended to the name of every table, so that a rebuild's shadow slot writes beside the live
  // tables. Empty = the tables as declared.
  std::string table_suffix;
  // The service's own schema, where `row_versions` (the tombstones of hard deletes) and
  // `projection_fields` live. REQUIRES: set when a projection of the file deletes hard.
  std::string state_schema;
  // A group with projections in C++ may do without declared ones.
  CodeProjections code;
};

// One value of the file's `settings:` map, which belongs to the runner.
struct Setting {
  std::string text;   // a list of scalars is joined with commas
  std::string place;  // file:line:column, for messages
};

// A consumer group, as one YAML file declares it.
struct GroupDeclaration {
  std::string file;
  ConsumerGroup name;
  std::string subscription;
  // `settings:`, nested keys joined with dots (`retry.base`). Not looked at here.
  std::map<std::string, Setting> settings;
  std::string handlers;  // a hash of what stands under `handlers:`; empty = nothing
  std::unique_ptr<GroupProjector> projector;
};

// Reads the file and its descriptor sets. The status lists every mistake, one per line, each with
// file, line, column and cure. Touches no database: Projector::Check does that.
absl::StatusOr<GroupDeclaration> LoadGroup(const std::string& file,
                                           const LoadOptions& options = {});

// What LoadGroup makes its projector of; `declaration` gets the rest of the file.
absl::StatusOr<GroupPlan> LoadPlan(const std::string& file, const LoadOptions& options,
                                   GroupDeclaration* declaration);

}  // namespace lockstep::projections
