#include "emulator/schema/schema_registry.h"

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

#include "emulator/wire/field_rules.h"
#include "emulator/wire/names.h"
#include "emulator/wire/page.h"
#include "emulator/wire/proto_time.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

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

}  // namespace

SchemaRegistry::SchemaRegistry(const Clock& clock)
    : clock_(clock), revisions_made_(std::random_device()()) {}

absl::Status SchemaRegistry::Restore(const std::vector<pb::Schema>& revisions) {
  std::scoped_lock lock(mu_);
  for (const pb::Schema& schema : revisions) {
    ASSIGN_OR_RETURN(auto compiled, Compile(schema));
    schemas_[schema.name()].push_back(
        std::make_shared<Revision>(Revision{schema, std::move(compiled)}));
  }
  return absl::OkStatus();
}

absl::Status SchemaRegistry::KeepAll(const std::string& name, const Revisions& revisions) const {
  if (!keep_) return absl::OkStatus();
  std::vector<pb::Schema> schemas;
  for (const auto& revision : revisions) schemas.push_back(revision->schema);
  return keep_(name, schemas);
}

absl::StatusOr<pb::Schema> SchemaRegistry::Append(pb::Schema schema,
                                                  std::shared_ptr<const ProtoSchema> compiled,
                                                  Revisions* revisions) {
  // Eight hex digits that do not repeat: an odd multiplier permutes 32 bits.
  const auto number = static_cast<uint32_t>(++revisions_made_ * 2'654'435'761U);
  schema.set_revision_id(fmt::format("{:08x}", number));
  *schema.mutable_revision_create_time() = ToProto(clock_.Now());
  Revisions longer = *revisions;
  longer.push_back(std::make_shared<Revision>(Revision{schema, std::move(compiled)}));
  RETURN_IF_ERROR(KeepAll(schema.name(), longer));
  *revisions = std::move(longer);
  return schema;
}

absl::StatusOr<pb::Schema> SchemaRegistry::Create(const pb::CreateSchemaRequest& request) {
  RETURN_IF_ERROR(CheckProject(request.parent()));
  RETURN_IF_ERROR(CheckId(request.schema_id()));
  pb::Schema schema = request.schema();
  ASSIGN_OR_RETURN(auto compiled, Compile(schema));
  schema.set_name(request.parent() + "/schemas/" + request.schema_id());
  std::scoped_lock lock(mu_);
  if (schemas_.contains(schema.name())) return ResourceExists(schema.name());
  Revisions revisions;
  ASSIGN_OR_RETURN(schema, Append(std::move(schema), std::move(compiled), &revisions));
  schemas_.emplace(schema.name(), std::move(revisions));
  return schema;
}

SchemaRegistry::Revisions::const_iterator SchemaRegistry::FindIn(const Revisions& revisions,
                                                                 const std::string& id) {
  return std::find_if(revisions.begin(), revisions.end(),
                      [&id](const auto& each) { return each->schema.revision_id() == id; });
}

absl::StatusOr<SchemaRegistry::Revisions*> SchemaRegistry::FindLocked(const std::string& name) {
  RETURN_IF_ERROR(ResourceName::Parse(name, "schemas").status());
  const auto it = schemas_.find(name);
  if (it == schemas_.end()) return ResourceNotFound(name);
  return &it->second;
}

absl::StatusOr<SchemaRegistry::Revisions> SchemaRegistry::Find(const std::string& name) {
  std::scoped_lock lock(mu_);
  ASSIGN_OR_RETURN(const Revisions* revisions, FindLocked(name));
  return *revisions;
}

absl::StatusOr<std::shared_ptr<const SchemaRegistry::Revision>> SchemaRegistry::FindRevision(
    const std::string& name) {
  const size_t at = name.find('@');
  ASSIGN_OR_RETURN(const Revisions revisions, Find(name.substr(0, at)));
  if (at == std::string::npos) return revisions.back();
  const auto revision = FindIn(revisions, name.substr(at + 1));
  if (revision == revisions.end()) return ResourceNotFound(name);
  return *revision;
}

absl::StatusOr<pb::Schema> SchemaRegistry::Get(const pb::GetSchemaRequest& request) {
  ASSIGN_OR_RETURN(const auto revision, FindRevision(request.name()));
  return Shown(revision->schema, request.view(), pb::FULL);
}

absl::StatusOr<pb::ListSchemasResponse> SchemaRegistry::List(
    const pb::ListSchemasRequest& request) {
  RETURN_IF_ERROR(CheckProject(request.parent()));
  std::scoped_lock lock(mu_);
  return ListPage(
      request, schemas_, request.parent() + "/schemas/",
      [&request](const Revisions& each) {
        return Shown(each.back()->schema, request.view(), pb::BASIC);
      },
      &pb::ListSchemasResponse::mutable_schemas);
}

absl::StatusOr<pb::ListSchemaRevisionsResponse> SchemaRegistry::ListRevisions(
    const pb::ListSchemaRevisionsRequest& request) {
  ASSIGN_OR_RETURN(const Revisions revisions, Find(request.name()));
  std::map<std::string, pb::Schema> newest_first;
  for (size_t i = 0; i < revisions.size(); ++i) {
    newest_first[fmt::format("{:04}", revisions.size() - i)] =
        Shown(revisions[i]->schema, request.view(), pb::BASIC);
  }
  return ListPage(request, newest_first, "", std::identity(),
                  &pb::ListSchemaRevisionsResponse::mutable_schemas);
}

absl::StatusOr<pb::Schema> SchemaRegistry::Add(const std::string& name, pb::Schema schema) {
  std::scoped_lock lock(mu_);
  ASSIGN_OR_RETURN(Revisions * revisions, FindLocked(name));
  ASSIGN_OR_RETURN(auto compiled, Compile(schema));
  schema.set_name(name);
  if (revisions->size() >= kMaxRevisions) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "The schema has {} revisions, as many as it may: delete one (resource={}).",
                      kMaxRevisions, name);
  }
  for (const auto& older : *revisions) {
    if (absl::Status fits = compiled->CheckSuccessorOf(*older->compiled); !fits.ok()) {
      return InvalidArgument(
          "Compatibility checking failed to commit a schema revision for (schema={}): it is "
          "incompatible with revision {}: {}.",
          name, older->schema.revision_id(), MessageOf(fits));
    }
  }
  return Append(std::move(schema), std::move(compiled), revisions);
}

