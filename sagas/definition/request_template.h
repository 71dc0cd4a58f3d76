#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sagas/definition/definition.h"
#include "sagas/definition/path.h"

namespace lockstep::sagas {

// What a filled request, its values' nesting and an address may come to.
constexpr size_t kMaxRequestBytes = 256 << 10;
constexpr int kMaxValueDepth = 64;

// The template with its paths replaced: a text that begins with `$.` is a path into
// {input, steps, saga} (path.h), one that begins with `$$.` is the text `$.…`; all else stands for
// itself. A null template is the whole input. kNotFound names a path that has no value and does not
// end with ?; kInvalidArgument: too large, too deep. No message quotes a value. Pure.
absl::StatusOr<Json> FillRequest(const Json& request_template, const Json& context);

// The address with its placeholders {$.input.order_id} replaced, percent-encoded: a value fills a
// part of the path or the query and can't leave it (no /, ?, # or .. gets through). kNotFound as
// above; kInvalidArgument: a value that is no text, number or boolean, or is empty.
absl::StatusOr<std::string> FillUrl(const std::string& url, const Json& context);

// The paths in a template or an address, in their order. kInvalidArgument says what is wrong with
// one, or with the braces of an address.
absl::StatusOr<std::vector<Path>> PathsOfUrl(std::string_view url);
inline bool IsPath(std::string_view text) { return text.starts_with("$."); }

}  // namespace lockstep::sagas
