#pragma once

#include <vector>

#include "sagas/definition/check.h"
#include "sagas/definition/definition.h"

namespace lockstep::sagas {

struct DefinitionReading {
  Definition definition;
  std::vector<Mistake> mistakes;  // none: the definition is sound
};

// Reads what a file or the database holds: unknown keys, wrong types, and what FindMistakes knows.
DefinitionReading ReadDefinition(const Json& json);

}  // namespace lockstep::sagas
