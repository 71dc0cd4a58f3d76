#include "projections/tools/schema_diff.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include "projections/decode/proto_path.h"

namespace lockstep::projections {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

std::string TypeInWords(const FieldDescriptor* field) {
  if (!field->is_map()) return TypeName(field);
  return fmt::format("map<{}, {}>", TypeInWords(field->message_type()->map_key()),
                     TypeInWords(field->message_type()->map_value()));
}

class Differ {
 public:
  template <typename... Args>
  void Breaking(const std::string& element, fmt::format_string<Args...> what, Args&&... args) {
    changes_.push_back({true, element, fmt::format(what, std::forward<Args>(args)...)});
  }
  template <typename... Args>
  void Compatible(const std::string& element, fmt::format_string<Args...> what, Args&&... args) {
    changes_.push_back({false, element, fmt::format(what, std::forward<Args>(args)...)});
  }

  void Messages(const Descriptor* before, const Descriptor* after) {
    if (before->options().map_entry()) return;
    if (after == nullptr) return Breaking(before->full_name(), "message removed");
    for (int i = 0; i < before->field_count(); ++i) Field(before->field(i), after);
    for (int i = 0; i < after->field_count(); ++i) {
      const FieldDescriptor* field = after->field(i);
      if (before->FindFieldByName(field->name()) != nullptr ||
          before->FindFieldByNumber(field->number()) != nullptr) {
        continue;
      }
      if (field->is_required()) {
        Breaking(field->full_name(), "added, and required: older messages lack it");
      } else {
        Compatible(field->full_name(), "added ({}, number {})", TypeInWords(field),
                   field->number());
      }
    }
    for (int i = 0; i < before->nested_type_count(); ++i) {
      const Descriptor* nested = before->nested_type(i);
      Messages(nested, after->FindNestedTypeByName(nested->name()));
    }
    for (int i = 0; i < before->enum_type_count(); ++i) {
      const EnumDescriptor* nested = before->enum_type(i);
      Enums(nested, after->FindEnumTypeByName(nested->name()));
    }
  }

  void Enums(const EnumDescriptor* before, const EnumDescriptor* after) {
    if (after == nullptr) return Breaking(before->full_name(), "enum removed");
    for (int i = 0; i < before->value_count(); ++i) {
      const EnumValueDescriptor* value = before->value(i);
      const EnumValueDescriptor* now = after->FindValueByName(value->name());
      const std::string element = fmt::format("{}.{}", before->full_name(), value->name());
      if (now == nullptr) {
        const EnumValueDescriptor* renamed = after->FindValueByNumber(value->number());
        Breaking(element, "{}",
                 renamed == nullptr ? "value removed" : "renamed to " + renamed->name());
      } else if (now->number() != value->number()) {
        Breaking(element, "renumbered from {} to {}", value->number(), now->number());
      }
    }
    for (int i = 0; i < after->value_count(); ++i) {
      const EnumValueDescriptor* value = after->value(i);
      if (before->FindValueByName(value->name()) == nullptr &&
          before->FindValueByNumber(value->number()) == nullptr) {
        Compatible(fmt::format("{}.{}", after->full_name(), value->name()),
                   "value added (number {})", value->number());
      }
    }
  }

  std::vector<SchemaChange> Take() { return std::move(changes_); }

 private:
  void Field(const FieldDescriptor* field, const Descriptor* after) {
    const FieldDescriptor* now = after->FindFieldByName(field->name());
    if (now == nullptr) {
      const FieldDescriptor* renamed = after->FindFieldByNumber(field->number());
      if (renamed == nullptr) return Breaking(field->full_name(), "removed");
      return Breaking(field->full_name(), "renamed to {}: JSON and mappings go by name",
                      renamed->name());
    }
    if (now->number() != field->number()) {
      Breaking(field->full_name(), "renumbered from {} to {}", field->number(), now->number());
    }
    if (TypeInWords(now) != TypeInWords(field)) {
      Breaking(field->full_name(), "retyped from {} to {}", TypeInWords(field), TypeInWords(now));
    } else if (now->has_presence() != field->has_presence()) {
      if (now->has_presence()) {
        Compatible(field->full_name(), "is optional now: absence can be told from the default");
      } else {
        Breaking(field->full_name(), "is no longer optional: absent and default look the same");
      }
    }
    const auto* was_in = field->real_containing_oneof();
    const auto* is_in = now->real_containing_oneof();
    if ((was_in == nullptr ? "" : was_in->name()) != (is_in == nullptr ? "" : is_in->name())) {
      Breaking(field->full_name(), "moved {} oneof {}", is_in == nullptr ? "out of" : "into",
               (is_in == nullptr ? was_in : is_in)->name());
    }
  }

  std::vector<SchemaChange> changes_;
};

// Calls for every type of the set at the top of a file, besides protobuf's own.
template <typename OnMessage, typename OnEnum>
void EachType(const Descriptors& set, const OnMessage& on_message, const OnEnum& on_enum) {
  for (const FileDescriptor* file : set.files()) {
    if (file->package() == "google.protobuf") continue;
    for (int i = 0; i < file->message_type_count(); ++i) on_message(file->message_type(i));
    for (int i = 0; i < file->enum_type_count(); ++i) on_enum(file->enum_type(i));
  }
}

}  // namespace

std::vector<SchemaChange> DiffSchemas(const Descriptors& before, const Descriptors& after) {
  Differ differ;
  EachType(
      before,
      [&](const Descriptor* message) {
        differ.Messages(message, after.Find(message->full_name()));
      },
      [&](const EnumDescriptor* type) { differ.Enums(type, after.FindEnum(type->full_name())); });
  EachType(
      after,
      [&](const Descriptor* message) {
        if (before.Find(message->full_name()) != nullptr) return;
        differ.Compatible(message->full_name(), "message added");
      },
      [&](const EnumDescriptor* type) {
        if (before.FindEnum(type->full_name()) != nullptr) return;
        differ.Compatible(type->full_name(), "enum added");
      });
  return differ.Take();
}

}  // namespace lockstep::projections
