#include <gmock/gmock.h>

#include "emulator/schema/schema_registry.h"
#include "emulator/testing/wire_fixture.h"
#include "google/pubsub/v1/schema.grpc.pb.h"

namespace lockstep::emulator {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr char kSchema[] = "projects/test/schemas/video";
constexpr char kFirst[] = "syntax = \"proto3\"; message Video { string title = 1; }";
constexpr char kSecond[] =
    "syntax = \"proto3\"; message Video { string title = 1; int64 version = 2; }";

class SchemaWire : public WireTest {
 protected:
  void SetUp() override {
    WireTest::SetUp();
    schemas_ = pb::SchemaService::NewStub(channel_);
  }

  grpc::Status Create(const std::string& definition, pb::Schema* response,
                      pb::Schema::Type type = pb::Schema::PROTOCOL_BUFFER) {
    pb::CreateSchemaRequest request;
    request.set_parent("projects/test");
    request.set_schema_id("video");
    request.mutable_schema()->set_type(type);
    request.mutable_schema()->set_definition(definition);
    return Call(schemas_.get(), &pb::SchemaService::Stub::CreateSchema, request, response);
  }
  grpc::Status Commit(const std::string& definition, pb::Schema* response) {
    pb::CommitSchemaRequest request;
    request.set_name(kSchema);
    request.mutable_schema()->set_name(kSchema);
    request.mutable_schema()->set_type(pb::Schema::PROTOCOL_BUFFER);
    request.mutable_schema()->set_definition(definition);
    return Call(schemas_.get(), &pb::SchemaService::Stub::CommitSchema, request, response);
  }
  grpc::Status Get(const std::string& name, pb::Schema* response) {
    pb::GetSchemaRequest request;
    request.set_name(name);
    return Call(schemas_.get(), &pb::SchemaService::Stub::GetSchema, request, response);
  }
  grpc::Status Delete() {
    pb::DeleteSchemaRequest request;
    request.set_name(kSchema);
    google::protobuf::Empty response;
    return Call(schemas_.get(), &pb::SchemaService::Stub::DeleteSchema, request, &response);
  }
  grpc::Status CreateTopicWith(pb::Encoding encoding, const std::string& last_revision = "") {
    pb::Topic request;
    request.set_name(kTopic);
    request.mutable_schema_settings()->set_schema(kSchema);
    request.mutable_schema_settings()->set_encoding(encoding);
    request.mutable_schema_settings()->set_last_revision_id(last_revision);
    pb::Topic response;
    return Call(publisher_.get(), &pb::Publisher::Stub::CreateTopic, request, &response);
  }
  StatusCode CodeOfPublish(const std::string& data) {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    request.add_messages()->set_data(data);
    return TryPublish(request).error_code();
  }

