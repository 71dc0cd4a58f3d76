#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>

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
  // INVALID_ARGUMENT with line and column of the mistake. As the service: one top-level message, no
  // imports, 300 KB at most.
  static absl::StatusOr<std::shared_ptr<const ProtoSchema>> Compile(const std::string& definition);

  // Whether `data` is such a message, in that encoding. In BINARY, fields that the schema doesn't
  // have are let through (protobuf's own rule); in JSON they are mistakes.
  absl::Status Validate(std::string_view data, google::pubsub::v1::Encoding encoding) const;

  // Whether it may be committed beside the revision `older`, by the service's rule for protobuf
  // schemas: optional fields may come and go, everything else stays as it is (no other field comes
  // or goes, no field is edited, no enum changes). INVALID_ARGUMENT names the first thing that
  // breaks it. (schema_evolution.cc)
  absl::Status CheckSuccessorOf(const ProtoSchema& older) const;

 private:
  google::protobuf::DescriptorPool pool_;
  // Made from the pool's descriptors: must go before it.
  google::protobuf::DynamicMessageFactory factory_;
  const google::protobuf::Message* prototype_ = nullptr;
};

}  // namespace lockstep::emulator
