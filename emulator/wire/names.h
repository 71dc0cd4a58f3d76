#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::emulator {

// What a subscription names as its topic after the topic was deleted.
inline constexpr char kDeletedTopic[] = "_deleted-topic_";

// `projects/{project}/{collection}/{id}`, taken apart.
struct ResourceName {
  std::string project;
  std::string id;

  // INVALID_ARGUMENT unless `name` is well formed. `collection` is "topics", "subscriptions",
  // "snapshots" or "schemas". An id is 3 to 255 characters, begins with a letter and does not begin
  // with "goog".
  static absl::StatusOr<ResourceName> Parse(std::string_view name, std::string_view collection);
};

// `projects/{project}`.
absl::Status CheckProject(std::string_view name);
// The name of a resource that was created without one, in the project of `beside`.
std::string AssignName(const ResourceName& beside, std::string_view collection);
// The id alone, as CreateSchema has it.
absl::Status CheckId(std::string_view id);

// What the service says of a name that nothing has, and of one that something has already.
absl::Status ResourceNotFound(std::string_view name);
absl::Status ResourceExists(std::string_view name);

}  // namespace lockstep::emulator
