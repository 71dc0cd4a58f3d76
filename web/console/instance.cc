#include "web/console/instance.h"

#include <fmt/format.h>

#include <initializer_list>

#include "platform/status.h"
#include "web/note.h"

namespace lockstep::web {
namespace {

using nlohmann::json;

// What one answer can make the console keep.
constexpr size_t kMostParts = 500;  // groups, outboxes, topics, notes
constexpr size_t kLongestText = 300;

json Plain(const json& value) {
  if (value.is_number() || value.is_boolean()) return value;
  if (!value.is_string()) return nullptr;
  const auto& text = value.get_ref<const std::string&>();
  return text.size() <= kLongestText ? text : text.substr(0, kLongestText) + "…";
}

json Pick(const json& part, std::initializer_list<const char*> names) {
  json picked = json::object();
  for (const char* name : names) {
    const auto found = part.find(name);
    picked[name] = found == part.end() ? json(nullptr) : Plain(*found);
  }
  return picked;
}

template <class Each>
json List(const json& part, const char* name, const Each& each) {
  json list = json::array();
  for (const json& item : PartOf(part, name)) {
    if (list.size() >= kMostParts) break;
    if (item.is_object()) list.push_back(each(item));
  }
  return list;
}

// Where a topic's rows go: Pub/Sub topics by their full names, HTTP endpoints by their URL.
json DestinationsOf(const json& topic, const std::string& project) {
  const auto full = [&](const std::string& name) {
    return name.starts_with("projects/") ? name
                                         : fmt::format("projects/{}/topics/{}", project, name);
  };
  json destinations = json::array();
  for (const json& route : PartOf(topic, "routes")) {
    const std::string name = TextOf(route, "route");
    if (name.empty() || destinations.size() >= kMostParts) continue;
    destinations.push_back(name.starts_with("bus:") ? full(name.substr(4)) : name);
  }
  if (destinations.empty()) destinations.push_back(full(TextOf(topic, "topic")));
  return destinations;
}

}  // namespace

absl::StatusOr<json> TellOf(std::string_view body, const Instance& instance) {
  const json document = json::parse(body, nullptr, false);
  if (!document.is_object() || TextOf(document, "role").empty()) {
    return InvalidArgument("what answers there is no Lockstep: no status document");
  }
  const std::string role = TextOf(document, "role");
  if (!instance.role.empty() && role != instance.role) {
    return InvalidArgument("what answers there is a {}, not a {}", role, instance.role);
  }
  const std::string name = TextOf(document, "instance");
  if (!instance.name.empty() && name != instance.name) {
    return InvalidArgument(
        "another instance answers there ({}); does http.advertise say by which address others "
        "reach this one?",
        name);
  }
  const json& database = PartOf(document, "database");
  json told = Pick(document, {"role", "version", "instance", "started_at", "now", "ready"});
  told["database"] = Pick(database, {"address", "schema", "reachable", "error"});
  std::string project;
  for (const json& key : PartOf(document, "config")) {
    if (TextOf(key, "key") == "pubsub.project") project = TextOf(key, "value");
  }
  told["attention"] = List(document, "attention", [](const json& note) {
    return Pick(note, {"severity", "title", "detail"});
  });
  told["groups"] = List(document, "groups", [](const json& group) {
    return Pick(group, {"name", "subscription", "topic", "state", "lag_ms", "lag_basis", "rate",
                        "eta_seconds", "parked_keys_total", "dead_letters_open", "lag_alert_ms"});
  });
  told["outboxes"] = List(document, "outboxes", [&](const json& outbox) {
    json part = Pick(outbox, {"table", "state", "pending", "oldest_ms", "rate", "dead"});
    part["topics"] = List(outbox, "topics", [&](const json& topic) {
      json one = Pick(topic, {"topic", "outage", "published", "last_publish_at"});
      one["to"] = DestinationsOf(topic, project);
      return one;
    });
    return part;
  });
  told["sagas"] = List(document, "sagas", [](const json& saga) {
    return Pick(saga, {"definition", "running", "compensating", "paused", "dead", "rate"});
  });
  return told;
}

}  // namespace lockstep::web
