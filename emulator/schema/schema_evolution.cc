#include <string>

#include "emulator/schema/proto_schema.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

template <typename Named>
std::string FullName(const Named* named) {
  return std::string(named->full_name());
}

std::string TypeName(const FieldDescriptor* field) {
  if (field->message_type() != nullptr) return FullName(field->message_type());
  if (field->enum_type() != nullptr) return FullName(field->enum_type());
  return std::string(field->type_name());
}

std::string OneofName(const FieldDescriptor* field) {
  const auto* oneof = field->real_containing_oneof();
  return oneof == nullptr ? "" : std::string(oneof->name());
}

bool SameField(const FieldDescriptor* a, const FieldDescriptor* b) {
  return a->number() == b->number() && a->name() == b->name() && a->type() == b->type() &&
         a->is_repeated() == b->is_repeated() && a->is_required() == b->is_required() &&
         a->has_presence() == b->has_presence() && TypeName(a) == TypeName(b) &&
         OneofName(a) == OneofName(b);
}

// What `from` has must be the same in `to`, or be missing there and optional.
absl::Status CheckFields(const Descriptor& from, const Descriptor& to) {
  for (int i = 0; i < from.field_count(); ++i) {
    const FieldDescriptor* field = from.field(i);
    const FieldDescriptor* same_number = to.FindFieldByNumber(field->number());
    const FieldDescriptor* same_name = to.FindFieldByName(field->name());
    if (same_number == nullptr && same_name == nullptr) {
      if (!field->is_repeated() && !field->is_required()) continue;
      return InvalidArgument("only optional fields may be added or removed, and {} is {}",
                             FullName(field), field->is_required() ? "required" : "repeated");
    }
    if (same_number == nullptr || same_number != same_name || !SameField(field, same_number)) {
      return InvalidArgument("a field may not be edited: {} = {}", FullName(field),
                             field->number());
    }
  }
  return absl::OkStatus();
}

absl::Status CheckValues(const EnumDescriptor& from, const EnumDescriptor& to) {
  for (int i = 0; i < from.value_count(); ++i) {
    const auto* value = from.value(i);
    const auto* other = to.FindValueByName(value->name());
    if (other == nullptr || other->number() != value->number()) {
      return InvalidArgument("{} = {} is not in both revisions", FullName(value), value->number());
    }
  }
  return absl::OkStatus();
}

// The enums in a message, or beside it in its file.
template <typename Scope>
absl::Status CheckEnums(const Scope& older, const Scope& newer) {
  for (int i = 0; i < older.enum_type_count(); ++i) {
    const EnumDescriptor* then = older.enum_type(i);
    const EnumDescriptor* now = newer.FindEnumTypeByName(then->name());
    if (now == nullptr) continue;
    RETURN_IF_ERROR(CheckValues(*then, *now));
    RETURN_IF_ERROR(CheckValues(*now, *then));
  }
  return absl::OkStatus();
}

absl::Status CheckMessage(const Descriptor& older, const Descriptor& newer) {
  if (older.full_name() != newer.full_name()) {
    return InvalidArgument("the message was {} and is {}", FullName(&older), FullName(&newer));
  }
  RETURN_IF_ERROR(CheckFields(older, newer));
  RETURN_IF_ERROR(CheckFields(newer, older));
  // What is nested in one revision only belongs to fields that came or went.
  RETURN_IF_ERROR(CheckEnums(older, newer));
  for (int i = 0; i < older.nested_type_count(); ++i) {
    const Descriptor* now = newer.FindNestedTypeByName(older.nested_type(i)->name());
    if (now != nullptr) RETURN_IF_ERROR(CheckMessage(*older.nested_type(i), *now));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProtoSchema::CheckSuccessorOf(const ProtoSchema& older) const {
  const Descriptor& then = *older.prototype_->GetDescriptor();
  const Descriptor& now = *prototype_->GetDescriptor();
  RETURN_IF_ERROR(CheckMessage(then, now));
  return CheckEnums(*then.file(), *now.file());
}

}  // namespace lockstep::emulator
