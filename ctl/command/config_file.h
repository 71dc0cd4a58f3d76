#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace lockstep::ctl {

// Any of our files, told apart by the keys at its top.
struct ConfigFile {
  enum class Kind {
    kNone,  // no file, or one that says of no kind what it is
    kPublisher,
    kRunner,
    kOrchestrator,
    kTopics,    // of `provision`
    kGroup,     // a group's projections
    kBackfill,  // a backfill's declaration
    kSaga,      // a saga's definition
  };

  std::string file;
  Kind kind = Kind::kNone;
  std::string state_schema;  // kRunner
};

// "a publisher's configuration"
const char* Describe(ConfigFile::Kind kind);

// Of an empty name nothing.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& file);

}  // namespace lockstep::ctl
