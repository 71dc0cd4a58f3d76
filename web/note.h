#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

// What notes of attention are made of. Parts of a document may be missing or null.
namespace lockstep::web {

// A command, and what somebody would type it for.
struct Step {
  std::string what;
  std::string command;
};

nlohmann::json Note(const char* severity, std::string title, std::string detail,
                    const std::vector<Step>& steps);

int64_t IntOf(const nlohmann::json& part, const char* name, int64_t otherwise = 0);
std::string TextOf(const nlohmann::json& part, const char* name);
const nlohmann::json& PartOf(const nlohmann::json& part, const char* name);

// Other people's error texts come with or without a full stop.
std::string Sentence(std::string text);

// For a shell: keys may hold anything.
std::string Quoted(const std::string& text);

}  // namespace lockstep::web
