#include "projections/decode/proto_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "platform/status.h"
#include "postgres/params.h"
#include "projections/decode/proto_json.h"
#include "projections/decode/proto_scalar.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
using pb::FieldDescriptor;
namespace {

absl::Status AppendString(const pb::Message& message, const FieldDescriptor* field, int index,
                          std::string* out) {
  std::string scratch;
  const std::string& text = StringAt(message, field, index, &scratch);
  if (field->type() == FieldDescriptor::TYPE_BYTES) {
    *out += postgres::EncodeBytea(text);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(RefuseNul(text, field));
  *out += text;
  return absl::OkStatus();
}

}  // namespace

void AppendArrayElement(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') *out += '\\';
    *out += c;
  }
  *out += '"';
}

absl::Status AppendValue(const pb::Message& message, const FieldDescriptor* field, int index,
                         Encoding encoding, std::string* out) {
  if (encoding == Encoding::kJson) return AppendJsonValue(message, field, index, out);
  const pb::Reflection* reflection = message.GetReflection();
#define LOCKSTEP_NUMBER(Type)                                                    \
  AppendNumber(index < 0 ? reflection->Get##Type(message, field)                 \
                         : reflection->GetRepeated##Type(message, field, index), \
               out)
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      LOCKSTEP_NUMBER(Int32);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      LOCKSTEP_NUMBER(Int64);
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      LOCKSTEP_NUMBER(UInt32);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      LOCKSTEP_NUMBER(UInt64);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      AppendFloat(DoubleAt(message, field, index), out);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:  // as a float, which has fewer digits
      AppendFloat(index < 0 ? reflection->GetFloat(message, field)
                            : reflection->GetRepeatedFloat(message, field, index),
                  out);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      *out += (index < 0 ? reflection->GetBool(message, field)
                         : reflection->GetRepeatedBool(message, field, index))
                  ? "true"
                  : "false";
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      if (encoding == Encoding::kNumber) {
        AppendNumber(EnumNumber(message, field, index), out);
      } else {
        AppendEnumName(message, field, index, out);
      }
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      return AppendString(message, field, index, out);
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const pb::Message& inner = MessageAt(message, field, index);
      switch (inner.GetDescriptor()->well_known_type()) {
        case pb::Descriptor::WELLKNOWNTYPE_TIMESTAMP:
          return AppendTimestamp(inner, out);
        case pb::Descriptor::WELLKNOWNTYPE_DURATION:
          RETURN_IF_ERROR(AppendSeconds(inner, out));
          if (encoding != Encoding::kSeconds) *out += " seconds";
          return absl::OkStatus();
        case pb::Descriptor::WELLKNOWNTYPE_UNSPECIFIED:
        case pb::Descriptor::WELLKNOWNTYPE_FIELDMASK:
        case pb::Descriptor::WELLKNOWNTYPE_ANY:
        case pb::Descriptor::WELLKNOWNTYPE_STRUCT:
        case pb::Descriptor::WELLKNOWNTYPE_LISTVALUE:
        case pb::Descriptor::WELLKNOWNTYPE_VALUE:
          return AppendMessageJson(inner, out);
        default:  // the wrappers
          return AppendValue(inner, inner.GetDescriptor()->field(0), -1, encoding, out);
      }
    }
  }
#undef LOCKSTEP_NUMBER
  return absl::OkStatus();
}

absl::Status AppendArray(const pb::Message& message, const FieldDescriptor* field,
                         Encoding encoding, std::string* out) {
  *out += '{';
  std::string element;
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int i = 0; i < size; ++i) {
    element.clear();
    RETURN_IF_ERROR(AppendValue(message, field, i, encoding, &element));
    if (i > 0) *out += ',';
    AppendArrayElement(element, out);
  }
  *out += '}';
  return absl::OkStatus();
}

}  // namespace lockstep::projections
