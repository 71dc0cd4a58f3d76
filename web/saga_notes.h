#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::web {

// What an operator should look at among an orchestrator's sagas: dead ones, and paused ones. A part
// of Attention. `ctl`: how lockstepctl is called.
nlohmann::json SagaNotes(const nlohmann::json& document, const std::string& ctl);

}  // namespace lockstep::web
