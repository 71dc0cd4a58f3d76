#include "web/note.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::web {

using nlohmann::json;

json Note(const char* severity, std::string title, std::string detail,
          const std::vector<Step>& steps) {
  json commands = json::array();
  for (const Step& step : steps) {
    commands.push_back({{"what", step.what}, {"command", step.command}});
  }
  return {{"severity", severity},
          {"title", std::move(title)},
          {"detail", std::move(detail)},
          {"commands", std::move(commands)}};
}

int64_t IntOf(const json& part, const char* name, int64_t otherwise) {
  const auto found = part.find(name);
  return found != part.end() && found->is_number() ? found->get<int64_t>() : otherwise;
}

std::string TextOf(const json& part, const char* name) {
  const auto found = part.find(name);
  return found != part.end() && found->is_string() ? found->get<std::string>() : std::string();
}

const json& PartOf(const json& part, const char* name) {
  static const json kNone = json::array();
  const auto found = part.find(name);
  return found == part.end() || found->is_null() ? kNone : *found;
}

std::string Sentence(std::string text) {
  if (!text.empty() && text.back() != '.' && text.back() != '?' && text.back() != '!') text += '.';
  return text;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) c == '\'' ? quoted += "'\\''" : quoted += c;
  return quoted + "'";
}

}  // namespace lockstep::web
