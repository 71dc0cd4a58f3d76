#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "ctl/command/command.h"
#include "sagas/store/desk.h"
#include "sagas/store/saga_record.h"

// What the commands of `lockstepctl saga` share.
namespace lockstep::ctl {

// A line each, the state with what is remarkable of it.
void PrintSagas(const std::vector<sagas::StoredSaga>& sagas, std::FILE* to);
std::string ShownState(const sagas::StoredSaga& saga);

// The JSON in a text, or in a file when it begins with @ (@- is the standard input). `option`: how
// it was given, for messages.
absl::StatusOr<Json> ReadJson(const std::string& option, const std::string& text);

void AddSagaDefinitions(const Command& saga);  // check, register, definitions, start
void AddSagaChanges(const Command& saga);      // pause, resume, cancel, …, clean
void AddSagaDead(const Command& saga);         // dead list, inspect, replay, quarantine

}  // namespace lockstep::ctl
