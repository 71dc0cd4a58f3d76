#include "emulator/service/schema_service.h"

#include <utility>

#include "emulator/service/unary_call.h"
#include "emulator/wire/names.h"
#include "platform/status.h"

namespace lockstep::emulator {

namespace pb = google::pubsub::v1;
using Reactor = grpc::ServerUnaryReactor;

Reactor* SchemaService::CreateSchema(Context* context, const pb::CreateSchemaRequest* request,
                                     pb::Schema* response) {
  return Answer(context, faults_, "CreateSchema", *request, [=, this] {
    return Put(schemas_->Create(request->parent(), request->schema_id(), request->schema()),
               response);
  });
}

Reactor* SchemaService::GetSchema(Context* context, const pb::GetSchemaRequest* request,
                                  pb::Schema* response) {
  return Answer(context, faults_, "GetSchema", *request, [=, this] {
    return Put(schemas_->Get(request->name(), request->view()), response);
  });
}

Reactor* SchemaService::ListSchemas(Context* context, const pb::ListSchemasRequest* request,
                                    pb::ListSchemasResponse* response) {
  return Answer(context, faults_, "ListSchemas", *request, [=, this]() -> absl::Status {
    ASSIGN_OR_RETURN(auto page, schemas_->List(request->parent(), request->view(),
                                               {request->page_size(), request->page_token()}));
    for (auto& each : page.items) *response->add_schemas() = std::move(each);
    response->set_next_page_token(page.next_token);
    return absl::OkStatus();
  });
}

Reactor* SchemaService::ListSchemaRevisions(Context* context,
                                            const pb::ListSchemaRevisionsRequest* request,
                                            pb::ListSchemaRevisionsResponse* response) {
  return Answer(context, faults_, "ListSchemaRevisions", *request, [=, this]() -> absl::Status {
    ASSIGN_OR_RETURN(auto page,
                     schemas_->ListRevisions(request->name(), request->view(),
                                             {request->page_size(), request->page_token()}));
    for (auto& each : page.items) *response->add_schemas() = std::move(each);
    response->set_next_page_token(page.next_token);
    return absl::OkStatus();
  });
}

Reactor* SchemaService::CommitSchema(Context* context, const pb::CommitSchemaRequest* request,
                                     pb::Schema* response) {
  return Answer(context, faults_, "CommitSchema", *request, [=, this] {
    return Put(schemas_->Commit(request->name(), request->schema()), response);
  });
}

Reactor* SchemaService::RollbackSchema(Context* context, const pb::RollbackSchemaRequest* request,
                                       pb::Schema* response) {
  return Answer(context, faults_, "RollbackSchema", *request, [=, this] {
    return Put(schemas_->Rollback(request->name(), request->revision_id()), response);
  });
}

Reactor* SchemaService::DeleteSchemaRevision(Context* context,
                                             const pb::DeleteSchemaRevisionRequest* request,
                                             pb::Schema* response) {
  return Answer(context, faults_, "DeleteSchemaRevision", *request, [=, this] {
    return Put(schemas_->DeleteRevision(request->name(), request->revision_id()), response);
  });
}

Reactor* SchemaService::DeleteSchema(Context* context, const pb::DeleteSchemaRequest* request,
                                     google::protobuf::Empty*) {
  return Answer(context, faults_, "DeleteSchema", *request, [=, this]() -> absl::Status {
    RETURN_IF_ERROR(schemas_->Delete(request->name()));
    broker_->ForgetSchema(request->name());
    return absl::OkStatus();
  });
}

Reactor* SchemaService::ValidateSchema(Context* context, const pb::ValidateSchemaRequest* request,
                                       pb::ValidateSchemaResponse*) {
  return Answer(context, faults_, "ValidateSchema", *request, [=]() -> absl::Status {
    RETURN_IF_ERROR(CheckProject(request->parent()));
    return SchemaRegistry::ValidateSchema(request->schema());
  });
}

Reactor* SchemaService::ValidateMessage(Context* context, const pb::ValidateMessageRequest* request,
                                        pb::ValidateMessageResponse*) {
  return Answer(context, faults_, "ValidateMessage", *request,
                [=, this] { return schemas_->ValidateMessage(*request); });
}

}  // namespace lockstep::emulator
