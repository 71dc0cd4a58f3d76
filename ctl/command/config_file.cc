#include "ctl/command/config_file.h"

#include <algorithm>
#include <set>

#include "platform/config/config.h"
#include "platform/config/top_keys.h"
#include "platform/status.h"

namespace lockstep::ctl {
namespace {

using Kind = ConfigFile::Kind;

Kind KindOf(const std::set<std::string>& keys) {
  const auto has = [&](std::initializer_list<const char*> some) {
    return std::ranges::any_of(some, [&](const char* key) { return keys.contains(key); });
  };
  if (has({"saga"})) return Kind::kSaga;
  if (has({"projections", "handlers", "group"})) return Kind::kGroup;
  if (has({"aggregate_type"})) return Kind::kBackfill;
  if (has({"groups", "state_schema", "dead_letter_retention"})) return Kind::kRunner;
  if (has({"relay", "topic_style", "any_topic", "cleaner", "routes"})) return Kind::kPublisher;
  if (has({"subscriptions", "schemas"})) return Kind::kTopics;
  if (has({"topics"})) return has({"database"}) ? Kind::kPublisher : Kind::kTopics;
  if (has({"workers", "lease", "limits", "actions", "retention"})) return Kind::kOrchestrator;
  return Kind::kNone;
}

}  // namespace

const char* Describe(Kind kind) {
  switch (kind) {
    case Kind::kPublisher:
      return "a publisher's configuration";
    case Kind::kRunner:
      return "a runner's configuration";
    case Kind::kOrchestrator:
      return "an orchestrator's configuration";
    case Kind::kTopics:
      return "a file of topics and subscriptions, for `lockstepctl provision`";
    case Kind::kGroup:
      return "a group's file, which a runner's configuration names";
    case Kind::kBackfill:
      return "a backfill's file";
    case Kind::kSaga:
      return "a saga's definition";
    case Kind::kNone:
      break;
  }
  return "none of Lockstep's files";
}

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& file) {
  ConfigFile read{.file = file};
  if (file.empty()) return read;
  ASSIGN_OR_RETURN(const auto keys, ReadTopKeys(file));
  read.kind = KindOf(keys);
  if (read.kind == Kind::kRunner) {
    ASSIGN_OR_RETURN(read.state_schema, ReadTopKey(file, "state_schema"));
    if (read.state_schema.empty()) read.state_schema = "lockstep_state";
  }
  return read;
}

}  // namespace lockstep::ctl
