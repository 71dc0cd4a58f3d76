#include "emulator/wire/field_rules.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/field_mask_util.h>

#include <algorithm>

#include "emulator/wire/proto_time.h"
#include "platform/duration.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool Contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsEmptyMessage(const Message& message, const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated() &&
         message.GetReflection()->GetMessage(message, field).ByteSizeLong() == 0;
}

}  // namespace

absl::Status RefuseUnsupported(const Message& message,
                               const std::vector<std::string_view>& supported) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string name(field->name());
    if (Contains(supported, name) || IsEmptyMessage(message, field)) continue;
    return MakeStatus(absl::StatusCode::kUnimplemented,
                      "{}.{} is not implemented by this emulator; leave it unset.",
                      std::string(message.GetDescriptor()->name()), name);
  }
  return RefuseUnknown(message);
}

absl::Status RefuseUnknown(const Message& message) {
  const auto* reflection = message.GetReflection();
  if (const auto& unknown = reflection->GetUnknownFields(message); !unknown.empty()) {
    return MakeStatus(absl::StatusCode::kUnimplemented,
                      "Field {} of {} is not known to this emulator; leave it unset.",
                      unknown.field(0).number(), std::string(message.GetDescriptor()->name()));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(RefuseUnknown(reflection->GetMessage(message, field)));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      RETURN_IF_ERROR(RefuseUnknown(reflection->GetRepeatedMessage(message, field, i)));
    }
  }
  return absl::OkStatus();
}

int64_t TakeInteger(int field, Message* message) {
  const auto* reflection = message->GetReflection();
  int64_t value = 0;
  if (const auto* known = message->GetDescriptor()->FindFieldByNumber(field); known != nullptr) {
    value = reflection->GetInt64(*message, known);
    reflection->ClearField(message, known);
    return value;
  }
  auto* unknown = reflection->MutableUnknownFields(message);
  for (int i = 0; i < unknown->field_count(); ++i) {
    const auto& each = unknown->field(i);
    const bool is_integer = each.type() == google::protobuf::UnknownField::TYPE_VARINT;
    if (each.number() == field && is_integer) value = static_cast<int64_t>(each.varint());
  }
  unknown->DeleteByNumber(field);
  return value;
}

absl::Status ApplyMask(const google::protobuf::FieldMask& mask, const Message& from,
                       const std::vector<std::string_view>& may_change, Message* to) {
  using google::protobuf::util::FieldMaskUtil;
  if (mask.paths().empty()) return InvalidArgument("The update_mask must name a field.");
  for (const std::string& path : mask.paths()) {
    if (!FieldMaskUtil::GetFieldDescriptors(from.GetDescriptor(), path, nullptr)) {
      return InvalidArgument("Invalid update_mask: {} has no field '{}'.",
                             std::string(from.GetDescriptor()->name()), path);
    }
    if (!Contains(may_change, std::string_view(path).substr(0, path.find('.')))) {
      return InvalidArgument("Invalid update_mask: '{}' can't be changed.", path);
    }
  }
  FieldMaskUtil::MergeOptions options;
  options.set_replace_message_fields(true);
  options.set_replace_repeated_fields(true);
  FieldMaskUtil::MergeMessageTo(from, mask, options, to);
  return absl::OkStatus();
}

void SetState(int value, Message* message) {
  const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName("state");
  if (field != nullptr) message->GetReflection()->SetEnumValue(message, field, value);
}

absl::Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels) {
  if (labels.size() > 64) return InvalidArgument("More than 64 labels.");
  for (const auto& [key, value] : labels) {
    if (key.empty() || key.size() > 63 || value.size() > 63) {
      return InvalidArgument("Invalid label '{}': keys have 1 to 63 characters, values at most 63.",
                             key);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRange(std::string_view what, int value, int least, int most,
                        std::string_view unit) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument("Invalid {}: {}{} is not within {} and {}.", what, value, unit, least,
                         most);
}

absl::Status CheckDuration(std::string_view what, const google::protobuf::Duration& duration,
                           Millis least, Millis most) {
  const Millis value = FromProto(duration);
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument("Invalid {}: {} is not within {} and {}.", what, FormatDuration(value),
                         FormatDuration(least), FormatDuration(most));
}

}  // namespace lockstep::emulator
