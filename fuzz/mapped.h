#pragma once

#include <string>

namespace lockstep::fuzz {

// The folder with mapping.yaml, enveloped.yaml and the descriptor set that they name.
std::string Folder();

// Maps a payload by both files; what is mapped must be text that Postgres can take. Poison is fine.
void MapAndCheck(const std::string& payload, const std::string& content_type);

}  // namespace lockstep::fuzz
