#include "pubsub/names.h"

#include <fmt/format.h>

#include <regex>

namespace lockstep::pubsub {
namespace {

std::string FullName(std::string_view project, std::string_view kind, std::string_view name) {
  if (name.substr(0, 9) == "projects/") return std::string(name);
  return fmt::format("projects/{}/{}/{}", project, kind, name);
}

}  // namespace

std::string TopicName(std::string_view project, std::string_view topic) {
  return FullName(project, "topics", topic);
}

std::string SubscriptionName(std::string_view project, std::string_view subscription) {
  return FullName(project, "subscriptions", subscription);
}

std::string SnapshotName(std::string_view project, std::string_view snapshot) {
  return FullName(project, "snapshots", snapshot);
}

std::string SchemaName(std::string_view project, std::string_view schema) {
  return FullName(project, "schemas", schema);
}

std::string_view ShortName(std::string_view full_name) {
  const size_t slash = full_name.rfind('/');
  return slash == std::string_view::npos ? full_name : full_name.substr(slash + 1);
}

std::string_view ProjectOf(std::string_view full_name) {
  const size_t begin = full_name.find('/') + 1;
  return full_name.substr(begin, full_name.find('/', begin) - begin);
}

std::string SlotSubscription(const std::string& subscription, int slot) {
  return fmt::format("{}.slot{}", DeclaredSubscription(subscription), slot);
}

std::string DeclaredSubscription(const std::string& subscription) {
  static const std::regex kSlot(R"(\.slot\d+$)");
  return std::regex_replace(subscription, kSlot, "");
}

}  // namespace lockstep::pubsub
