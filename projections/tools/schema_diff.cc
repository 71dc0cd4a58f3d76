#include "projections/tools/schema_diff.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

namespace lockstep::projections {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

std::string TypeName(const FieldDescriptor* field) {
  std::string name;
  if (field->is_map()) {
    return fmt::format("map<{}, {}>", TypeName(field->message_type()->map_key()),
                       TypeName(field->message_type()->map_value()));
  }
  if (field->is_repeated()) name = "repeated ";
  if (field->message_type() != nullptr) return name + field->message_type()->full_name();
  if (field->enum_type() != nullptr) return name + field->enum_type()->full_name();
  return name + field->type_name();
}

class Differ {
 public:
  void Breaking(const std::string& element, std::string what) {
    changes_.push_back({true, element, std::move(what)});
  }
  void Compatible(const std::string& element, std::string what) {
    changes_.push_back({false, element, std::move(what)});
  }

  void Messages(const Descriptor* before, const Descriptor* after) {
    if (before->options().map_entry()) return;
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
        Compatible(field->full_name(),
                   fmt::format("added ({}, number {})", TypeName(field), field->number()));
      }
    }
    for (int i = 0; i < before->nested_type_count(); ++i) {
      const Descriptor* nested = before->nested_type(i);
      const Descriptor* now = after->FindNestedTypeByName(nested->name());
      if (now != nullptr) {
        Messages(nested, now);
      } else if (!nested->options().map_entry()) {
        Breaking(nested->full_name(), "message removed");
      }
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
        Breaking(element, renamed == nullptr ? "value removed"
                                             : fmt::format("renamed to {}", renamed->name()));
      } else if (now->number() != value->number()) {
        Breaking(element, fmt::format("renumbered from {} to {}", value->number(), now->number()));
      }
    }
    for (int i = 0; i < after->value_count(); ++i) {
      const EnumValueDescriptor* value = after->value(i);
      if (before->FindValueByName(value->name()) == nullptr &&
          before->FindValueByNumber(value->number()) == nullptr) {
        Compatible(fmt::format("{}.{}", after->full_name(), value->name()),
                   fmt::format("value added (number {})", value->number()));
      }
    }
  }

  std::vector<SchemaChange> Take() { return std::move(changes_); }

 private:
  void Field(const FieldDescriptor* field, const Descriptor* after) {
    const FieldDescriptor* now = after->FindFieldByName(field->name());
    if (now == nullptr) {
      const FieldDescriptor* renamed = after->FindFieldByNumber(field->number());
      if (renamed != nullptr) {
        return Breaking(
            field->full_name(),
            fmt::format("renamed to {}: JSON and mappings go by name", renamed->name()));
      }
      return Breaking(field->full_name(), "removed");
    }
    if (now->number() != field->number()) {
      Breaking(field->full_name(),
               fmt::format("renumbered from {} to {}", field->number(), now->number()));
    }
    if (TypeName(now) != TypeName(field)) {
      Breaking(field->full_name(),
               fmt::format("retyped from {} to {}", TypeName(field), TypeName(now)));
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
      Breaking(field->full_name(), is_in == nullptr
                                       ? fmt::format("moved out of oneof {}", was_in->name())
                                       : fmt::format("moved into oneof {}", is_in->name()));
    }
  }

  std::vector<SchemaChange> changes_;
};

bool IsGoogles(const FileDescriptor* file) { return file->package() == "google.protobuf"; }

}  // namespace

std::vector<SchemaChange> DiffSchemas(const Descriptors& before, const Descriptors& after) {
  Differ differ;
  for (const FileDescriptor* file : before.files()) {
    if (IsGoogles(file)) continue;
    for (int i = 0; i < file->message_type_count(); ++i) {
      const Descriptor* message = file->message_type(i);
      const Descriptor* now = after.Find(message->full_name());
      if (now != nullptr) {
        differ.Messages(message, now);
      } else {
        differ.Breaking(message->full_name(), "message removed");
      }
    }
    for (int i = 0; i < file->enum_type_count(); ++i) {
      differ.Enums(file->enum_type(i), after.FindEnum(file->enum_type(i)->full_name()));
    }
  }
  for (const FileDescriptor* file : after.files()) {
    if (IsGoogles(file)) continue;
    for (int i = 0; i < file->message_type_count(); ++i) {
      const std::string& name = file->message_type(i)->full_name();
      if (before.Find(name) == nullptr) differ.Compatible(name, "message added");
    }
    for (int i = 0; i < file->enum_type_count(); ++i) {
      const std::string& name = file->enum_type(i)->full_name();
      if (before.FindEnum(name) == nullptr) differ.Compatible(name, "enum added");
    }
  }
  return differ.Take();
}

}  // namespace lockstep::projections
