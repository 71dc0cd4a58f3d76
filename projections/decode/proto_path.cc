#include "projections/decode/proto_path.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

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

bool IsWrapper(const Descriptor* type) {
  switch (type->well_known_type()) {
    case Descriptor::WELLKNOWNTYPE_DOUBLEVALUE:
    case Descriptor::WELLKNOWNTYPE_FLOATVALUE:
    case Descriptor::WELLKNOWNTYPE_INT64VALUE:
    case Descriptor::WELLKNOWNTYPE_UINT64VALUE:
    case Descriptor::WELLKNOWNTYPE_INT32VALUE:
    case Descriptor::WELLKNOWNTYPE_UINT32VALUE:
    case Descriptor::WELLKNOWNTYPE_STRINGVALUE:
    case Descriptor::WELLKNOWNTYPE_BYTESVALUE:
    case Descriptor::WELLKNOWNTYPE_BOOLVALUE:
      return true;
    default:
      return false;
  }
}

// Whether one value of the field is a scalar for Postgres.
bool IsScalar(const FieldDescriptor* field) {
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return true;
  const auto known = field->message_type()->well_known_type();
  return known == Descriptor::WELLKNOWNTYPE_TIMESTAMP ||
         known == Descriptor::WELLKNOWNTYPE_DURATION || IsWrapper(field->message_type());
}

bool IsDuration(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field->message_type()->well_known_type() == Descriptor::WELLKNOWNTYPE_DURATION;
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
  if (IsWrapper(field->message_type())) return KindOf(field->message_type()->field(0), encoding);
  return IsScalar(field) ? ValueKind::kTimestamp : ValueKind::kJson;
}

// An explicit null of google.protobuf.Value, which is SQL's NULL.
bool IsNullValue(const pb::Message& message, const FieldDescriptor* field) {
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
      field->message_type()->well_known_type() != Descriptor::WELLKNOWNTYPE_VALUE) {
    return false;
  }
  const pb::Message& value = message.GetReflection()->GetMessage(message, field);
  const FieldDescriptor* set =
      value.GetReflection()->GetOneofFieldDescriptor(value, field->message_type()->oneof_decl(0));
  return set == nullptr || set->cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
}

}  // namespace

const FieldDescriptor* Unwrapped(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && IsWrapper(field->message_type())
             ? field->message_type()->field(0)
             : field;
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
    if (dot == std::string_view::npos) {
      resolved.leaf_ = field;
      return resolved;
    }
    if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return InvalidArgument("'{}' can't be followed into {}: it is {}; map '{}' itself{}", name,
                             path,
                             field->is_map()        ? "a map"
                             : field->is_repeated() ? "repeated"
                                                    : "not a message",
                             name, field->is_repeated() ? " (as: jsonb)" : "");
    }
    resolved.parents_.push_back(field);
    at = field->message_type();
    rest.remove_prefix(dot + 1);
  }
}

Encoding ProtoPath::Natural() const {
  if (leaf_->is_repeated()) {
    return IsScalar(leaf_) && !leaf_->is_map() ? Encoding::kArray : Encoding::kJson;
  }
  return IsScalar(leaf_) ? Encoding::kPlain : Encoding::kJson;
}

absl::StatusOr<ValueType> ProtoPath::TypeOf(Encoding encoding) const {
  const bool is_enum = leaf_->cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
  switch (encoding) {
    case Encoding::kNumber:
      if (!is_enum) return InvalidArgument("as: number is for enums, and it is {}", TypeName());
      break;
    case Encoding::kSeconds:
      if (!IsDuration(leaf_)) {
        return InvalidArgument("as: seconds is for Duration, and it is {}", TypeName());
      }
      break;
    case Encoding::kJson:
      return ValueType{ValueKind::kJson, false};
    case Encoding::kArray:
      if (!leaf_->is_repeated() || leaf_->is_map() || !IsScalar(leaf_)) {
        return InvalidArgument("as: array is for repeated scalars, and it is {}", TypeName());
      }
      break;
    case Encoding::kPlain:
      if (Natural() == Encoding::kJson) return ValueType{ValueKind::kJson, false};
      break;
  }
  return ValueType{KindOf(leaf_, encoding), leaf_->is_repeated()};
}

bool ProtoPath::has_presence() const { return leaf_->has_presence(); }

absl::StatusOr<CellState> ProtoPath::Read(const pb::Message& message, Encoding encoding,
                                          bool omit_default, std::string* out) const {
  const pb::Message* at = &message;
  for (const FieldDescriptor* parent : parents_) {
    const pb::Reflection* reflection = at->GetReflection();
    if (!reflection->HasField(*at, parent)) return CellState::kAbsent;
    at = &reflection->GetMessage(*at, parent);
  }
  const pb::Reflection* reflection = at->GetReflection();
  if (leaf_->is_repeated()) {
    if (omit_default && reflection->FieldSize(*at, leaf_) == 0) return CellState::kAbsent;
  } else if ((omit_default || leaf_->has_presence()) && !reflection->HasField(*at, leaf_)) {
    return CellState::kAbsent;
  } else if (IsNullValue(*at, leaf_)) {
    return CellState::kNull;
  }
  RETURN_IF_ERROR(AppendField(*at, leaf_, encoding, out));
  return CellState::kText;
}

std::string ProtoPath::Numbers() const {
  std::string text;
  for (const FieldDescriptor* parent : parents_) text += fmt::format("{}.", parent->number());
  return text + fmt::format("{}", leaf_->number());
}

std::string ProtoPath::TypeName() const {
  if (leaf_->is_map()) {
    return fmt::format("map<{}, {}>", leaf_->message_type()->map_key()->type_name(),
                       leaf_->message_type()->map_value()->type_name());
  }
  std::string name = leaf_->type_name();
  if (leaf_->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    name = leaf_->message_type()->full_name();
  } else if (leaf_->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    name = leaf_->enum_type()->full_name();
  }
  return leaf_->is_repeated() ? "repeated " + name : name;
}

}  // namespace lockstep::projections
