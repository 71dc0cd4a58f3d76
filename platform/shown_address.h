#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// A text as it may be shown: of each http:// or https:// address in it a number stands for the
// query, which may hold a secret (?token=… becomes ?f7d75ca5). The same query has the same number.
std::string ShownAddresses(std::string_view text);

}  // namespace lockstep
