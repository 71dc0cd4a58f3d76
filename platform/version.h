#pragma once

#include <string>

namespace lockstep {

// The version of CMakeLists.txt.
extern const char* const kVersion;

// What this build was made of: the commit ("unknown" outside of a repository) and the transports to
// Pub/Sub that it has.
extern const char* const kCommit;
extern const char* const kTransports;

// "0.1.0 (commit 1a2b3c4d5e6f, transports grpc)"
std::string BuildText();

}  // namespace lockstep
