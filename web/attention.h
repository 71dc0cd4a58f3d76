#pragma once

#include <nlohmann/json_fwd.hpp>

namespace lockstep::web {

// What an operator should look at, worst first: [{severity: bad|warning|info, title, detail,
// commands}]. Derived from a status document alone, so that page, API and tests say the same.
// Different faults give different notes: a database out of reach, a halted group, a stuck lane, a
// poison key, a silent publisher. A quiet topic gives none.
nlohmann::json Attention(const nlohmann::json& document);

}  // namespace lockstep::web
