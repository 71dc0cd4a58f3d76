#pragma once

#include <string>

#include "web/note_list.h"

namespace lockstep::web {

// What an operator should look at among an orchestrator's sagas: dead ones, and paused ones. A part
// of Attention. `ctl`: how lockstepctl is called.
void SagaNotes(const nlohmann::json& document, const std::string& ctl, NoteList& notes);

}  // namespace lockstep::web
