#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace google::protobuf {
class Descriptor;
}
namespace lockstep::projections {
class Descriptors;
}

namespace lockstep::publisher {

struct Declaration;

// Makes a payload of the JSON that Postgres made of a row: that JSON, or a protobuf message of it.
// Safe from any thread.
class PayloadMaker {
 public:
  // Fails with a sentence when the descriptor set is none, does not have the message, or the
  // message lacks a field.
  static absl::StatusOr<PayloadMaker> Make(const Declaration& declaration);

  // INVALID_ARGUMENT, without quoting a value, when it does not fit the message.
  absl::StatusOr<std::string> Payload(const std::string& json) const;
  const char* content_type() const;

 private:
  std::shared_ptr<const projections::Descriptors> descriptors_;
  const google::protobuf::Descriptor* type_ = nullptr;  // null = JSON
};

}  // namespace lockstep::publisher
