#include "sagas/definition/path.h"

#include <algorithm>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::sagas {
namespace {

bool NameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || static_cast<unsigned char>(c) >= 0x80;
}

std::string TakeName(std::string_view* text) {
  const auto end = std::ranges::find_if_not(*text, NameCharacter);
  std::string name(text->begin(), end);
  text->remove_prefix(name.size());
  return name;
}

// What stands in brackets, quoted, as JSON's string.
bool TakeQuoted(std::string_view* text, std::string* name) {
  size_t end = 1;
  while (end < text->size() && (*text)[end] != '"') end += (*text)[end] == '\\' ? 2 : 1;
  if (end >= text->size()) return false;
  const Json parsed = Json::parse(text->substr(0, end + 1), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_string()) return false;
  *name = parsed.get<std::string>();
  text->remove_prefix(end + 1);
  return true;
}

}  // namespace

absl::StatusOr<Path> Path::Take(std::string_view* text) {
  const std::string_view whole = *text;
  text->remove_prefix(2);
  Path path;
  path.root_ = TakeName(text);
  if (path.root_.empty()) {
    return InvalidArgument("a name is wanted after '$.': $.input, $.steps or $.saga");
  }
  while (!text->empty()) {
    if (path.parts_.size() >= kMaxNames) {
      return InvalidArgument("a path has more than {} names", kMaxNames);
    }
    if (text->front() == '.') {
      text->remove_prefix(1);
      std::string name = TakeName(text);
      if (name.empty()) {
        return InvalidArgument(
            "a name is wanted after '.'; one with other characters than letters, digits, _ and - "
            "is written [\"so\"]");
      }
      path.parts_.emplace_back(std::move(name));
    } else if (text->front() == '[') {
      text->remove_prefix(1);
      if (text->starts_with('"')) {
        std::string name;
        if (!TakeQuoted(text, &name)) {
          return InvalidArgument("the name in [\"…\"] does not end, or is no JSON string");
        }
        path.parts_.emplace_back(std::move(name));
      } else {
        size_t index = 0;
        const auto end = std::ranges::find_if(*text, [](char c) { return c < '0' || c > '9'; });
        const std::string_view digits(text->begin(), end);
        if (!ParseWhole(digits, &index)) {
          return InvalidArgument("in brackets stands a number, as [0], or a name, as [\"so\"]");
        }
        text->remove_prefix(digits.size());
        path.parts_.emplace_back(index);
      }
      if (!text->starts_with(']')) return InvalidArgument("a ']' is missing");
      text->remove_prefix(1);
    } else {
      break;
    }
  }
  if (text->starts_with('?')) {
    path.optional_ = true;
    text->remove_prefix(1);
  }
  path.text_ = whole.substr(0, whole.size() - text->size());
  if (path.text_.size() > kMaxBytes) {
    return InvalidArgument("a path has more than {} bytes", kMaxBytes);
  }
  return path;
}

absl::StatusOr<Path> Path::Parse(std::string_view text) {
  if (!text.starts_with("$.")) return InvalidArgument("a path begins with $.");
  std::string_view rest = text;
  ASSIGN_OR_RETURN(Path path, Take(&rest));
  if (!rest.empty()) {
    return InvalidArgument(
        "'{}' is no path: what follows {} does not belong there; a text that begins with $. and is "
        "none is written $$.",
        Truncate(text, 100), path.text());
  }
  return path;
}

std::string_view Path::second() const {
  if (parts_.empty()) return {};
  const auto* name = std::get_if<std::string>(&parts_.front());
  return name == nullptr ? std::string_view() : std::string_view(*name);
}

const Json* Path::Find(const Json& context) const {
  const auto member = [](const Json* at, const std::string& key) -> const Json* {
    if (at == nullptr || !at->is_object()) return nullptr;
    const auto found = at->find(key);
    return found == at->end() ? nullptr : &*found;
  };
  const Json* at = member(&context, root_);
  for (const Part& part : parts_) {
    if (const auto* key = std::get_if<std::string>(&part)) {
      at = member(at, *key);
    } else {
      const size_t index = std::get<size_t>(part);
      at = at != nullptr && at->is_array() && index < at->size() ? &(*at)[index] : nullptr;
    }
  }
  return at;
}

}  // namespace lockstep::sagas
