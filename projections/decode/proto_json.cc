#include "projections/decode/proto_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>

#include "absl/strings/escaping.h"
#include "platform/status.h"
#include "projections/decode/proto_scalar.h"
#include "projections/decode/proto_text.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
using pb::FieldDescriptor;
namespace {

absl::Status AppendStringJson(const pb::Message& message, const FieldDescriptor* field, int index,
                              std::string* out) {
  std::string scratch;
  const std::string& text = StringAt(message, field, index, &scratch);
  if (field->type() == FieldDescriptor::TYPE_BYTES) {
    std::string encoded;
    absl::Base64Escape(absl::string_view(text.data(), text.size()), &encoded);
    AppendJsonString(encoded, out);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(RefuseNul(text, field));
  AppendJsonString(text, out);
  return absl::OkStatus();
}

absl::Status AppendMapJson(const pb::Message& message, const FieldDescriptor* field,
                           std::string* out) {
  const pb::Reflection* reflection = message.GetReflection();
  const FieldDescriptor* key = field->message_type()->map_key();
  const FieldDescriptor* value = field->message_type()->map_value();
  *out += '{';
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    const pb::Message& entry = reflection->GetRepeatedMessage(message, field, i);
    if (i > 0) *out += ',';
    std::string name;
    RETURN_IF_ERROR(AppendValue(entry, key, -1, Encoding::kPlain, &name));
    AppendJsonString(name, out);
    *out += ':';
    RETURN_IF_ERROR(AppendJsonValue(entry, value, -1, out));
  }
  *out += '}';
  return absl::OkStatus();
}

// google.protobuf.Value: whichever of its kinds is set.
absl::Status AppendDynamicValue(const pb::Message& message, std::string* out) {
  const FieldDescriptor* set = message.GetReflection()->GetOneofFieldDescriptor(
      message, message.GetDescriptor()->oneof_decl(0));
  if (set == nullptr || set->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    *out += "null";
    return absl::OkStatus();
  }
  return AppendJsonValue(message, set, -1, out);
}

}  // namespace

absl::Status AppendJsonValue(const pb::Message& message, const FieldDescriptor* field, int index,
                             std::string* out) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return AppendMessageJson(MessageAt(message, field, index), out);
    case FieldDescriptor::CPPTYPE_STRING:
      return AppendStringJson(message, field, index, out);
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::string name;
      if (AppendEnumName(message, field, index, &name)) {
        AppendJsonString(name, out);
      } else {
        *out += name;
      }
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = DoubleAt(message, field, index);
      if (std::isfinite(value)) break;
      *out += '"';
      AppendFloat(value, out);
      *out += '"';
      return absl::OkStatus();
    }
    default:
      break;
  }
  return AppendValue(message, field, index, Encoding::kPlain, out);
}

absl::Status AppendMessageJson(const pb::Message& message, std::string* out) {
  const pb::Descriptor* type = message.GetDescriptor();
  switch (type->well_known_type()) {
    case pb::Descriptor::WELLKNOWNTYPE_TIMESTAMP:
      *out += '"';
      RETURN_IF_ERROR(AppendTimestamp(message, out));
      *out += '"';
      return absl::OkStatus();
    case pb::Descriptor::WELLKNOWNTYPE_DURATION:
      *out += '"';
      RETURN_IF_ERROR(AppendSeconds(message, out));
      *out += "s\"";
      return absl::OkStatus();
    case pb::Descriptor::WELLKNOWNTYPE_STRUCT:
    case pb::Descriptor::WELLKNOWNTYPE_LISTVALUE:
      return AppendJson(message, type->field(0), out);
    case pb::Descriptor::WELLKNOWNTYPE_VALUE:
      return AppendDynamicValue(message, out);
    case pb::Descriptor::WELLKNOWNTYPE_UNSPECIFIED:
    case pb::Descriptor::WELLKNOWNTYPE_FIELDMASK:
    case pb::Descriptor::WELLKNOWNTYPE_ANY:
      break;
    default:  // the wrappers
      return AppendJsonValue(message, type->field(0), -1, out);
  }
  const pb::Reflection* reflection = message.GetReflection();
  *out += '{';
  bool first = true;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->has_presence() && !reflection->HasField(message, field)) continue;
    if (!first) *out += ',';
    first = false;
    AppendJsonString(field->name(), out);
    *out += ':';
    RETURN_IF_ERROR(AppendJson(message, field, out));
  }
  *out += '}';
  return absl::OkStatus();
}

void AppendJsonString(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(*out), FMT_COMPILE("\\u{:04x}"),
                         static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

absl::Status AppendJson(const pb::Message& message, const FieldDescriptor* field,
                        std::string* out) {
  if (!field->is_repeated()) return AppendJsonValue(message, field, -1, out);
  if (field->is_map()) return AppendMapJson(message, field, out);
  *out += '[';
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int i = 0; i < size; ++i) {
    if (i > 0) *out += ',';
    RETURN_IF_ERROR(AppendJsonValue(message, field, i, out));
  }
  *out += ']';
  return absl::OkStatus();
}

}  // namespace lockstep::projections
