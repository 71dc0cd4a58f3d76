#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "platform/status.h"
#include "publisher/backfill/declaration.h"
#include "publisher/backfill/page_size.h"
#include "publisher/backfill/payload_maker.h"
#include "publisher/backfill/snapshot_message.h"
#include "publisher/backfill/uuid5.h"

namespace lockstep::publisher {
namespace {

namespace pb = google::protobuf;
using ::testing::HasSubstr;

TEST(Uuid5, IsThatOfTheStandard) {
  // RFC 4122's namespace of DNS; the values are those of other libraries.
  constexpr char kDns[] = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
  EXPECT_EQ(Uuid5(kDns, "python.org"), "886313e1-3b8a-5372-9b90-0c9aee199e5d");
  EXPECT_EQ(Uuid5(kDns, "www.example.com"), "2ed6657d-e927-568b-95e1-2665a8aea6a2");
  EXPECT_NE(Uuid5(kDns, std::string(200, 'a')), Uuid5(kDns, std::string(201, 'a')));
}

TEST(PageSize, FollowsTheBudgetAndNeverMoreThanDoubles) {
  PageSize size(Millis(200), 0);
  EXPECT_EQ(size.rows(), 100);
  size.Took(100, Millis(1));
  EXPECT_EQ(size.rows(), 200);
  size.Took(200, Millis(2'000));
  EXPECT_EQ(size.rows(), 20);
  size.Took(3, Millis(1));  // the last of a table: tells nothing
  EXPECT_EQ(size.rows(), 20);
  size.Took(20, Millis(60'000));
  EXPECT_EQ(size.rows(), 1);
  size.Took(1, Millis(60'000));
  EXPECT_EQ(size.rows(), 1);
  for (int i = 0; i < 30; ++i) size.Took(size.rows(), Millis(0));
  EXPECT_EQ(size.rows(), PageSize::kMost);
  size.Halve();
  EXPECT_EQ(size.rows(), PageSize::kMost / 2);
}

TEST(PageSize, HasNoMoreThanASecondsShareOfTheThrottle) {
  PageSize size(Millis(200), 30);
  EXPECT_EQ(size.rows(), 30);
  size.Took(30, Millis(0));
  EXPECT_EQ(size.rows(), 30);
}

// message Item { int64 id = 1; string name = 2; bytes picture = 3; }
std::string ItemDescriptors() {
  pb::FileDescriptorSet set;
  pb::FileDescriptorProto* const file = set.add_file();
  file->set_name("item.proto");
  file->set_package("shop");
  file->set_syntax("proto3");
  pb::DescriptorProto* const message = file->add_message_type();
  message->set_name("Item");
  const auto add = [&](const char* name, int number, pb::FieldDescriptorProto::Type type) {
    pb::FieldDescriptorProto* const field = message->add_field();
    field->set_name(name);
    field->set_number(number);
    field->set_type(type);
    field->set_label(pb::FieldDescriptorProto::LABEL_OPTIONAL);
  };
  add("id", 1, pb::FieldDescriptorProto::TYPE_INT64);
  add("name", 2, pb::FieldDescriptorProto::TYPE_STRING);
  add("picture", 3, pb::FieldDescriptorProto::TYPE_BYTES);
  return set.SerializeAsString();
}

Declaration Whole() {
  Declaration declaration;
  declaration.name = "items";
  declaration.outbox = {"shop", "outbox"};
  declaration.topic = "shop.events";
  declaration.table = "shop.items";
  declaration.key = {"id"};
  declaration.aggregate_type = "item";
  declaration.aggregate_id = "id";
  declaration.version = "version";
  declaration.event_type = "shop.ItemChanged";
  declaration.fields = {{"id", "id"}, {"name", "name"}, {"picture", "photo"}};
  declaration.message = "shop.Item";
  declaration.descriptors = ItemDescriptors();
  return declaration;
}

TEST(PayloadMaker, MakesProtobufOfPostgresJson) {
  const Declaration declaration = Whole();
  const auto maker = PayloadMaker::Make(declaration);
  ASSERT_TRUE(maker.ok()) << maker.status();
  EXPECT_STREQ(maker->content_type(), "application/protobuf");
  const auto bytes = maker->Payload(R"({"id":9007199254740993,"name":"käse","picture":"AAEC"})");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, std::string("\x08\x81\x80\x80\x80\x80\x80\x80\x10\x12\x05k\xc3\xa4se"
                                "\x1a\x03\x00\x01\x02",
                                21));
  const auto wrong = maker->Payload(R"({"id":"secret word"})");
  EXPECT_THAT(MessageOf(wrong.status()), HasSubstr("shop.Item"));
  EXPECT_THAT(MessageOf(wrong.status()), ::testing::Not(HasSubstr("secret word")));
}

TEST(PayloadMaker, SaysWhatTheMessageLacks) {
  Declaration declaration = Whole();
  declaration.fields.emplace_back("nam", "name");
  EXPECT_THAT(MessageOf(PayloadMaker::Make(declaration).status()), HasSubstr("did you mean name?"));
  declaration = Whole();
  declaration.message = "shop.Itm";
  EXPECT_THAT(MessageOf(PayloadMaker::Make(declaration).status()),
              HasSubstr("did you mean shop.Item?"));
  declaration = Whole();
  declaration.descriptors = "no set";
  EXPECT_FALSE(PayloadMaker::Make(declaration).ok());
}

TEST(SnapshotMessages, NamesTheRowThatCantBeSent) {
  Declaration declaration = Whole();
  declaration.message = declaration.descriptors = "";
  constexpr char kId[] = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
  const SnapshotMessages messages(declaration, kId, /*repair=*/false,
                                  PayloadMaker::Make(declaration).value());
  SourceRow row{{"7"}, "7", "acme", 3, R"({"id":7})", false, 0};
  const auto message = messages.Of(row, "2026-01-31T12:00:00Z");
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->ordering_key, "7");
  EXPECT_EQ(message->data, R"({"id":7})");
  const auto& attributes = message->attributes;
  EXPECT_EQ(attributes.at("lockstep_kind"), "snapshot");
  EXPECT_EQ(attributes.at("event_id"), Uuid5(kId, "item@acme/7\n3"));
  EXPECT_EQ(attributes.at("tenant_id"), "acme");
  EXPECT_EQ(attributes.at("version"), "3");
  EXPECT_EQ(attributes.at("occurred_at"), "2026-01-31T12:00:00Z");
  EXPECT_EQ(attributes.at("content_type"), "application/json");
  EXPECT_FALSE(attributes.contains("lockstep_overwrite"));
  EXPECT_FALSE(attributes.contains("sequence"));

  const auto refused = [&](const SourceRow& bad) {
    return std::string(MessageOf(messages.Of(bad, "2026-01-31T12:00:00Z").status()));
  };
  row.version = std::nullopt;
  EXPECT_THAT(refused(row), HasSubstr("row (7) of shop.items has NULL in its version column"));
  row.version = 0;
  EXPECT_THAT(refused(row), HasSubstr("versions start at 1"));
  row.version = 1;
  row.aggregate_id = std::nullopt;
  EXPECT_THAT(refused(row), HasSubstr("has no id"));
  row.aggregate_id = "7";
  row.payload = std::string(10'000'001, 'x');
  EXPECT_THAT(refused(row), HasSubstr("row (7) of shop.items can't be sent"));
}

class DeclarationFile : public ::testing::Test {
 protected:
  DeclarationFile() {
    std::string path = (std::filesystem::temp_directory_path() / "backfillXXXXXX").string();
    directory_ = mkdtemp(path.data());
    std::ofstream(directory_ + "/item.pb") << ItemDescriptors();
  }
  ~DeclarationFile() override { std::filesystem::remove_all(directory_); }

  absl::StatusOr<Declaration> Load(const std::string& text) {
    std::ofstream(directory_ + "/b.yaml") << text;
    return LoadDeclaration(directory_ + "/b.yaml");
  }
  std::string Fault(const std::string& text) { return std::string(MessageOf(Load(text).status())); }

  const std::string whole_ = R"(
backfill: items
outbox: shop.outbox
topic: shop.events
table: shop.items
key: [id]
aggregate_type: item
version: version
event_type: shop.ItemChanged
payload:
  fields: {id: id, name: title}
  message: shop.Item
  descriptors: item.pb
rows_per_second: 2000
chunk: 100ms
)";
  std::string directory_;
};

std::string With(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST_F(DeclarationFile, IsReadWithItsDescriptorSet) {
  const auto declaration = Load(whole_);
  ASSERT_TRUE(declaration.ok()) << declaration.status();
  EXPECT_EQ(declaration->aggregate_id, "id");  // the key, as it is one column
  EXPECT_EQ(declaration->descriptors, ItemDescriptors());
  EXPECT_EQ(declaration->chunk, Millis(100));
  EXPECT_EQ(declaration->rows_per_second, 2000);
  EXPECT_EQ(declaration->SourceSql(), "\"shop\".\"items\"");
  const auto again = Declaration::FromJson(declaration->ToJson(), declaration->descriptors);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToJson(), declaration->ToJson());
}

TEST_F(DeclarationFile, AQueryMayEndWithASemicolonOrAComment) {
  const auto declaration =
      Load(With(whole_, "table: shop.items", "query: \"SELECT * FROM shop.items -- all;\""));
  ASSERT_TRUE(declaration.ok()) << declaration.status();
  EXPECT_EQ(declaration->SourceSql(), "(SELECT * FROM shop.items -- all\n)");
}

TEST_F(DeclarationFile, EachMistakeIsASentence) {
  EXPECT_THAT(Fault(With(whole_, "version: version\n", "")), HasSubstr("`version` is missing"));
  EXPECT_THAT(Fault(With(whole_, "key: [id]\n", "")), HasSubstr("`key` is missing"));
  EXPECT_THAT(Fault(With(whole_, "key: [id]", "key: [id, part]")),
              HasSubstr("say which one is the id"));
  EXPECT_THAT(Fault(With(whole_, "table: shop.items\n", "")), HasSubstr("either a `table` or"));
  EXPECT_THAT(Fault(With(whole_, "topic:", "topik:")), HasSubstr("did you mean 'topic'?"));
  EXPECT_THAT(Fault(With(whole_, "chunk: 100ms", "chunk: 1h")), HasSubstr("`chunk`"));
  EXPECT_THAT(Fault(With(whole_, "item.pb", "no.pb")), HasSubstr("no.pb"));
  EXPECT_THAT(Fault(With(whole_, "2000", "many")), HasSubstr("no whole number"));
  EXPECT_THAT(Fault(With(whole_, "name: title", "nam: title")), HasSubstr("did you mean name?"));
}

}  // namespace
}  // namespace lockstep::publisher
