#include "postgres/identifier.h"

#include <algorithm>

#include "platform/status.h"

namespace lockstep::postgres {
namespace {

constexpr size_t kMaxIdentifierBytes = 63;

// Takes one identifier off the front of `text`; empty when there is none.
std::string TakeIdentifier(std::string_view& text) {
  std::string name;
  if (text.empty() || text[0] != '"') {
    const size_t end = std::min(text.find('.'), text.size());
    name = text.substr(0, end);
    text.remove_prefix(end);
    return name;
  }
  size_t i = 1;
  for (; i < text.size(); ++i) {
    if (text[i] != '"') {
      name += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == '"') {
      name += text[++i];
    } else {
      break;
    }
  }
  text.remove_prefix(std::min(i + 1, text.size()));
  return name;
}

// The text with each of these characters written twice.
std::string Doubled(std::string_view text, std::string_view which) {
  std::string doubled;
  doubled.reserve(text.size());
  for (const char c : text) doubled.append(which.find(c) == std::string_view::npos ? 1 : 2, c);
  return doubled;
}

bool Usable(std::string_view name) {
  return !name.empty() && name.size() <= kMaxIdentifierBytes &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

std::string FillNames(std::string_view sql, std::initializer_list<NamedText> names) {
  std::string filled;
  filled.reserve(sql.size() + 64);
  while (!sql.empty()) {
    const size_t open = sql.find('{');
    filled += sql.substr(0, open);
    if (open == std::string_view::npos) break;
    sql.remove_prefix(open);
    const std::string_view word = sql.substr(1, std::min(sql.find('}'), sql.size()) - 1);
    const auto named = std::find_if(names.begin(), names.end(),
                                    [&](const NamedText& name) { return name.first == word; });
    if (named == names.end()) {
      filled += '{';
      sql.remove_prefix(1);
    } else {
      filled += named->second;
      sql.remove_prefix(word.size() + 2);
    }
  }
  return filled;
}

std::string QuoteLiteral(std::string_view value) {
  // With a backslash in it, the form that means the same whatever standard_conforming_strings says.
  const bool escapes = value.find('\\') != std::string_view::npos;
  return (escapes ? "E'" : "'") + Doubled(value, "'\\") + "'";
}

std::string QuoteIdentifier(std::string_view name) { return '"' + Doubled(name, "\"") + '"'; }

absl::StatusOr<QualifiedName> QualifiedName::Parse(std::string_view text) {
  std::string_view rest = text;
  QualifiedName parsed;
  parsed.schema = TakeIdentifier(rest);
  const bool dotted = rest.starts_with('.');
  if (dotted) rest.remove_prefix(1);
  parsed.name = TakeIdentifier(rest);
  if (!dotted || !rest.empty() || !Usable(parsed.schema) || !Usable(parsed.name)) {
    return InvalidArgument("'{}' does not name a table; write schema.table", text);
  }
  return parsed;
}

std::string QualifiedName::Quoted() const {
  return QuoteIdentifier(schema) + "." + QuoteIdentifier(name);
}

std::string QualifiedName::ToString() const {
  // Parse reads it back: a part with a dot or a quote in it needs its quotes.
  const auto part = [](const std::string& text) {
    return text.find_first_of(".\"") == std::string::npos ? text : QuoteIdentifier(text);
  };
  return part(schema) + "." + part(name);
}

}  // namespace lockstep::postgres
