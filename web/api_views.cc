#include "web/api_views.h"

#include <nlohmann/json.hpp>

namespace lockstep::web {
namespace {

using nlohmann::json;

const json& ArrayOf(const json& part, const char* name) {
  static const json kNone = json::array();
  const auto found = part.find(name);
  return found == part.end() || !found->is_array() ? kNone : *found;
}

// The named members, those that are missing as null: readers find every field every time.
json Pick(const json& part, std::initializer_list<const char*> names) {
  json picked = json::object();
  for (const char* name : names) picked[name] = part.contains(name) ? part[name] : json(nullptr);
  return picked;
}

// Of every part of a list.
json PickEach(const json& document, const char* list, std::initializer_list<const char*> names) {
  json parts = json::array();
  for (const json& part : ArrayOf(document, list)) parts.push_back(Pick(part, names));
  return parts;
}

json Stamped(const json& document) { return Pick(document, {"now", "role", "instance"}); }

bool Wanted(const std::map<std::string, std::string>& query, const char* name,
            const std::string& value) {
  const auto found = query.find(name);
  return found == query.end() || found->second == value;
}

}  // namespace

json LagView(const json& document) {
  json view = Stamped(document);
  view["groups"] = PickEach(document, "groups",
                            {"name", "subscription", "state", "lag_ms", "lag_basis", "stages",
                             "rate", "eta_seconds", "heartbeat_age_ms", "last_commit_at",
                             "parked_keys_total", "parked_events", "dead_letters_open"});
  view["outboxes"] = PickEach(document, "outboxes",
                              {"table", "state", "pending", "locked", "dead", "quarantined",
                               "oldest_ms", "rate", "eta_seconds"});
  return view;
}

json OffsetsView(const json& document) {
  json view = Stamped(document);
  view["groups"] = PickEach(document, "groups",
                            {"name", "subscription", "epoch", "generation", "slot", "offset",
                             "lane_offsets", "history", "checkpoints"});
  return view;
}

json OffsetsExport(const json& document) {
  json view = {{"exported_at", document.value("now", "")}, {"offsets", json::array()}};
  for (const json& group : ArrayOf(document, "groups")) {
    for (json lane : ArrayOf(group, "lane_offsets")) {
      lane["group"] = group.value("name", "");
      view["offsets"].push_back(std::move(lane));
    }
  }
  return view;
}

json DeadLettersView(const json& document, const std::map<std::string, std::string>& query) {
  json view = Stamped(document);
  view["dead_letters"] = json::array();
  for (const json& group : ArrayOf(document, "groups")) {
    if (!Wanted(query, "group", group.value("name", "")) || query.contains("table")) continue;
    for (json letter : ArrayOf(group, "dead_letters")) {
      const json key = letter.contains("key") ? letter["key"] : json(nullptr);
      if (!Wanted(query, "key", key.is_string() ? key.get<std::string>() : "") &&
          !Wanted(query, "key", letter.value("ordering_key", ""))) {
        continue;
      }
      letter["group"] = group.value("name", "");
      view["dead_letters"].push_back(std::move(letter));
    }
  }
  view["dead_rows"] = json::array();
  for (const json& outbox : ArrayOf(document, "outboxes")) {
    if (!Wanted(query, "table", outbox.value("table", "")) || query.contains("group")) continue;
    for (json row : ArrayOf(outbox, "dead_rows")) {
      if (!Wanted(query, "key", row.value("aggregate_id", ""))) continue;
      row["table"] = outbox.value("table", "");
      view["dead_rows"].push_back(std::move(row));
    }
  }
  return view;
}

}  // namespace lockstep::web
