#include "projections/declare/value_reader.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <map>

#include "platform/config/config.h"
#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::projections {
namespace {

const std::vector<std::string> kValueKeys = {"field", "attribute",    "value", "now",
                                             "as",    "omit_default", "type",  "negate"};
const std::vector<std::string> kConditionKeys = {"field",      "attribute", "equals",
                                                 "not_equals", "in",        "present"};

const std::map<std::string, Encoding> kEncodings = {
    {"name", Encoding::kPlain},      {"plain", Encoding::kPlain}, {"number", Encoding::kNumber},
    {"seconds", Encoding::kSeconds}, {"jsonb", Encoding::kJson},  {"json", Encoding::kJson},
    {"array", Encoding::kArray}};

std::optional<Encoding> ReadEncoding(YamlFile& file, const YAML::Node& node) {
  const auto as = file.Text(node, "as");
  if (!as.has_value()) return std::nullopt;
  if (const auto found = kEncodings.find(*as); found != kEncodings.end()) return found->second;
  const std::string nearest = NearestWord(*as, {"name", "number", "seconds", "jsonb", "array"});
  file.Error(node["as"], "as: '{}' is none of name, number, seconds, jsonb, array{}", *as,
             nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  return std::nullopt;
}

// The names under which a step of the path may stand in JSON.
std::vector<std::vector<std::string>> JsonPath(const FieldScope& scope, const std::string& path,
                                               const std::optional<ProtoPath>& proto) {
  std::vector<std::vector<std::string>> steps;
  if (!scope.json_prefix.empty()) steps.push_back(scope.json_prefix);
  if (proto.has_value()) {
    for (const auto* field : proto->fields()) steps.push_back({field->name(), field->json_name()});
    return steps;
  }
  for (const std::string& step : SplitList(path, '.')) steps.push_back({step});
  return steps;
}

// `options`: the map around it, or nothing.
std::optional<ReadValue> ReadField(YamlFile& file, const YAML::Node& at, const std::string& path,
                                   const YAML::Node& options, const FieldScope& scope) {
  const bool has_options = options.IsMap();
  const std::optional<Encoding> chosen = has_options ? ReadEncoding(file, options) : std::nullopt;
  ReadValue read;
  ValueSource& source = read.source;
  source.kind = ValueSource::Kind::kField;
  source.text = path;
  source.encoding = chosen.value_or(Encoding::kPlain);
  source.omit_default = has_options && file.Flag(options, "omit_default");
  if (path.empty() || path.front() == '.' || path.back() == '.') {
    file.Error(at, "'{}' is no field path; write field or message.field", path);
    return std::nullopt;
  }
  if (scope.message != nullptr) {
    auto resolved = ProtoPath::Resolve(scope.message, path);
    if (!resolved.ok()) {
      file.Error(at, "{}", MessageOf(resolved.status()));
      return std::nullopt;
    }
    source.path = *std::move(resolved);
    if (!chosen.has_value()) source.encoding = source.path->Natural();
    const auto type = source.path->TypeOf(source.encoding);
    if (!type.ok()) {
      file.Error(has_options && options["as"].IsDefined() ? options["as"] : at, "field {}: {}",
                 path, MessageOf(type.status()));
      return std::nullopt;
    }
    const std::string type_name = source.path->TypeName();
    read.use.type = *type;
    read.use.source = fmt::format("field {} ({})", path, type_name);
    scope.used.push_back(
        {scope.message->full_name(), path, source.path->Numbers(), type_name, file.Place(at)});
  } else {
    if (source.encoding == Encoding::kNumber) {
      file.Error(options["as"], "as: number needs a message with an enum; name one with message:");
      return std::nullopt;
    }
    read.use.type = {source.encoding == Encoding::kJson      ? ValueKind::kJson
                     : source.encoding == Encoding::kSeconds ? ValueKind::kNumeric
                                                             : ValueKind::kUnknown,
                     source.encoding == Encoding::kArray};
    read.use.source = fmt::format("field {}", path);
  }
  std::vector<std::vector<std::string>> steps = JsonPath(scope, path, source.path);
  source.json_slot = scope.json.Add(steps);
  if (source.path.has_value() && source.path->fields().size() > 1) {
    steps.pop_back();
    source.json_parent = scope.json.AddPresence(steps);
  }
  return read;
}

ReadValue ReadAttribute(const std::string& name) {
  ReadValue read;
  read.source = {.kind = ValueSource::Kind::kAttribute, .text = name};
  read.use.source = fmt::format("attribute {}", name);
  read.use.type.kind = name == "version" || name == "sequence" ? ValueKind::kInt64
                       : name == "schema_version"              ? ValueKind::kInt32
                       : name == "occurred_at"                 ? ValueKind::kTimestamp
                                                               : ValueKind::kText;
  return read;
}

// What a map says with `source`: field or attribute.
std::optional<ReadValue> ReadNamed(YamlFile& file, const YAML::Node& node,
                                   const std::string& source, const YAML::Node& options,
                                   const FieldScope& scope) {
  const auto name = file.Text(node, source);
  if (!name.has_value() || name->empty()) {
    file.Error(node[source], "{}: a name is wanted here", source);
    return std::nullopt;
  }
  if (source == "attribute") return ReadAttribute(*name);
  return ReadField(file, node[source], *name, options, scope);
}

std::optional<ReadValue> ReadConstant(YamlFile& file, const YAML::Node& value) {
  ReadValue read;
  if (value.IsNull()) {
    read.use.source = "null";
    return read;
  }
  if (!value.IsScalar()) {
    file.Error(value, "value: a plain value is wanted here; write JSON in quotes");
    return std::nullopt;
  }
  read.source = {.kind = ValueSource::Kind::kConstant, .text = value.Scalar()};
  read.use.type.kind = ValueKind::kConstant;
  read.use.constant = value.Scalar();
  read.use.source = fmt::format("value {}", value.Scalar());
  return read;
}

std::optional<ReadValue> ReadNow(YamlFile& file, const YAML::Node& node) {
  if (!file.Flag(node, "now")) {
    file.Error(node["now"], "now: write now: true");
    return std::nullopt;
  }
  ReadValue read;
  // Postgres reads the word as the transaction's time.
  read.source = {.kind = ValueSource::Kind::kConstant, .text = "now"};
  read.use.type.kind = ValueKind::kTimestamp;
  read.use.source = "now";
  return read;
}

// Exactly one of `choices` stands in the map; its name, or empty (reported).
std::string OneOf(YamlFile& file, const YAML::Node& node, const std::vector<std::string>& choices) {
  std::string found;
  for (const std::string& choice : choices) {
    if (!node[choice].IsDefined()) continue;
    if (!found.empty()) {
      file.Error(node[choice], "'{}' and '{}' can't both be given; keep one", found, choice);
      return "";
    }
    found = choice;
  }
  if (found.empty()) file.Error(node, "one of {} is wanted here", fmt::join(choices, ", "));
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
    file.Error(at, "enum {} has no value {}; it has {}", type->full_name(), *value,
               fmt::join(names, ", "));
  }
}

// A map with one of field, attribute, value or now.
std::optional<ReadValue> ReadMap(YamlFile& file, const YAML::Node& node, const FieldScope& scope,
                                 Operation operation) {
  file.CheckMap(node, "value", kValueKeys);
  const std::string source = OneOf(file, node, {"field", "attribute", "value", "now"});
  if (source.empty()) return std::nullopt;
  std::optional<ReadValue> read = source == "value" ? ReadConstant(file, node["value"])
                                  : source == "now" ? ReadNow(file, node)
                                                    : ReadNamed(file, node, source, node, scope);
  if (!read.has_value()) return std::nullopt;
  if (source != "field" && (node["as"].IsDefined() || node["omit_default"].IsDefined())) {
    file.Error(node, "as and omit_default belong to a field, not to {}", source);
  }
  read->use.declared = file.Text(node, "type").value_or("");
  read->source.negate = file.Flag(node, "negate");
  if (read->source.negate && operation != Operation::kIncrement) {
    file.Error(node["negate"], "negate belongs to increment");
  }
  return read;
}

// What JSON means by leaving the field out of a full snapshot.
std::optional<std::string> DefaultOf(const ValueSource& source, const Descriptors& descriptors) {
  if (!source.path.has_value() || source.omit_default) return std::nullopt;
  const auto* field = source.path->leaf();
  if (field->has_presence()) return std::nullopt;
  std::string text;
  const auto message = descriptors.Take(field->containing_type(), 0);
  AppendField(*message, field, source.encoding, &text).IgnoreError();  // it has no bad values
  return text;
}

}  // namespace

std::optional<ReadValue> ReadValueSource(YamlFile& file, const YAML::Node& node,
                                         const FieldScope& scope, Operation operation) {
  std::optional<ReadValue> read;
  if (node.IsScalar()) {
    read = ReadField(file, node, node.Scalar(), YAML::Node(), scope);
  } else if (node.IsMap()) {
    read = ReadMap(file, node, scope, operation);
  } else {
    file.Error(node, "a field's name is wanted here, or a map with field, attribute, value or now");
  }
  if (!read.has_value()) return std::nullopt;
  if (operation == Operation::kReplace) {
    read->source.json_default = DefaultOf(read->source, scope.descriptors);
  }
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
  const auto read = ReadNamed(file, node, source, YAML::Node(), scope);
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
    if (wanted.IsNull()) condition.values.emplace_back(std::nullopt);
    for (const YAML::Node& value : file.Scalars(wanted, test)) {
      condition.values.push_back(value.IsNull() ? std::nullopt : std::optional(value.Scalar()));
    }
    CheckEnumValues(file, wanted, read->source.path, condition.values);
    if (condition.values.empty()) file.Error(node, "{}: a value is wanted here", test);
  }
  conditions.push_back(std::move(condition));
  return conditions;
}

}  // namespace lockstep::projections
