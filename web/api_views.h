#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

// The parts of a status document that the API serves one by one (docs/api.md).
namespace lockstep::web {

nlohmann::json LagView(const nlohmann::json& document);
nlohmann::json OffsetsView(const nlohmann::json& document);

// What `lockstepctl offsets export` prints.
nlohmann::json OffsetsExport(const nlohmann::json& document);

// `query`: `group` or `table` selects one, `key` an ordering key or aggregate. Never a payload.
nlohmann::json DeadLettersView(const nlohmann::json& document,
                               const std::map<std::string, std::string>& query);

}  // namespace lockstep::web
