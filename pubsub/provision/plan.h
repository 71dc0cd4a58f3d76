#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pubsub/admin.h"

namespace lockstep {
class ConfigSection;
}

namespace lockstep::pubsub {

// The topics, subscriptions and schemas that a file wants. Names are short; `project` makes them
// full.
struct Wanted {
  std::string project;
  struct SchemaFile {
    std::string name;
    std::string file;  // protobuf source
  };
  std::vector<SchemaFile> schemas;
  std::vector<Topic> topics;
  std::vector<Subscription> subscriptions;
};
// The keys `schemas`, `topics` and `subscriptions`.
void Bind(ConfigSection& config, Wanted& wanted);

// One thing to do, in words and as a call.
struct Step {
  std::string action;  // create, update
  std::string what;    // "subscription catalog.events.feed"
  std::string detail;  // what is new or differs
  std::function<absl::Status(Admin&)> run;
};

struct Plan {
  std::vector<Step> steps;            // in an order that works
  std::vector<std::string> warnings;  // names that deviate from the convention
};

// Compares what is wanted with what is there. Fails where something can't be changed any more
// (ordering, filter, topic of a subscription), naming it.
absl::StatusOr<Plan> MakePlan(const Wanted& wanted, Admin& admin);

// The least rights that publisher and runner need, as gcloud commands.
std::vector<std::string> IamCommands(const Wanted& wanted);

}  // namespace lockstep::pubsub
