#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace lockstep::postgres {

// `my "table"` -> `"my ""table"""`. The only way in which a name from outside gets into SQL.
std::string QuoteIdentifier(std::string_view name);

// `it's` -> `'it''s'`: a value in a text of several statements, which can't have parameters.
std::string QuoteLiteral(std::string_view value);

// The text with each {name} replaced, as in FillNames("SELECT … FROM {state}.inbox", {{"state",
// quoted}}): the one way in which identifiers get into SQL. Braces around anything else stay as
// they are. REQUIRES: the replacements are quoted.
using NamedText = std::pair<std::string_view, std::string_view>;
std::string FillNames(std::string_view sql, std::initializer_list<NamedText> names);

// A table's name with its schema, as in `catalog.video_outbox`.
struct QualifiedName {
  std::string schema;
  std::string name;

  // Takes schema.name, each part plain or in double quotes; at most 63 bytes each.
  static absl::StatusOr<QualifiedName> Parse(std::string_view text);

  std::string Quoted() const;    // "catalog"."video_outbox"
  std::string ToString() const;  // catalog.video_outbox

  friend auto operator<=>(const QualifiedName&, const QualifiedName&) = default;
};

}  // namespace lockstep::postgres
