#pragma once

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/field_mask.pb.h>
#include <google/protobuf/map.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "platform/clock.h"

namespace lockstep::emulator {

// Nothing is silently accepted and ignored: UNIMPLEMENTED when `message` has a field set that is
// not in `supported`, or one at any depth that our declaration lacks. An empty nested message
// counts as not set.
absl::Status RefuseUnsupported(const google::protobuf::Message& message,
                               const std::vector<std::string_view>& supported);

// UNIMPLEMENTED when `message`, or a message in it, has a field that our declaration lacks.
absl::Status RefuseUnknown(const google::protobuf::Message& message);

// Takes an integer out of `message`, 0 if it isn't there: also where our declaration (that of an
// older google-cloud-cpp) lacks the field.
int64_t TakeInteger(int field, google::protobuf::Message* message);

// Copies the fields that `mask` names from `from` to `to`. INVALID_ARGUMENT when the mask is empty
// or names something that doesn't exist or is not in `may_change`.
absl::Status ApplyMask(const google::protobuf::FieldMask& mask,
                       const google::protobuf::Message& from,
                       const std::vector<std::string_view>& may_change,
                       google::protobuf::Message* to);

// Sets an output-only enum, where our declaration has it (older ones lack some).
void SetState(int value, google::protobuf::Message* message);

absl::Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels);
// INVALID_ARGUMENT unless the value of the field `what` is within both bounds.
absl::Status CheckRange(std::string_view what, int value, int least, int most,
                        std::string_view unit = "");
absl::Status CheckDuration(std::string_view what, const google::protobuf::Duration& duration,
                           Millis least, Millis most);

}  // namespace lockstep::emulator
