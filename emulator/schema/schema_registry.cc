#include "emulator/schema/schema_registry.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "emulator/wire/field_rules.h"
#include "emulator/wire/names.h"
#include "emulator/wire/proto_time.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

namespace pb = google::pubsub::v1;

constexpr size_t kMaxRevisions = 20;

absl::StatusOr<std::shared_ptr<const ProtoSchema>> Compile(const pb::Schema& schema) {
  RETURN_IF_ERROR(RefuseUnsupported(
      schema, {"name", "type", "definition", "revision_id", "revision_create_time"}));
  if (schema.type() == pb::Schema::AVRO) {
    return absl::UnimplementedError("Avro schemas are not implemented by this emulator.");
  }
  if (schema.type() != pb::Schema::PROTOCOL_BUFFER) {
    return InvalidArgument("Invalid schema: its type is not set.");
  }
  return ProtoSchema::Compile(schema.definition());
}

pb::Schema Shown(pb::Schema schema, pb::SchemaView view, pb::SchemaView otherwise) {
  if ((view == pb::SCHEMA_VIEW_UNSPECIFIED ? otherwise : view) == pb::BASIC) {
    schema.clear_definition();
  }
  return schema;
}

absl::Status Missing(const std::string& name) {
  return NotFound("Resource not found (resource={}).", name);
}

}  // namespace

SchemaRegistry::SchemaRegistry(const Clock& clock)
    : clock_(clock), revisions_made_(std::random_device()()) {}

SchemaRegistry::Revision SchemaRegistry::MakeRevision(Schema schema,
                                                      std::shared_ptr<const ProtoSchema> compiled) {
  // Eight hex digits that do not repeat: an odd multiplier permutes 32 bits.
  const auto number = static_cast<uint32_t>(++revisions_made_ * 2'654'435'761U);
  schema.set_revision_id(fmt::format("{:08x}", number));
  *schema.mutable_revision_create_time() = ToProto(clock_.Now());
  return {std::move(schema), std::move(compiled)};
}

absl::StatusOr<SchemaRegistry::Schema> SchemaRegistry::Create(const std::string& parent,
                                                              const std::string& id,
                                                              Schema schema) {
  RETURN_IF_ERROR(CheckProject(parent));
  RETURN_IF_ERROR(CheckId(id));
  ASSIGN_OR_RETURN(auto compiled, Compile(schema));
  schema.set_name(parent + "/schemas/" + id);
  std::scoped_lock lock(mu_);
  const auto [it, is_new] = schemas_.try_emplace(schema.name());
  if (!is_new) {
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "Resource already exists in the project (resource={}).", schema.name());
  }
  it->second.push_back(MakeRevision(std::move(schema), std::move(compiled)));
  return it->second.back().schema;
}

absl::StatusOr<SchemaRegistry::Revisions> SchemaRegistry::Find(const std::string& name) const {
  RETURN_IF_ERROR(ResourceName::Parse(name, "schemas").status());
  std::scoped_lock lock(mu_);
  const auto it = schemas_.find(name);
  if (it == schemas_.end()) return Missing(name);
  return it->second;
}

absl::StatusOr<SchemaRegistry::Revision> SchemaRegistry::FindRevision(
    const std::string& name) const {
  const size_t at = name.find('@');
  ASSIGN_OR_RETURN(const Revisions revisions, Find(name.substr(0, at)));
  if (at == std::string::npos) return revisions.back();
  const std::string id = name.substr(at + 1);
  for (const Revision& revision : revisions) {
    if (revision.schema.revision_id() == id) return revision;
  }
  return Missing(name);
}

absl::StatusOr<SchemaRegistry::Schema> SchemaRegistry::Get(const std::string& name,
                                                           View view) const {
  ASSIGN_OR_RETURN(Revision revision, FindRevision(name));
  return Shown(std::move(revision.schema), view, pb::FULL);
}

absl::StatusOr<Page<SchemaRegistry::Schema>> SchemaRegistry::List(const std::string& parent,
                                                                  View view,
                                                                  const PageRequest& page) const {
  RETURN_IF_ERROR(CheckProject(parent));
  std::scoped_lock lock(mu_);
  return ListPage<Schema>(schemas_, parent + "/schemas/", page, [view](const Revisions& each) {
    return std::optional<Schema>(Shown(each.back().schema, view, pb::BASIC));
  });
}

absl::StatusOr<Page<SchemaRegistry::Schema>> SchemaRegistry::ListRevisions(
    const std::string& name, View view, const PageRequest& page) const {
  ASSIGN_OR_RETURN(const Revisions revisions, Find(name));
  std::map<std::string, const Schema*> newest_first;
  for (size_t i = 0; i < revisions.size(); ++i) {
    newest_first[fmt::format("{:04}", revisions.size() - i)] = &revisions[i].schema;
  }
  return ListPage<Schema>(newest_first, "", page, [view](const Schema* each) {
    return std::optional<Schema>(Shown(*each, view, pb::BASIC));
  });
}