  std::unique_ptr<pb::SchemaService::Stub> schemas_;
};

TEST_F(SchemaWire, ATopicsMessagesMustFitItsSchema) {
  pb::Schema schema;
  ASSERT_TRUE(Create(kSecond, &schema).ok());
  ASSERT_TRUE(CreateTopicWith(pb::JSON).ok());
  EXPECT_EQ(CodeOfPublish(R"({"title": "x", "version": 1})"), StatusCode::OK);
  EXPECT_EQ(CodeOfPublish(R"({"version": "one"})"), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CodeOfPublish("nonsense"), StatusCode::INVALID_ARGUMENT);
}

TEST_F(SchemaWire, BinaryMessagesAreCheckedToo) {
  pb::Schema schema;
  ASSERT_TRUE(Create(kFirst, &schema).ok());
  ASSERT_TRUE(CreateTopicWith(pb::BINARY).ok());
  EXPECT_EQ(CodeOfPublish(std::string("\x0a\x02hi", 4)), StatusCode::OK);
  EXPECT_EQ(CodeOfPublish("\x0a\x09hi"), StatusCode::INVALID_ARGUMENT);
}

TEST_F(SchemaWire, ANewRevisionLetsNewMessagesInAndOldOnesStay) {
  pb::Schema first;
  ASSERT_TRUE(Create(kFirst, &first).ok());
  ASSERT_TRUE(CreateTopicWith(pb::JSON).ok());
  EXPECT_EQ(CodeOfPublish(R"({"version": 1})"), StatusCode::INVALID_ARGUMENT);
  pb::Schema second;
  ASSERT_TRUE(Commit(kSecond, &second).ok());
  EXPECT_NE(first.revision_id(), second.revision_id());
  EXPECT_EQ(CodeOfPublish(R"({"version": 1})"), StatusCode::OK);
  EXPECT_EQ(CodeOfPublish(R"({"title": "x"})"), StatusCode::OK);
}

TEST_F(SchemaWire, ATopicCanAllowOldRevisionsOnly) {
  pb::Schema first;
  ASSERT_TRUE(Create(kFirst, &first).ok());
  pb::Schema second;
  ASSERT_TRUE(Commit(kSecond, &second).ok());
  ASSERT_TRUE(CreateTopicWith(pb::JSON, first.revision_id()).ok());
  EXPECT_EQ(CodeOfPublish(R"({"version": 1})"), StatusCode::INVALID_ARGUMENT);
}

TEST_F(SchemaWire, RevisionsAreListedRolledBackAndDeleted) {
  pb::Schema first;
  ASSERT_TRUE(Create(kFirst, &first).ok());
  pb::Schema second;
  ASSERT_TRUE(Commit(kSecond, &second).ok());
  pb::RollbackSchemaRequest rollback;
  rollback.set_name(kSchema);
  rollback.set_revision_id(first.revision_id());
  pb::Schema third;
  ASSERT_TRUE(
      Call(schemas_.get(), &pb::SchemaService::Stub::RollbackSchema, rollback, &third).ok());
  EXPECT_EQ(third.definition(), kFirst);
  pb::ListSchemaRevisionsRequest list;
  list.set_name(kSchema);
  pb::ListSchemaRevisionsResponse listed;
  ASSERT_TRUE(
      Call(schemas_.get(), &pb::SchemaService::Stub::ListSchemaRevisions, list, &listed).ok());
  ASSERT_EQ(listed.schemas_size(), 3);
  EXPECT_EQ(listed.schemas(0).revision_id(), third.revision_id());
  EXPECT_TRUE(listed.schemas(0).definition().empty());  // the basic view

  pb::Schema got;
  ASSERT_TRUE(Get(std::string(kSchema) + "@" + second.revision_id(), &got).ok());
  EXPECT_EQ(got.definition(), kSecond);
  pb::DeleteSchemaRevisionRequest remove;
  remove.set_name(std::string(kSchema) + "@" + second.revision_id());
  ASSERT_TRUE(
      Call(schemas_.get(), &pb::SchemaService::Stub::DeleteSchemaRevision, remove, &got).ok());
  EXPECT_EQ(Get(remove.name(), &got).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(SchemaWire, SchemasAreListedInPagesAndInTheViewThatIsAskedFor) {
  pb::CreateSchemaRequest create;
  create.mutable_schema()->set_type(pb::Schema::PROTOCOL_BUFFER);
  create.mutable_schema()->set_definition(kFirst);
  const std::vector<std::pair<std::string, std::string>> all = {
      {"projects/another", "one"}, {"projects/test", "one"}, {"projects/test", "two"}};
  for (const auto& [project, id] : all) {
    create.set_parent(project);
    create.set_schema_id(id);
    pb::Schema made;
    ASSERT_TRUE(Call(schemas_.get(), &pb::SchemaService::Stub::CreateSchema, create, &made).ok());
  }
  pb::ListSchemasRequest list;
  list.set_parent("projects/test");
  list.set_page_size(1);
  std::vector<std::string> names;
  do {
    pb::ListSchemasResponse page;
    ASSERT_TRUE(Call(schemas_.get(), &pb::SchemaService::Stub::ListSchemas, list, &page).ok());
    ASSERT_EQ(page.schemas_size(), 1);
    names.push_back(page.schemas(0).name());
    EXPECT_TRUE(page.schemas(0).definition().empty());  // the basic view
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty());
  EXPECT_THAT(names, ElementsAre("projects/test/schemas/one", "projects/test/schemas/two"));
  list.set_view(pb::FULL);
  pb::ListSchemasResponse page;
  ASSERT_TRUE(Call(schemas_.get(), &pb::SchemaService::Stub::ListSchemas, list, &page).ok());
  EXPECT_EQ(page.schemas(0).definition(), kFirst);
}

TEST_F(SchemaWire, ADeletedSchemaStopsItsTopic) {
  pb::Schema schema;
  ASSERT_TRUE(Create(kFirst, &schema).ok());
  ASSERT_TRUE(CreateTopicWith(pb::JSON).ok());
  ASSERT_TRUE(Delete().ok());
  EXPECT_EQ(Delete().error_code(), StatusCode::NOT_FOUND);
  pb::GetTopicRequest request;
  request.set_topic(kTopic);
  pb::Topic topic;
  ASSERT_TRUE(Call(publisher_.get(), &pb::Publisher::Stub::GetTopic, request, &topic).ok());
  EXPECT_EQ(topic.schema_settings().schema(), kDeletedSchema);
  EXPECT_EQ(CodeOfPublish(R"({"title": "x"})"), StatusCode::INVALID_ARGUMENT);
}

TEST_F(SchemaWire, AvroIsUnimplementedAndNonsenseInvalid) {
  pb::Schema schema;
  EXPECT_EQ(Create("{}", &schema, pb::Schema::AVRO).error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Create("nonsense", &schema).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Create(kFirst, &schema, pb::Schema::TYPE_UNSPECIFIED).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CreateTopicWith(pb::JSON).error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(CreateTopicWith(pb::ENCODING_UNSPECIFIED).error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(SchemaWire, ValidatesOnRequest) {
  pb::ValidateSchemaRequest request;
  request.set_parent("projects/test");
  request.mutable_schema()->set_type(pb::Schema::PROTOCOL_BUFFER);
  request.mutable_schema()->set_definition(kFirst);
  pb::ValidateSchemaResponse valid;
  EXPECT_TRUE(Call(schemas_.get(), &pb::SchemaService::Stub::ValidateSchema, request, &valid).ok());
  pb::ValidateMessageRequest message;
  message.set_parent("projects/test");
  *message.mutable_schema() = request.schema();
  message.set_encoding(pb::JSON);
  message.set_message(R"({"title": "x"})");
  pb::ValidateMessageResponse fits;
  EXPECT_TRUE(Call(schemas_.get(), &pb::SchemaService::Stub::ValidateMessage, message, &fits).ok());
  message.set_message(R"({"titel": "x"})");
  EXPECT_EQ(
      Call(schemas_.get(), &pb::SchemaService::Stub::ValidateMessage, message, &fits).error_code(),
      StatusCode::INVALID_ARGUMENT);
}

TEST_F(SchemaWire, AnIncompatibleRevisionIsRefused) {
  pb::Schema first;
  ASSERT_TRUE(Create(kFirst, &first).ok());
  pb::Schema second;
  const grpc::Status refused =
      Commit("syntax = \"proto3\"; message Video { bytes title = 1; }", &second);
  EXPECT_EQ(refused.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(refused.error_message().find("Compatibility checking failed"), std::string::npos);
  EXPECT_NE(refused.error_message().find("Video.title = 1"), std::string::npos)
      << refused.error_message();
  pb::Schema now;
  ASSERT_TRUE(Get(kSchema, &now).ok());
  EXPECT_EQ(now.revision_id(), first.revision_id());
}

}  // namespace
}  // namespace lockstep::emulator
