#include "projections/decode/proto_path.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <span>

#include "platform/config/config.h"
#include "platform/status.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
using pb::Descriptor;
using pb::FieldDescriptor;
namespace {

std::vector<std::string> FieldNames(const Descriptor* message) {
  std::vector<std::string> names;
  for (int i = 0; i < message->field_count(); ++i) names.push_back(message->field(i)->name());
  return names;
}

Descriptor::WellKnownType WellKnownTypeOf(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
             ? field->message_type()->well_known_type()
             : Descriptor::WELLKNOWNTYPE_UNSPECIFIED;
}

bool IsWrapper(const FieldDescriptor* field) {
  const auto known = WellKnownTypeOf(field);  // whose values have the wrappers together
  return known >= Descriptor::WELLKNOWNTYPE_DOUBLEVALUE &&
         known <= Descriptor::WELLKNOWNTYPE_BOOLVALUE;
}

bool IsDuration(const FieldDescriptor* field) {
  return WellKnownTypeOf(field) == Descriptor::WELLKNOWNTYPE_DURATION;
}

// Whether one value of the field is a scalar for Postgres.
bool IsScalar(const FieldDescriptor* field) {
  return field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || IsWrapper(field) ||
         IsDuration(field) || WellKnownTypeOf(field) == Descriptor::WELLKNOWNTYPE_TIMESTAMP;
}

ValueKind KindOf(const FieldDescriptor* field, Encoding encoding) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return ValueKind::kInt32;
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
      return ValueKind::kInt64;
    case FieldDescriptor::CPPTYPE_UINT64:
      return ValueKind::kUInt64;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ValueKind::kDouble;
    case FieldDescriptor::CPPTYPE_FLOAT:
      return ValueKind::kFloat;
    case FieldDescriptor::CPPTYPE_BOOL:
      return ValueKind::kBool;
    case FieldDescriptor::CPPTYPE_ENUM:
      return encoding == Encoding::kNumber ? ValueKind::kInt32 : ValueKind::kText;
    case FieldDescriptor::CPPTYPE_STRING:
      return field->type() == FieldDescriptor::TYPE_BYTES ? ValueKind::kBytes : ValueKind::kText;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  if (IsDuration(field)) {
    return encoding == Encoding::kSeconds ? ValueKind::kNumeric : ValueKind::kInterval;
  }
  if (IsWrapper(field)) return KindOf(Unwrapped(field), encoding);
  return IsScalar(field) ? ValueKind::kTimestamp : ValueKind::kJson;
}

// An explicit null of google.protobuf.Value, which is SQL's NULL.
bool IsNullValue(const pb::Message& message, const FieldDescriptor* field) {
  if (WellKnownTypeOf(field) != Descriptor::WELLKNOWNTYPE_VALUE) return false;
  const pb::Message& value = message.GetReflection()->GetMessage(message, field);
  const FieldDescriptor* set =
      value.GetReflection()->GetOneofFieldDescriptor(value, field->message_type()->oneof_decl(0));
  return set == nullptr || set->cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
}

}  // namespace

const FieldDescriptor* Unwrapped(const FieldDescriptor* field) {
  return IsWrapper(field) ? field->message_type()->field(0) : field;
}

absl::StatusOr<ProtoPath> ProtoPath::Resolve(const Descriptor* message, std::string_view path) {
  ProtoPath resolved;
  const Descriptor* at = message;
  std::string_view rest = path;
  while (true) {
    const size_t dot = rest.find('.');
    const std::string name(rest.substr(0, dot));
    const FieldDescriptor* field = at->FindFieldByName(name);
    if (field == nullptr) field = at->FindFieldByCamelcaseName(name);
    if (field == nullptr) {
      const std::string nearest = NearestWord(name, FieldNames(at));
      return InvalidArgument("message {} has no field '{}'{}", at->full_name(), name,
                             nearest.empty()
                                 ? fmt::format("; it has {}", fmt::join(FieldNames(at), ", "))
                                 : fmt::format("; did you mean '{}'?", nearest));
    }
    resolved.fields_.push_back(field);
    if (dot == std::string_view::npos) return resolved;
    if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return InvalidArgument("'{}' can't be followed into {}: it is {}; map '{}' itself{}", name,
                             path,
                             field->is_map()        ? "a map"
                             : field->is_repeated() ? "repeated"
                                                    : "not a message",
                             name, field->is_repeated() ? " (as: jsonb)" : "");
    }
    at = field->message_type();
    rest.remove_prefix(dot + 1);
  }
}

Encoding ProtoPath::Natural() const {
  if (!IsScalar(leaf())) return Encoding::kJson;  // a map's entries are messages
  return leaf()->is_repeated() ? Encoding::kArray : Encoding::kPlain;
}

absl::StatusOr<ValueType> ProtoPath::TypeOf(Encoding encoding) const {
  const bool is_enum = leaf()->cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
  switch (encoding) {
    case Encoding::kNumber:
      if (!is_enum) return InvalidArgument("as: number is for enums, and it is {}", TypeName());
      break;
    case Encoding::kSeconds:
      if (!IsDuration(leaf())) {
        return InvalidArgument("as: seconds is for Duration, and it is {}", TypeName());
      }
      break;
    case Encoding::kJson:
      return ValueType{ValueKind::kJson, false};
    case Encoding::kArray:
      if (Natural() != Encoding::kArray) {
        return InvalidArgument("as: array is for repeated scalars, and it is {}", TypeName());
      }
      break;
    case Encoding::kPlain:
      if (Natural() == Encoding::kJson) return ValueType{ValueKind::kJson, false};
      break;
  }
  return ValueType{KindOf(leaf(), encoding), leaf()->is_repeated()};
}

absl::StatusOr<CellState> ProtoPath::Read(const pb::Message& message, Encoding encoding,
                                          bool omit_default, std::string* out) const {
  const pb::Message* at = &message;
  for (const FieldDescriptor* parent : std::span(fields_).first(fields_.size() - 1)) {
    const pb::Reflection* reflection = at->GetReflection();
    if (!reflection->HasField(*at, parent)) return CellState::kAbsent;
    at = &reflection->GetMessage(*at, parent);
  }
  const FieldDescriptor* field = leaf();
  const pb::Reflection* reflection = at->GetReflection();
  if (field->is_repeated()) {
    if (omit_default && reflection->FieldSize(*at, field) == 0) return CellState::kAbsent;
  } else if ((omit_default || field->has_presence()) && !reflection->HasField(*at, field)) {
    return CellState::kAbsent;
  } else if (IsNullValue(*at, field)) {
    return CellState::kNull;
  }
  RETURN_IF_ERROR(AppendField(*at, field, encoding, out));
  return CellState::kText;
}

std::string ProtoPath::Numbers() const {
  std::vector<int> numbers;
  for (const FieldDescriptor* field : fields_) numbers.push_back(field->number());
  return fmt::format("{}", fmt::join(numbers, "."));
}

std::string ProtoPath::TypeName() const {
  if (!leaf()->is_map()) return projections::TypeName(leaf());
  return fmt::format("map<{}, {}>", leaf()->message_type()->map_key()->type_name(),
                     leaf()->message_type()->map_value()->type_name());
}

std::string TypeName(const FieldDescriptor* field) {
  const std::string repeated = field->is_repeated() ? "repeated " : "";
  if (field->message_type() != nullptr) return repeated + field->message_type()->full_name();
  if (field->enum_type() != nullptr) return repeated + field->enum_type()->full_name();
  return repeated + field->type_name();
}

}  // namespace lockstep::projections
