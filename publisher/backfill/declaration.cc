#include "publisher/backfill/declaration.h"

#include <algorithm>
#include <cctype>

#include "platform/config/yaml_file.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "platform/text.h"
#include "publisher/backfill/payload_maker.h"

namespace lockstep::publisher {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxIdentifierBytes = 63;
constexpr Millis kLongestChunk{10'000};

bool IsTopic(const std::string& topic) {
  return !topic.empty() && topic.size() <= 127 && std::ranges::all_of(topic, [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '.' || c == '-';
  });
}

absl::Status CheckColumn(const std::string& column, std::string_view what) {
  if (column.empty()) return InvalidArgument("`{}` names no column", what);
  if (column.size() > kMaxIdentifierBytes) {
    return InvalidArgument("`{}`: '{}' is longer than a column's name may be", what, column);
  }
  return absl::OkStatus();
}

absl::Status CheckText(const std::string& text, std::string_view what) {
  if (text.empty() || text.size() > 1024) {
    return InvalidArgument("`{}` must have 1 to 1024 bytes", what);
  }
  return absl::OkStatus();
}

// A query is read as a subselect, which ends without a semicolon.
std::string WithoutSemicolon(std::string_view query) {
  query = Trim(query);
  while (query.ends_with(';')) query = Trim(query.substr(0, query.size() - 1));
  return std::string(query);
}

void ReadFields(YamlFile& file, const YAML::Node& node, Declaration& declaration) {
  if (!node.IsDefined() || node.IsNull()) return;  // Validate says so
  if (node.IsSequence()) {
    for (const YAML::Node& column : file.Scalars(node, "fields")) {
      declaration.fields.emplace_back(column.Scalar(), column.Scalar());
    }
    return;
  }
  if (!file.CheckMap(node, "fields", {})) return;
  for (const auto& field : node) {
    if (field.first.IsScalar() && field.second.IsScalar()) {
      declaration.fields.emplace_back(field.first.Scalar(), field.second.Scalar());
    } else {
      file.Error(field.second, "fields: a column's name is wanted here");
    }
  }
}

template <typename Number>
void ReadNumber(YamlFile& file, const YAML::Node& root, const std::string& key, Number* number) {
  const auto text = file.Text(root, key);
  if (text.has_value() && !ParseWhole(*text, number)) {
    file.Error(root[key], "{}: '{}' is no whole number", key, *text);
  }
}

void ReadPayload(YamlFile& file, const YAML::Node& payload, Declaration& declaration) {
  if (!payload.IsDefined() || payload.IsNull()) return;  // Validate says that fields are missing
  if (!file.CheckMap(payload, "payload", {"fields", "message", "descriptors"})) return;
  ReadFields(file, YamlFile::Child(payload, "fields"), declaration);
  declaration.message = file.Text(payload, "message").value_or("");
  const std::string path = file.Text(payload, "descriptors").value_or("");
  if (path.empty()) return;
  auto bytes = ReadWholeFile(file.Resolve(path));
  if (bytes.ok()) {
    declaration.descriptors = *std::move(bytes);
  } else {
    file.Error(payload["descriptors"], "descriptor set {}", MessageOf(bytes.status()));
  }
}

}  // namespace

std::string Declaration::SourceSql() const {
  if (table.empty()) return "(" + query + "\n)";  // the query may end with a comment
  const auto name = postgres::QualifiedName::Parse(table);
  return name.ok() ? name->Quoted() : postgres::QuoteIdentifier(table);
}

std::vector<std::string> Declaration::Columns() const {
  std::vector<std::string> columns = key;
  const auto add = [&](const std::string& column) {
    if (!column.empty() && std::ranges::find(columns, column) == columns.end()) {
      columns.push_back(column);
    }
  };
  add(aggregate_id);
  add(version);
  add(tenant);
  for (const auto& [field, column] : fields) add(column);
  return columns;
}

absl::Status Declaration::Validate() const {
  RETURN_IF_ERROR(CheckText(name, "backfill"));
  if (outbox.name.empty()) return InvalidArgument("`outbox` names none");
  if (!IsTopic(topic)) {
    return InvalidArgument("`topic`: '{}' is not made of a-z, 0-9, '.' and '-'", topic);
  }
  if (table.empty() == query.empty()) {
    return InvalidArgument("name either a `table` or a `query`, which is read as if it were one");
  }
  if (!table.empty()) RETURN_IF_ERROR(postgres::QualifiedName::Parse(table).status());
  if (key.empty()) {
    return InvalidArgument("`key` is missing: name the columns in whose order rows are read");
  }
  for (const std::string& column : key) RETURN_IF_ERROR(CheckColumn(column, "key"));
  for (auto column = key.begin(); column != key.end(); ++column) {
    if (std::find(key.begin(), column, *column) != column) {
      return InvalidArgument("`key` names the column '{}' twice", *column);
    }
  }
  RETURN_IF_ERROR(CheckText(aggregate_type, "aggregate_type"));
  if (aggregate_id.empty() && key.size() > 1) {
    return InvalidArgument(
        "`aggregate_id` is missing: the key has several columns, so say which one is the id");
  }
  RETURN_IF_ERROR(CheckColumn(aggregate_id, "aggregate_id"));
  if (version.empty()) {
    return InvalidArgument(
        "`version` is missing: name the column that each change of a row raises, in the "
        "transaction that enqueues its event");
  }
  RETURN_IF_ERROR(CheckColumn(version, "version"));
  if (!tenant.empty()) RETURN_IF_ERROR(CheckColumn(tenant, "tenant"));
  RETURN_IF_ERROR(CheckText(event_type, "event_type"));
  if (fields.empty()) {
    return InvalidArgument("`payload.fields` is missing: name the fields and their columns");
  }
  for (const auto& [field, column] : fields) {
    RETURN_IF_ERROR(CheckColumn(column, fmt::format("payload.fields.{}", field)));
    // They become the names of a result's columns.
    RETURN_IF_ERROR(CheckColumn(field, "payload.fields"));
  }
  if (message.empty() != descriptors.empty()) {
    return InvalidArgument(
        "`payload.message` and `payload.descriptors` go together: a protobuf payload needs both, "
        "JSON neither");
  }
  if (rows_per_second < 0) return InvalidArgument("`rows_per_second` must not be below 0");
  if (chunk <= Millis(0) || chunk > kLongestChunk) {
    return InvalidArgument("`chunk` must be between 1ms and 10s");
  }
  return PayloadMaker::Make(*this).status();
}

ordered_json Declaration::ToJson() const {
  ordered_json payload_fields = ordered_json::object();
  for (const auto& [field, column] : fields) payload_fields[field] = column;
  return {{"backfill", name},
          {"outbox", outbox.ToString()},
          {"topic", topic},
          {"table", table},
          {"query", query},
          {"key", key},
          {"aggregate_type", aggregate_type},
          {"aggregate_id", aggregate_id},
          {"version", version},
          {"tenant", tenant},
          {"event_type", event_type},
          {"schema_version", schema_version},
          {"fields", std::move(payload_fields)},
          {"message", message},
          {"rows_per_second", rows_per_second},
          {"chunk_ms", chunk.count()}};
}

absl::StatusOr<Declaration> Declaration::FromJson(const ordered_json& json,
                                                  std::string descriptors) {
  Declaration declaration;
  try {
    const auto text = [&](const char* key) { return json.at(key).get<std::string>(); };
    declaration.name = text("backfill");
    ASSIGN_OR_RETURN(declaration.outbox, postgres::QualifiedName::Parse(text("outbox")));
    declaration.topic = text("topic");
    declaration.table = text("table");
    declaration.query = text("query");
    declaration.key = json.at("key").get<std::vector<std::string>>();
    declaration.aggregate_type = text("aggregate_type");
    declaration.aggregate_id = text("aggregate_id");
    declaration.version = text("version");
    declaration.tenant = text("tenant");
    declaration.event_type = text("event_type");
    declaration.schema_version = json.at("schema_version").get<int>();
    for (const auto& [field, column] : json.at("fields").items()) {
      declaration.fields.emplace_back(field, column.get<std::string>());
    }
    declaration.message = text("message");
    declaration.rows_per_second = json.at("rows_per_second").get<int64_t>();
    declaration.chunk = Millis(json.at("chunk_ms").get<int64_t>());
  } catch (const ordered_json::exception& error) {
    return InvalidArgument("the stored declaration can't be read: {}", error.what());
  }
  declaration.descriptors = std::move(descriptors);
  RETURN_IF_ERROR(declaration.Validate());
  return declaration;
}

absl::StatusOr<Declaration> LoadDeclaration(const std::string& path) {
  YamlFile file(path);
  RETURN_IF_ERROR(file.Load());
  const YAML::Node& root = file.root();
  if (!file.CheckMap(root, "backfill",
                     {"backfill", "outbox", "topic", "table", "query", "key", "aggregate_type",
                      "aggregate_id", "version", "tenant", "event_type", "schema_version",
                      "payload", "rows_per_second", "chunk"})) {
    return file.status();
  }
  Declaration declaration;
  const auto text = [&](const char* key) { return file.Text(root, key).value_or(""); };
  declaration.name = file.Required(root, "backfill", "give it a name");
  if (const std::string outbox =
          file.Required(root, "outbox", "name the outbox whose publisher shall send the rows");
      !outbox.empty()) {
    auto parsed = postgres::QualifiedName::Parse(outbox);
    if (parsed.ok()) {
      declaration.outbox = *std::move(parsed);
    } else {
      file.Error(root["outbox"], "outbox: {}", MessageOf(parsed.status()));
    }
  }
  declaration.topic = file.Required(root, "topic", "name the logical topic, as in the outbox");
  declaration.table = text("table");
  declaration.query = WithoutSemicolon(text("query"));
  for (const YAML::Node& column : file.Scalars(YamlFile::Child(root, "key"), "key")) {
    declaration.key.push_back(column.Scalar());
  }
  declaration.aggregate_type = file.Required(root, "aggregate_type", "as the events have it");
  declaration.aggregate_id = text("aggregate_id");
  if (declaration.aggregate_id.empty() && declaration.key.size() == 1) {
    declaration.aggregate_id = declaration.key[0];
  }
  declaration.version = text("version");
  declaration.tenant = text("tenant");
  declaration.event_type =
      file.Required(root, "event_type", "name the event that a snapshot is to look like");
  ReadNumber(file, root, "schema_version", &declaration.schema_version);
  ReadPayload(file, YamlFile::Child(root, "payload"), declaration);
  ReadNumber(file, root, "rows_per_second", &declaration.rows_per_second);
  if (const std::string chunk = text("chunk"); !chunk.empty()) {
    const auto parsed = ParseDuration(chunk);
    if (parsed.ok()) {
      declaration.chunk = *parsed;
    } else {
      file.Error(root["chunk"], "chunk: {}", MessageOf(parsed.status()));
    }
  }
  RETURN_IF_ERROR(file.status());
  if (const absl::Status valid = declaration.Validate(); !valid.ok()) {
    return InvalidArgument("{}: {}", path, MessageOf(valid));
  }
  return declaration;
}

}  // namespace lockstep::publisher
