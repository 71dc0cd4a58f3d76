#pragma once

#include "emulator/core/broker.h"
#include "emulator/faults/faults.h"
#include "emulator/schema/schema_registry.h"
#include "google/pubsub/v1/schema.grpc.pb.h"

namespace lockstep::emulator {

// google.pubsub.v1.SchemaService over the SchemaRegistry. gRPC's threads.
class SchemaService : public google::pubsub::v1::SchemaService::CallbackService {
 public:
  SchemaService(SchemaRegistry* schemas, Broker* broker, Faults* faults)
      : schemas_(schemas), broker_(broker), faults_(faults) {}

 private:
  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* CreateSchema(Context* context, const google::pubsub::v1::CreateSchemaRequest* request,
                        google::pubsub::v1::Schema* response) override;
  Reactor* GetSchema(Context* context, const google::pubsub::v1::GetSchemaRequest* request,
                     google::pubsub::v1::Schema* response) override;
  Reactor* ListSchemas(Context* context, const google::pubsub::v1::ListSchemasRequest* request,
                       google::pubsub::v1::ListSchemasResponse* response) override;
  Reactor* ListSchemaRevisions(Context* context,
                               const google::pubsub::v1::ListSchemaRevisionsRequest* request,
                               google::pubsub::v1::ListSchemaRevisionsResponse* response) override;
  Reactor* CommitSchema(Context* context, const google::pubsub::v1::CommitSchemaRequest* request,
                        google::pubsub::v1::Schema* response) override;
  Reactor* RollbackSchema(Context* context,
                          const google::pubsub::v1::RollbackSchemaRequest* request,
                          google::pubsub::v1::Schema* response) override;
  Reactor* DeleteSchemaRevision(Context* context,
                                const google::pubsub::v1::DeleteSchemaRevisionRequest* request,
                                google::pubsub::v1::Schema* response) override;
  Reactor* DeleteSchema(Context* context, const google::pubsub::v1::DeleteSchemaRequest* request,
                        google::protobuf::Empty* response) override;
  Reactor* ValidateSchema(Context* context,
                          const google::pubsub::v1::ValidateSchemaRequest* request,
                          google::pubsub::v1::ValidateSchemaResponse* response) override;
  Reactor* ValidateMessage(Context* context,
                           const google::pubsub::v1::ValidateMessageRequest* request,
                           google::pubsub::v1::ValidateMessageResponse* response) override;

  SchemaRegistry* const schemas_;
  Broker* const broker_;
  Faults* const faults_;
};

}  // namespace lockstep::emulator
