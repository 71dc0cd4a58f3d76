#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sagas/definition/definition.h"

namespace lockstep::sagas {

// Something wrong in a definition, and where: `path` as a JSON pointer into Definition::ToJson.
struct Mistake {
  std::string path;
  std::string what;
  bool at_key = false;  // what is wrong is the key, not its value
};

// The path of a member.
std::string Below(const std::string& path, std::string_view key);
// "steps/0/retry: …"
std::string Sentence(const Mistake& mistake);

// A name of a saga, a step or a tag: [a-z][a-z0-9_-]{0,63}.
bool IsName(std::string_view text);

// What is wrong with a definition that could be read.
std::vector<Mistake> FindMistakes(const Definition& definition);

}  // namespace lockstep::sagas