absl::StatusOr<SchemaRegistry::Schema> SchemaRegistry::Add(const std::string& name, Schema schema) {
  ASSIGN_OR_RETURN(auto compiled, Compile(schema));
  schema.set_name(name);
  std::scoped_lock lock(mu_);
  const auto it = schemas_.find(name);
  if (it == schemas_.end()) return Missing(name);
  if (it->second.size() >= kMaxRevisions) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "The schema has {} revisions, as many as it may: delete one (resource={}).",
                      kMaxRevisions, name);
  }
  for (const Revision& older : it->second) {
    if (absl::Status fits = compiled->CheckSuccessorOf(*older.compiled); !fits.ok()) {
      return InvalidArgument(
          "Compatibility checking failed to commit a schema revision for (schema={}): it is "
          "incompatible with revision {}: {}.",
          name, older.schema.revision_id(), MessageOf(fits));
    }
  }
  it->second.push_back(MakeRevision(std::move(schema), std::move(compiled)));
  return it->second.back().schema;
}

absl::StatusOr<SchemaRegistry::Schema> SchemaRegistry::Commit(const std::string& name,
                                                              Schema schema) {
  RETURN_IF_ERROR(Find(name).status());
  return Add(name, std::move(schema));
}

absl::StatusOr<SchemaRegistry::Schema> SchemaRegistry::Rollback(const std::string& name,
                                                                const std::string& revision_id) {
  ASSIGN_OR_RETURN(Revision old, FindRevision(name + "@" + revision_id));
  return Add(name, std::move(old.schema));
}

absl::StatusOr<SchemaRegistry::Schema> SchemaRegistry::DeleteRevision(
    const std::string& name, const std::string& revision_id) {
  const size_t at = name.find('@');
  const std::string schema = name.substr(0, at);
  const std::string id = at == std::string::npos ? revision_id : name.substr(at + 1);
  RETURN_IF_ERROR(Find(schema).status());
  std::scoped_lock lock(mu_);
  const auto it = schemas_.find(schema);
  if (it == schemas_.end()) return Missing(schema);
  Revisions& revisions = it->second;
  const auto gone = std::find_if(revisions.begin(), revisions.end(), [&id](const Revision& each) {
    return each.schema.revision_id() == id;
  });
  if (gone == revisions.end()) return Missing(schema + "@" + id);
  if (revisions.size() == 1) {
    return FailedPrecondition("The last revision can't be deleted; delete the schema instead.");
  }
  revisions.erase(gone);
  return revisions.back().schema;
}

absl::Status SchemaRegistry::Delete(const std::string& name) {
  RETURN_IF_ERROR(ResourceName::Parse(name, "schemas").status());
  std::scoped_lock lock(mu_);
  return schemas_.erase(name) > 0 ? absl::OkStatus() : Missing(name);
}

absl::Status SchemaRegistry::ValidateSchema(const Schema& schema) {
  return Compile(schema).status();
}

absl::Status SchemaRegistry::ValidateMessage(const pb::ValidateMessageRequest& request) const {
  RETURN_IF_ERROR(CheckProject(request.parent()));
  switch (request.schema_spec_case()) {
    case pb::ValidateMessageRequest::kName: {
      ASSIGN_OR_RETURN(const Revision revision, FindRevision(request.name()));
      return revision.compiled->Validate(request.message(), request.encoding());
    }
    case pb::ValidateMessageRequest::kSchema: {
      ASSIGN_OR_RETURN(const auto compiled, Compile(request.schema()));
      return compiled->Validate(request.message(), request.encoding());
    }
    case pb::ValidateMessageRequest::SCHEMA_SPEC_NOT_SET:
      break;
  }
  return InvalidArgument("ValidateMessage needs the name of a schema or a schema.");
}

absl::Status SchemaRegistry::CheckSettings(const pb::SchemaSettings& settings) const {
  if (settings.encoding() != pb::BINARY && settings.encoding() != pb::JSON) {
    return InvalidArgument("Invalid schema_settings: the encoding must be BINARY or JSON.");
  }
  ASSIGN_OR_RETURN(const Revisions revisions, Find(settings.schema()));
  for (const std::string& id : {settings.first_revision_id(), settings.last_revision_id()}) {
    if (id.empty()) continue;
    RETURN_IF_ERROR(FindRevision(settings.schema() + "@" + id).status());
  }
  return absl::OkStatus();
}

absl::Status SchemaRegistry::CheckMessages(const pb::SchemaSettings& settings,
                                           const pb::PublishRequest& request) const {
  const auto found = Find(settings.schema());
  if (!found.ok()) {
    return InvalidArgument("The schema of {} was deleted: it can't check any message.",
                           request.topic());
  }
  const auto position = [&found](const std::string& id, size_t otherwise) {
    for (size_t i = 0; i < found->size(); ++i) {
      if ((*found)[i].schema.revision_id() == id) return i;
    }
    return otherwise;
  };
  const size_t first = position(settings.first_revision_id(), 0);
  const size_t last = position(settings.last_revision_id(), found->size() - 1);
  for (const auto& message : request.messages()) {
    absl::Status newest;  // what to tell the client
    bool fits = false;
    for (size_t i = last + 1; i-- > first && !fits;) {
      absl::Status checked = (*found)[i].compiled->Validate(message.data(), settings.encoding());
      fits = checked.ok();
      if (i == last) newest = std::move(checked);
    }
    if (!fits) return newest.ok() ? InvalidArgument("No revision is allowed.") : newest;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::emulator
