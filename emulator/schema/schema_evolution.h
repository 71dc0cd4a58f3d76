#pragma once

#include <google/protobuf/descriptor.h>

#include "absl/status/status.h"

namespace lockstep::emulator {

// Whether `newer` may be committed beside the revision `older`, by the service's rule for protobuf
// schemas: optional fields may come and go, everything else stays as it is (no other field comes or
// goes, no field is edited, no enum changes). INVALID_ARGUMENT names the first thing that breaks
// it.
absl::Status CheckEvolution(const google::protobuf::Descriptor& older,
                            const google::protobuf::Descriptor& newer);
absl::Status CheckEvolution(const google::protobuf::EnumDescriptor& older,
                            const google::protobuf::EnumDescriptor& newer);

}  // namespace lockstep::emulator
