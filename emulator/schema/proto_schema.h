#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/pubsub/v1/schema.pb.h"

namespace lockstep::emulator {

// One protobuf schema definition, compiled in memory. Immutable: safe from any thread.
class ProtoSchema {
 public:
  ~ProtoSchema();

  // INVALID_ARGUMENT with line and column of the mistake. As the service: one top-level message, no
  // imports, 300 KB at most.
  static absl::StatusOr<std::shared_ptr<const ProtoSchema>> Compile(const std::string& definition);

  // Whether `data` is such a message, in that encoding. In BINARY, fields that the schema doesn't
  // have are let through (protobuf's own rule); in JSON they are mistakes.
  absl::Status Validate(std::string_view data, google::pubsub::v1::Encoding encoding) const;

  // Whether it may be a revision beside `older` (schema_evolution.h).
  absl::Status CheckSuccessorOf(const ProtoSchema& older) const;

 private:
  struct Compiled;
  explicit ProtoSchema(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace lockstep::emulator
