#include "projections/declare/value_reader.h"

#include <google/protobuf/descriptor.h>

#include "platform/config/config.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::projections {
namespace {

const std::vector<std::string> kValueKeys = {"field", "attribute",    "value", "now",
                                             "as",    "omit_default", "type",  "negate"};
const std::vector<std::string> kConditionKeys = {"field",      "attribute", "equals",
                                                 "not_equals", "in",        "present"};

std::optional<Encoding> ReadEncoding(YamlFile& file, const YAML::Node& node) {
  const auto as = file.Text(node, "as");
  if (!as.has_value()) return std::nullopt;
  if (*as == "name" || *as == "plain") return Encoding::kPlain;
  if (*as == "number") return Encoding::kNumber;
  if (*as == "seconds") return Encoding::kSeconds;
  if (*as == "jsonb" || *as == "json") return Encoding::kJson;
  if (*as == "array") return Encoding::kArray;
  const std::string nearest = NearestWord(*as, {"name", "number", "seconds", "jsonb", "array"});
  file.Error(node["as"],
             fmt::format("as: '{}' is none of name, number, seconds, jsonb, array{}", *as,
                         nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
  return std::nullopt;
}

// The names under which a step of the path may stand in JSON.
std::vector<std::vector<std::string>> JsonPath(const FieldScope& scope, const std::string& path,
                                               const std::optional<ProtoPath>& proto) {
  std::vector<std::vector<std::string>> steps;
  if (!scope.json_prefix.empty()) steps.push_back(scope.json_prefix);
  if (proto.has_value()) {
    std::vector<const google::protobuf::FieldDescriptor*> fields = proto->parents();
    fields.push_back(proto->leaf());
    for (const auto* field : fields) steps.push_back({field->name(), field->json_name()});
    return steps;
  }
  for (const std::string& step : SplitList(path, '.')) steps.push_back({step});
  return steps;
}

std::optional<ReadValue> ReadField(YamlFile& file, const YAML::Node& at, const std::string& path,
                                   const YAML::Node& options, const FieldScope& scope) {
  const bool has_options = options.IsMap();
  const std::optional<Encoding> chosen = has_options ? ReadEncoding(file, options) : std::nullopt;
  const bool omit_default = has_options && file.Flag(options, "omit_default");
  if (path.empty() || path.front() == '.' || path.back() == '.') {
    file.Error(at, fmt::format("'{}' is no field path; write field or message.field", path));
    return std::nullopt;
  }
  ReadValue read;
  std::optional<ProtoPath> proto;
  Encoding encoding = chosen.value_or(Encoding::kPlain);
  if (scope.message != nullptr) {
    auto resolved = ProtoPath::Resolve(scope.message, path);
    if (!resolved.ok()) {
      file.Error(at, MessageOf(resolved.status()));
      return std::nullopt;
    }
    proto = *std::move(resolved);
    if (!chosen.has_value()) encoding = proto->Natural();
    const auto type = proto->TypeOf(encoding);
    if (!type.ok()) {
      file.Error(has_options && options["as"].IsDefined() ? options["as"] : at,
                 fmt::format("field {}: {}", path, MessageOf(type.status())));
      return std::nullopt;
    }
    read.use.type = *type;
    read.use.source = fmt::format("field {} ({})", path, proto->TypeName());
    scope.fields->push_back(
        {scope.message->full_name(), path, proto->Numbers(), proto->TypeName(), file.Place(at)});
  } else {
    if (encoding == Encoding::kNumber) {
      file.Error(options["as"], "as: number needs a message with an enum; name one with message:");
      return std::nullopt;
    }
    read.use.type = {encoding == Encoding::kJson      ? ValueKind::kJson
                     : encoding == Encoding::kSeconds ? ValueKind::kNumeric
                                                      : ValueKind::kUnknown,
                     encoding == Encoding::kArray};
    read.use.source = fmt::format("field {}", path);
  }
  std::vector<std::vector<std::string>> steps = JsonPath(scope, path, proto);
  const int slot = scope.json->Add(steps);
  const bool nested = proto.has_value() && !proto->parents().empty();
  read.source = ValueSource::Field(std::move(proto), slot, encoding, omit_default);
  if (nested) {
    steps.pop_back();
    read.source.SetJsonParent(scope.json->AddPresence(steps));
  }
  return read;
}

ReadValue ReadAttribute(const std::string& name) {
  ReadValue read;
  read.source = ValueSource::Attribute(name);
  read.use.source = fmt::format("attribute {}", name);
  read.use.type.kind = name == "version" || name == "sequence" ? ValueKind::kInt64
                       : name == "schema_version"              ? ValueKind::kInt32
                       : name == "occurred_at"                 ? ValueKind::kTimestamp
                                                               : ValueKind::kText;
  return read;
}

std::optional<ReadValue> ReadConstant(YamlFile& file, const YAML::Node& value) {
  ReadValue read;
  if (value.IsNull()) {
    read.source = ValueSource::Null();
    read.use.source = "null";
    return read;
  }
  if (!value.IsScalar()) {
    file.Error(value, "value: a plain value is wanted here; write JSON in quotes");
    return std::nullopt;
  }
  read.source = ValueSource::Constant(value.Scalar());
  read.use.type.kind = ValueKind::kConstant;
  read.use.constant = value.Scalar();
  read.use.source = fmt::format("value {}", value.Scalar());
  return read;
}

// Exactly one of `choices` stands in the map; its name, or empty (reported).
std::string OneOf(YamlFile& file, const YAML::Node& node, const std::vector<std::string>& choices) {
  std::string found;
  for (const std::string& choice : choices) {
    if (!node[choice].IsDefined()) continue;
    if (!found.empty()) {
      file.Error(node[choice],
                 fmt::format("'{}' and '{}' can't both be given; keep one", found, choice));
      return "";
    }
    found = choice;
  }
  if (found.empty()) {
    file.Error(node, fmt::format("one of {} is wanted here", fmt::join(choices, ", ")));
  }
  return found;
}

// A condition on an enum that can never hold is a mistake.
void CheckEnumValues(YamlFile& file, const YAML::Node& at, const std::optional<ProtoPath>& path,
                     const std::vector<std::optional<std::string>>& values) {
  if (!path.has_value() || path->leaf()->is_repeated()) return;
  const auto* type = path->leaf()->enum_type();
  if (type == nullptr) return;
  for (const std::optional<std::string>& value : values) {
    if (!value.has_value() || type->FindValueByName(*value) != nullptr) continue;
    std::vector<std::string> names;
    for (int i = 0; i < type->value_count(); ++i) names.push_back(type->value(i)->name());
    file.Error(at, fmt::format("enum {} has no value {}; it has {}", type->full_name(), *value,
                               fmt::join(names, ", ")));
  }
}

}  // namespace

std::optional<ReadValue> ReadValueSource(YamlFile& file, const YAML::Node& node,
                                         const FieldScope& scope, Operation operation) {
  std::optional<ReadValue> read;
  if (node.IsScalar()) {
    read = ReadField(file, node, node.Scalar(), YAML::Node(), scope);
  } else if (node.IsMap()) {
    file.CheckMap(node, "value", kValueKeys);
    const std::string source = OneOf(file, node, {"field", "attribute", "value", "now"});
    if (source.empty()) return std::nullopt;
    if (source == "value") {
      read = ReadConstant(file, node["value"]);
    } else if (source == "now") {
      if (!file.Flag(node, "now")) {
        file.Error(node["now"], "now: write now: true");
        return std::nullopt;
      }
      read.emplace();
      read->source = ValueSource::Now();
      read->use.type.kind = ValueKind::kTimestamp;
      read->use.source = "now";
    } else {
      const auto name = file.Text(node, source);
      if (!name.has_value() || name->empty()) {
        file.Error(node[source], fmt::format("{}: a name is wanted here", source));
        return std::nullopt;
      }
      if (source == "field") {
        read = ReadField(file, node["field"], *name, node, scope);
      } else {
        read = ReadAttribute(*name);
      }
    }
    if (!read.has_value()) return std::nullopt;
    if (source != "field" && (node["as"].IsDefined() || node["omit_default"].IsDefined())) {
      file.Error(node, fmt::format("as and omit_default belong to a field, not to {}", source));
    }
    read->use.declared = file.Text(node, "type").value_or("");
    if (file.Flag(node, "negate")) {
      if (operation != Operation::kIncrement) {
        file.Error(node["negate"], "negate belongs to increment");
      }
      read->source.Negate();
    }
  } else {
    file.Error(node, "a field's name is wanted here, or a map with field, attribute, value or now");
    return std::nullopt;
  }
  if (!read.has_value()) return std::nullopt;
  if (operation == Operation::kReplace) read->source.FillDefaults();
  read->use.place = file.Place(node);
  read->use.counted = operation == Operation::kIncrement;
  return read;
}

std::vector<Condition> ReadConditions(YamlFile& file, const YAML::Node& node,
                                      const FieldScope& scope) {
  std::vector<Condition> conditions;
  if (!node.IsDefined() || node.IsNull()) return conditions;
  if (node.IsSequence()) {
    for (const auto& item : node) {
      for (Condition& condition : ReadConditions(file, item, scope)) {
        conditions.push_back(std::move(condition));
      }
    }
    return conditions;
  }
  if (!file.CheckMap(node, "when", kConditionKeys)) return conditions;
  const std::string source = OneOf(file, node, {"field", "attribute"});
  const std::string test = OneOf(file, node, {"equals", "not_equals", "in", "present"});
  if (source.empty() || test.empty()) return conditions;
  const auto name = file.Text(node, source);
  if (!name.has_value() || name->empty()) {
    file.Error(node[source], fmt::format("{}: a name is wanted here", source));
    return conditions;
  }
  const auto read = source == "field" ? ReadField(file, node["field"], *name, YAML::Node(), scope)
                                      : std::optional<ReadValue>(ReadAttribute(*name));
  if (!read.has_value()) return conditions;
  Condition condition;
  condition.source = read->source;
  if (test == "present") {
    const auto text = file.Text(node, "present");
    if (text != "true" && text != "false") {
      file.Error(node["present"], "present: true or false is wanted here");
    }
    condition.test = text == "true" ? Condition::Test::kPresent : Condition::Test::kAbsent;
  } else {
    condition.test = test == "not_equals" ? Condition::Test::kNotIn : Condition::Test::kIn;
    const YAML::Node wanted = node[test];
    const bool null = wanted.IsNull();
    if (null) condition.values.emplace_back(std::nullopt);
    for (const YAML::Node& value : file.Scalars(wanted, test)) {
      if (value.IsNull()) {
        condition.values.emplace_back(std::nullopt);
      } else {
        condition.values.emplace_back(value.Scalar());
      }
    }
    CheckEnumValues(file, node[test], read->source.path(), condition.values);
    if (condition.values.empty()) file.Error(node, fmt::format("{}: a value is wanted here", test));
  }
  conditions.push_back(std::move(condition));
  return conditions;
}

}  // namespace lockstep::projections
