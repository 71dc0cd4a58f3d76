#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "platform/clock.h"
#include "platform/duration.h"

// What commands answer with --json: numbers as numbers, times in RFC 3339, what is not known null.
namespace lockstep::ctl {

using Json = nlohmann::ordered_json;

// A list of what `to_json` makes of each.
template <class List, class ToJson>
Json ListOf(const List& list, const ToJson& to_json) {
  Json array = Json::array();
  for (const auto& item : list) array.push_back(to_json(item));
  return array;
}

template <class Value>
Json OrNull(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}
inline Json OrNull(const std::optional<WallTime>& time) {
  return time ? Json(FormatTimestamp(*time)) : Json(nullptr);
}

// Times that Postgres wrote ("2026-01-31 12:00:00+00") in RFC 3339; what is none stays.
std::string Rfc3339(const std::string& time);
void Rfc3339(Json& object, std::initializer_list<const char*> members);

void PrintJson(const Json& object);

// A string as it is, nothing for null, anything else as JSON.
std::string TextOf(const Json& value);

// An object for people: a line `name value` for each member that is not null, the values aligned;
// of an object or a list several lines. `but`: members that are left out.
void PrintMembers(const Json& object, std::initializer_list<const char*> but = {});

}  // namespace lockstep::ctl
