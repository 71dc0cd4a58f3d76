#include "ctl/command/json.h"

#include <algorithm>

#include "ctl/command/print.h"
#include "ctl/command/terminal.h"

namespace lockstep::ctl {

std::string Rfc3339(const std::string& time) {
  std::string text = time;
  if (text.size() > 10 && text[10] == ' ') text[10] = 'T';
  // Postgres writes whole hours from UTC as +00.
  if (text.size() > 3 && (text[text.size() - 3] == '+' || text[text.size() - 3] == '-') &&
      text.find(':') != std::string::npos) {
    text += ":00";
  }
  const auto parsed = ParseTimestamp(text);
  return parsed.ok() ? FormatTimestamp(*parsed) : time;
}

void Rfc3339(Json& object, std::initializer_list<const char*> members) {
  for (const char* name : members) {
    const auto member = object.find(name);
    if (member != object.end() && member->is_string())
      *member = Rfc3339(member->get<std::string>());
  }
}

void PrintJson(const Json& object) {
  Print("{}\n", Lines{object.dump(2, ' ', false, Json::error_handler_t::replace)});
}

std::string TextOf(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.dump(value.is_object() ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

void PrintMembers(const Json& object, std::initializer_list<const char*> but) {
  const auto shown = [&](const std::string& name, const Json& value) {
    return !value.is_null() && std::ranges::find(but, name) == but.end();
  };
  size_t width = 0;
  for (const auto& [name, value] : object.items()) {
    if (shown(name, value)) width = std::max(width, name.size());
  }
  for (const auto& [name, value] : object.items()) {
    if (!shown(name, value)) continue;
    const std::string text = TextOf(value);
    const std::string label = Painted(fmt::format("{:<{}}", name, width), Style::kDim, stdout);
    if (value.is_string()) {
      fmt::print("{}  {}\n", label, Printable(text));
    } else {
      fmt::print("{}  {}\n", label, Printable(text, /*keep_lines=*/true));
    }
  }
}

}  // namespace lockstep::ctl
