
#include "emulator/service/services.h"
#include "emulator/service/unary_call.h"
#include "emulator/wire/names.h"
#include "google/pubsub/v1/schema.grpc.pb.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

namespace pb = google::pubsub::v1;
using Reactor = grpc::ServerUnaryReactor;
using Context = grpc::CallbackServerContext;

class SchemaService : public pb::SchemaService::CallbackService {
 public:
  SchemaService(SchemaRegistry* schemas, Broker* broker, Faults* faults)
      : schemas_(schemas), broker_(broker), faults_(faults) {}

 private:
  Reactor* CreateSchema(Context* context, const pb::CreateSchemaRequest* request,
                        pb::Schema* response) override {
    return Answer(context, faults_, "CreateSchema", *request, [=, this] {
      return Put(schemas_->Create(request->parent(), request->schema_id(), request->schema()),
                 response);
    });
  }

  Reactor* GetSchema(Context* context, const pb::GetSchemaRequest* request,
                     pb::Schema* response) override {
    return Answer(context, faults_, "GetSchema", *request, [=, this] {
      return Put(schemas_->Get(request->name(), request->view()), response);
    });
  }

  Reactor* ListSchemas(Context* context, const pb::ListSchemasRequest* request,
                       pb::ListSchemasResponse* response) override {
    return Answer(context, faults_, "ListSchemas", *request, [=, this] {
      return PutPage(schemas_->List(request->parent(), request->view(),
                                    {request->page_size(), request->page_token()}),
                     response->mutable_schemas(), response);
    });
  }

  Reactor* ListSchemaRevisions(Context* context, const pb::ListSchemaRevisionsRequest* request,
                               pb::ListSchemaRevisionsResponse* response) override {
    return Answer(context, faults_, "ListSchemaRevisions", *request, [=, this] {
      return PutPage(schemas_->ListRevisions(request->name(), request->view(),
                                             {request->page_size(), request->page_token()}),
                     response->mutable_schemas(), response);
    });
  }

  Reactor* CommitSchema(Context* context, const pb::CommitSchemaRequest* request,
                        pb::Schema* response) override {
    return Answer(context, faults_, "CommitSchema", *request, [=, this] {
      return Put(schemas_->Commit(request->name(), request->schema()), response);
    });
  }

  Reactor* RollbackSchema(Context* context, const pb::RollbackSchemaRequest* request,
                          pb::Schema* response) override {
    return Answer(context, faults_, "RollbackSchema", *request, [=, this] {
      return Put(schemas_->Rollback(request->name(), request->revision_id()), response);
    });
  }

  Reactor* DeleteSchemaRevision(Context* context, const pb::DeleteSchemaRevisionRequest* request,
                                pb::Schema* response) override {
    return Answer(context, faults_, "DeleteSchemaRevision", *request, [=, this] {
      return Put(schemas_->DeleteRevision(request->name(), request->revision_id()), response);
    });
  }

  Reactor* DeleteSchema(Context* context, const pb::DeleteSchemaRequest* request,
                        google::protobuf::Empty*) override {
    return Answer(context, faults_, "DeleteSchema", *request, [=, this]() -> absl::Status {
      RETURN_IF_ERROR(schemas_->Delete(request->name()));
      broker_->ForgetSchema(request->name());
      return absl::OkStatus();
    });
  }

  Reactor* ValidateSchema(Context* context, const pb::ValidateSchemaRequest* request,
                          pb::ValidateSchemaResponse*) override {
    return Answer(context, faults_, "ValidateSchema", *request, [=]() -> absl::Status {
      RETURN_IF_ERROR(CheckProject(request->parent()));
      return SchemaRegistry::ValidateSchema(request->schema());
    });
  }

  Reactor* ValidateMessage(Context* context, const pb::ValidateMessageRequest* request,
                           pb::ValidateMessageResponse*) override {
    return Answer(context, faults_, "ValidateMessage", *request,
                  [=, this] { return schemas_->ValidateMessage(*request); });
  }

  SchemaRegistry* const schemas_;
  Broker* const broker_;
  Faults* const faults_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewSchemaService(SchemaRegistry* schemas, Broker* broker,
                                                Faults* faults) {
  return std::make_unique<SchemaService>(schemas, broker, faults);
}

}  // namespace lockstep::emulator
