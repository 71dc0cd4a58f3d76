#include "emulator/schema/proto_schema.h"

#include <gtest/gtest.h>

#include <string>

#include "platform/status.h"

namespace lockstep::emulator {
namespace {

using google::pubsub::v1::BINARY;
using google::pubsub::v1::JSON;

constexpr char kVideo[] = R"(
  syntax = "proto3";
  message Video {
    string title = 1;
    int64 version = 2;
    Kind kind = 3;
    message Part { string name = 1; }
    repeated Part parts = 4;
  }
  enum Kind { KIND_UNSPECIFIED = 0; FILM = 1; }
)";

TEST(ProtoSchema, ChecksBinaryMessages) {
  const auto schema = ProtoSchema::Compile(kVideo);
  ASSERT_TRUE(schema.ok()) << MessageOf(schema.status());
  EXPECT_TRUE((*schema)->Validate(std::string("\x0a\x02hi\x10\x05", 6), BINARY).ok());
  EXPECT_TRUE((*schema)->Validate("", BINARY).ok());
  EXPECT_FALSE((*schema)->Validate("\x0a\x09hi", BINARY).ok());  // shorter than it says
  EXPECT_FALSE((*schema)->Validate("hello, world", BINARY).ok());
}

TEST(ProtoSchema, ChecksJsonMessages) {
  const auto schema = ProtoSchema::Compile(kVideo);
  ASSERT_TRUE(schema.ok());
  EXPECT_TRUE((*schema)->Validate(R"({"title": "hi", "version": 5, "kind": "FILM"})", JSON).ok());
  EXPECT_TRUE((*schema)->Validate(R"({"parts": [{"name": "x"}]})", JSON).ok());
  EXPECT_FALSE((*schema)->Validate(R"({"titel": "hi"})", JSON).ok());
  EXPECT_FALSE((*schema)->Validate(R"({"version": "five"})", JSON).ok());
  EXPECT_FALSE((*schema)->Validate("not json", JSON).ok());
}

TEST(ProtoSchema, RefusesBadDefinitionsAndSaysWhere) {
  const auto broken = ProtoSchema::Compile("syntax = \"proto3\";\nmessage A { strin }");
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(broken.status()).find("line 2"), std::string_view::npos);
  for (const std::string& definition :
       {std::string(), std::string("syntax = \"proto3\";"),
        std::string("syntax = \"proto3\"; message A {} message B {}"),
        std::string("syntax = \"proto3\"; message A { Missing m = 1; }"),
        std::string("syntax = \"proto3\"; message A { int32 a = 1; int32 b = 1; }"),
        std::string("syntax = \"proto3\"; import \"google/protobuf/any.proto\"; message A {}"),
        std::string(300'001, ' ')}) {
    EXPECT_EQ(ProtoSchema::Compile(definition).status().code(), absl::StatusCode::kInvalidArgument)
        << definition.substr(0, 80);
  }
}

TEST(ProtoSchema, ARevisionMayAddAndRemoveOptionalFieldsAndNothingElse) {
  const auto revision = [](const std::string& body, const std::string& beside = "") {
    auto compiled = ProtoSchema::Compile("syntax = \"proto3\"; message Video { " + body +
                                         " enum Kind { UNKNOWN = 0; FILM = 1; } "
                                         "message Part { string name = 1; } } " +
                                         beside);
    EXPECT_TRUE(compiled.ok()) << MessageOf(compiled.status());
    return *compiled;
  };
  const std::string base = "string title = 1; repeated string tags = 2; Part part = 3; Kind k = 4;";
  const auto older = revision(base);
  for (const std::string& body :
       {base, base + " int64 version = 5;", base + " optional Part other = 6;",
        std::string("repeated string tags = 2; Part part = 3; Kind k = 4;")}) {
    EXPECT_TRUE(revision(body)->CheckSuccessorOf(*older).ok()) << body;
  }
  for (const std::string& body :
       {base + " repeated string more = 5;",
        std::string("string title = 1; Part part = 3; Kind k = 4;"),
        std::string("bytes title = 1; repeated string tags = 2; Part part = 3; Kind k = 4;"),
        std::string("string name = 1; repeated string tags = 2; Part part = 3; Kind k = 4;"),
        std::string("string title = 9; repeated string tags = 2; Part part = 3; Kind k = 4;"),
        std::string(
            "repeated string title = 1; repeated string tags = 2; Part part = 3; Kind k = 4;"),
        std::string("string title = 1; repeated string tags = 2; Kind part = 3; Kind k = 4;"),
        std::string("oneof x { string title = 1; } repeated string tags = 2; Part part = 3; "
                    "Kind k = 4;")}) {
    EXPECT_EQ(revision(body)->CheckSuccessorOf(*older).code(), absl::StatusCode::kInvalidArgument)
        << body;
  }
}

TEST(ProtoSchema, ARevisionMayNotChangeEnumsNestedMessagesOrItsName) {
  const auto check = [](const std::string& then, const std::string& now) {
    return (*ProtoSchema::Compile("syntax = \"proto3\"; " + now))
        ->CheckSuccessorOf(**ProtoSchema::Compile("syntax = \"proto3\"; " + then))
        .ok();
  };
  EXPECT_TRUE(check("message A { enum E { X = 0; } }", "message A { enum E { X = 0; } }"));
  EXPECT_FALSE(check("message A { enum E { X = 0; } }", "message A { enum E { X = 0; Y = 1; } }"));
  EXPECT_FALSE(check("message A { enum E { X = 0; Y = 1; } }", "message A { enum E { X = 0; } }"));
  EXPECT_FALSE(check("message A {} enum E { X = 0; }", "message A {} enum E { X = 0; Y = 1; }"));
  EXPECT_TRUE(check("message A { message B {} }", "message A { message B { string b = 1; } }"));
  EXPECT_FALSE(check("message A { message B { int32 b = 1; } }",
                     "message A { message B { string b = 1; } }"));
  EXPECT_FALSE(check("message A {}", "message B {}"));
}

}  // namespace
}  // namespace lockstep::emulator
