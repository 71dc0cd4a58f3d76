#include "web/console/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "platform/duration.h"
#include "platform/http_client/url.h"
#include "web/document.h"
#include "web/note.h"

namespace lockstep::web {
namespace {

using nlohmann::json;

using Parts = std::map<std::string, json>;  // by key

// Null is "not known", and loses against whatever is.
void Add(json& to, const char* name, const json& value) {
  if (value.is_number())
    to[name] =
        to[name].is_number() ? to[name].get<double>() + value.get<double>() : value.get<double>();
}
void Greatest(json& to, const char* name, const json& value) {
  if (value.is_number() && (!to[name].is_number() || to[name] < value)) to[name] = value;
}

// The worst word of several instances is the one to show.
int Badness(const std::string& state) {
  for (const char* word : {"halted", "stuck", "waiting", "no stream"}) {
    if (state == word) return 3;
  }
  for (const char* word :
       {"out of reach", "behind", "paused", "retrying", "no heartbeat", "seeking", "off"}) {
    if (state == word) return 2;
  }
  return state == "standby" || state == "quiet" ? 0 : 1;
}
void Worst(json& to, const json& state) {
  if (!state.is_string()) return;
  if (!to["state"].is_string() || Badness(to["state"]) < Badness(state)) to["state"] = state;
}

std::string ShortName(const std::string& topic) { return topic.substr(topic.rfind('/') + 1); }

json InstanceJson(const Asked& asked) {
  const Instance& instance = asked.instance;
  json part = {{"address", instance.address},
               {"reachable_address", http::ParseUrl(instance.address).ok()},
               {"role", instance.role},
               {"instance", instance.name},
               {"version", nullptr},
               {"ready", nullptr},
               {"started_at", nullptr},
               {"answers", asked.answers},
               {"fault", asked.fault},
               {"since", TimeOrNull(asked.since)},
               {"answered_at", TimeOrNull(asked.answered_at)},
               {"found_in", instance.found_in},
               {"seen_at", TimeOrNull(instance.seen_at)}};
  if (asked.told.is_object()) {
    for (const char* name : {"role", "instance", "version", "ready", "started_at"}) {
      part[name] = asked.told[name];
    }
    if (!asked.answers) part["ready"] = nullptr;
  }
  return part;
}

void AddOutbox(const json& outbox, const std::string& database, Parts& sources, Parts& topics) {
  const std::string table = TextOf(outbox, "table");
  json& source = sources[database + "\n" + table];
  if (source.is_null()) {
    source = {{"key", database + "\n" + table},
              {"table", table},
              {"database", database},
              {"state", nullptr},
              {"pending", nullptr},
              {"oldest_ms", nullptr},
              {"rate", nullptr},
              {"dead", nullptr},
              {"publishers", 0},
              {"to", json::array()}};
  }
  source["publishers"] = source["publishers"].get<int>() + 1;
  Worst(source, outbox["state"]);
  Add(source, "rate", outbox["rate"]);
  for (const char* name : {"pending", "oldest_ms", "dead"}) Greatest(source, name, outbox[name]);
  for (const json& topic : PartOf(outbox, "topics")) {
    for (const json& to : PartOf(topic, "to")) {
      const std::string key = to;
      json& part = topics[key];
      const bool http = key.find("://") != std::string::npos;
      if (part.is_null()) {
        part = {{"key", key},
                {"name", http ? key : ShortName(key)},
                {"kind", http ? "http" : "pubsub"},
                {"published", nullptr},
                {"outage", ""}};
      }
      Add(part, "published", topic["published"]);
      if (const std::string outage = TextOf(topic, "outage"); !outage.empty()) {
        part["outage"] = outage;
      }
      if (std::ranges::find(source["to"], to) == source["to"].end()) source["to"].push_back(to);
    }
  }
}

void AddGroup(const json& told, const std::string& database, Parts& groups, Parts& topics) {
  const std::string name = TextOf(told, "name");
  json& group = groups[database + "\n" + name];
  if (group.is_null()) {
    group = {{"key", database + "\n" + name},
             {"name", name},
             {"database", database},
             {"subscription", told["subscription"]},
             {"topic", nullptr},
             {"state", nullptr},
             {"lag_ms", nullptr},
             {"rate", nullptr},
             {"eta_seconds", nullptr},
             {"parked", nullptr},
             {"dead", nullptr},
             {"runners", 0},
             {"late", false}};
  }
  group["runners"] = group["runners"].get<int>() + 1;
  Worst(group, told["state"]);
  Add(group, "rate", told["rate"]);
  Greatest(group, "lag_ms", told["lag_ms"]);
  Greatest(group, "eta_seconds", told["eta_seconds"]);
  Greatest(group, "parked", told["parked_keys_total"]);
  Greatest(group, "dead", told["dead_letters_open"]);
  if (IntOf(told, "lag_ms") > IntOf(told, "lag_alert_ms", 300'000)) group["late"] = true;
  const std::string topic = TextOf(told, "topic");
  if (topic.empty()) return;
  group["topic"] = topic;
  json& part = topics[topic];  // one that nobody here publishes to has its place too
  if (part.is_null()) {
    part = {{"key", topic},
            {"name", ShortName(topic)},
            {"kind", "pubsub"},
            {"published", nullptr},
            {"outage", ""}};
  }
}

json Values(const Parts& parts) {
  json list = json::array();
  for (const auto& [key, part] : parts) list.push_back(part);
  return list;
}

}  // namespace

json Picture(const std::vector<Asked>& asked, WallTime now) {
  json instances = json::array(), attention = json::array();
  Parts sources, topics, groups, sagas;
  for (const Asked& one : asked) {
    instances.push_back(InstanceJson(one));
    if (!one.answers || !one.told.is_object()) continue;
    const json& told = one.told;
    const json& database = PartOf(told, "database");
    const std::string place = TextOf(database, "address");
    for (const json& outbox : PartOf(told, "outboxes")) AddOutbox(outbox, place, sources, topics);
    for (const json& group : PartOf(told, "groups")) {
      AddGroup(group, place + " " + TextOf(database, "schema"), groups, topics);
    }
    for (const json& saga : PartOf(told, "sagas")) {
      json& part = sagas[place + "\n" + TextOf(saga, "definition")];
      if (part.is_null()) part = {{"definition", saga["definition"]}, {"rate", nullptr}};
      for (const char* name : {"running", "compensating", "paused", "dead"}) {
        Greatest(part, name, saga[name]);
      }
      Add(part, "rate", saga["rate"]);
    }
    for (const json& note : PartOf(told, "attention")) {
      const bool known = std::ranges::any_of(
          attention, [&](const json& other) { return other["title"] == note["title"]; });
      if (known) continue;  // every instance of a group tells of the same key
      attention.push_back(note);
      attention.back()["address"] = one.instance.address;
    }
  }
  std::ranges::stable_sort(instances.get_ref<json::array_t&>(), {}, [](const json& part) {
    return std::tuple(part["answers"].get<bool>(), TextOf(part, "role"), TextOf(part, "instance"));
  });
  std::stable_partition(attention.begin(), attention.end(),
                        [](const json& note) { return TextOf(note, "severity") == "bad"; });
  return {{"now", FormatTimestamp(now)}, {"instances", instances},   {"sources", Values(sources)},
          {"topics", Values(topics)},    {"groups", Values(groups)}, {"sagas", Values(sagas)},
          {"attention", attention}};
}

}  // namespace lockstep::web