absl::StatusOr<pb::Schema> SchemaRegistry::Commit(const pb::CommitSchemaRequest& request) {
  return Add(request.name(), request.schema());
}

absl::StatusOr<pb::Schema> SchemaRegistry::Rollback(const pb::RollbackSchemaRequest& request) {
  ASSIGN_OR_RETURN(const auto old, FindRevision(request.name() + "@" + request.revision_id()));
  return Add(request.name(), old->schema);
}

absl::StatusOr<pb::Schema> SchemaRegistry::DeleteRevision(
    const pb::DeleteSchemaRevisionRequest& request) {
  const size_t at = request.name().find('@');
  const std::string name = request.name().substr(0, at);
  const std::string id =
      at == std::string::npos ? request.revision_id() : request.name().substr(at + 1);
  std::scoped_lock lock(mu_);
  ASSIGN_OR_RETURN(Revisions * revisions, FindLocked(name));
  const auto gone = FindIn(*revisions, id);
  if (gone == revisions->end()) return ResourceNotFound(name + "@" + id);
  if (revisions->size() == 1) {
    return FailedPrecondition("The last revision can't be deleted; delete the schema instead.");
  }
  Revisions shorter = *revisions;
  shorter.erase(shorter.begin() + (gone - revisions->begin()));
  RETURN_IF_ERROR(KeepAll(name, shorter));
  *revisions = std::move(shorter);
  return revisions->back()->schema;
}

absl::Status SchemaRegistry::Delete(const std::string& name) {
  RETURN_IF_ERROR(ResourceName::Parse(name, "schemas").status());
  std::scoped_lock lock(mu_);
  if (!schemas_.contains(name)) return ResourceNotFound(name);
  RETURN_IF_ERROR(KeepAll(name, {}));
  schemas_.erase(name);
  return absl::OkStatus();
}

absl::Status SchemaRegistry::ValidateSchema(const pb::ValidateSchemaRequest& request) {
  RETURN_IF_ERROR(CheckProject(request.parent()));
  return Compile(request.schema()).status();
}

absl::Status SchemaRegistry::ValidateMessage(const pb::ValidateMessageRequest& request) {
  RETURN_IF_ERROR(CheckProject(request.parent()));
  std::shared_ptr<const ProtoSchema> compiled;
  switch (request.schema_spec_case()) {
    case pb::ValidateMessageRequest::kName: {
      ASSIGN_OR_RETURN(const auto revision, FindRevision(request.name()));
      compiled = revision->compiled;
      break;
    }
    case pb::ValidateMessageRequest::kSchema: {
      ASSIGN_OR_RETURN(compiled, Compile(request.schema()));
      break;
    }
    case pb::ValidateMessageRequest::SCHEMA_SPEC_NOT_SET:
      return InvalidArgument("ValidateMessage needs the name of a schema or a schema.");
  }
  return compiled->Validate(request.message(), request.encoding());
}

absl::Status SchemaRegistry::CheckSettings(const pb::SchemaSettings& settings) {
  if (settings.encoding() != pb::BINARY && settings.encoding() != pb::JSON) {
    return InvalidArgument("Invalid schema_settings: the encoding must be BINARY or JSON.");
  }
  RETURN_IF_ERROR(Find(settings.schema()).status());
  for (const std::string& id : {settings.first_revision_id(), settings.last_revision_id()}) {
    if (id.empty()) continue;
    RETURN_IF_ERROR(FindRevision(settings.schema() + "@" + id).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SchemaRegistry::FindRevisions(
    const pb::SchemaSettings& settings, const pb::PublishRequest& request) {
  const auto found = Find(settings.schema());
  if (!found.ok()) {
    return InvalidArgument("The schema of {} was deleted: it can't check any message.",
                           request.topic());
  }
  auto first = FindIn(*found, settings.first_revision_id());
  auto last = FindIn(*found, settings.last_revision_id());
  if (first == found->end()) first = found->begin();
  if (last == found->end()) last = std::prev(found->end());
  if (first > last) return InvalidArgument("No revision is allowed.");
  const auto newest = std::make_reverse_iterator(std::next(last));
  const auto end = std::make_reverse_iterator(first);
  std::vector<std::string> ids;
  for (const auto& message : request.messages()) {
    const auto check = [&](const auto& revision) {
      return revision->compiled->Validate(message.data(), settings.encoding());
    };
    const auto fits = std::find_if(newest, end, [&](const auto& each) { return check(each).ok(); });
    if (fits == end) return check(*last);  // the client is told what the newest says
    ids.push_back((*fits)->schema.revision_id());
  }
  return ids;
}

}  // namespace lockstep::emulator
