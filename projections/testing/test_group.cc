#include "projections/testing/test_group.h"

#include <fmt/format.h>
#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/wrappers.pb.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "platform/status.h"
#include "postgres/migrator.h"
#include "sql/migrations.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
namespace {

std::string WithDescriptors(std::string yaml, const std::string& descriptors) {
  static const std::string kMark = "%DESCRIPTORS%";
  const size_t at = yaml.find(kMark);
  if (at != std::string::npos) yaml.replace(at, kMark.size(), descriptors);
  return yaml;
}

}  // namespace

TempFile::TempFile(const std::string& name, const std::string& text) {
  static std::atomic<int> count = 0;
  path_ = fmt::format("{}/lockstep_{}_{}_{}", std::filesystem::temp_directory_path().string(),
                      ::getpid(), ++count, name);
  std::ofstream(path_, std::ios::binary) << text;
}

TempFile::~TempFile() { std::filesystem::remove(path_); }

Event MakeEvent(const std::string& type, const std::string& aggregate, int64_t version,
                const std::string& payload, const std::string& content_type) {
  static std::atomic<int> count = 0;
  Event event;
  event.event_id = EventId(fmt::format("00000000-0000-4000-8000-{:012}", ++count));
  event.event_type = type;
  event.aggregate = {std::nullopt, "video", aggregate};
  event.version = version;
  event.occurred_at = WallTime(std::chrono::seconds(1'700'000'000));
  event.content_type = content_type;
  event.topic = "catalog.video";
  event.payload = payload;
  return event;
}

std::unique_ptr<TempFile> DescriptorsOf(const std::string& proto_text) {
  pb::io::ArrayInputStream in(proto_text.data(), static_cast<int>(proto_text.size()));
  struct Errors : pb::io::ErrorCollector {
    void AddError(int line, pb::io::ColumnNumber, const std::string& what) override {
      ADD_FAILURE() << "line " << line + 1 << ": " << what;
    }
  } errors;
  pb::io::Tokenizer tokenizer(&in, &errors);
  pb::compiler::Parser parser;
  pb::FileDescriptorSet set;
  for (const pb::Descriptor* known : {pb::Timestamp::descriptor(), pb::Duration::descriptor(),
                                      pb::Struct::descriptor(), pb::Int64Value::descriptor()}) {
    known->file()->CopyTo(set.add_file());
  }
  pb::FileDescriptorProto* file = set.add_file();
  file->set_name("test.proto");
  EXPECT_TRUE(parser.Parse(&tokenizer, file));
  // The parser leaves names of message and enum types to be told apart by the pool; building the
  // file once settles them.
  pb::DescriptorPool pool;
  for (int i = 0; i < set.file_size() - 1; ++i) pool.BuildFile(set.file(i));
  const pb::FileDescriptor* built = pool.BuildFile(*file);
  EXPECT_NE(built, nullptr);
  if (built != nullptr) {
    file->Clear();
    built->CopyTo(file);
  }
  return std::make_unique<TempFile>("set.pb", set.SerializeAsString());
}

absl::StatusOr<GroupDeclaration> LoadText(const std::string& yaml, const std::string& descriptors,
                                          const LoadOptions& options) {
  const TempFile file("group.yaml", WithDescriptors(yaml, descriptors));
  return LoadGroup(file.path(), options);
}

LoadOptions TestGroup::DefaultOptions() {
  LoadOptions options;
  options.state_schema = "lockstep_state";
  return options;
}

absl::Status MigrateState(postgres::Connection& connection) {
  return postgres::Migrator(connection, "lockstep_state", sql::StateMigrations()).Up().status();
}

TestGroup::TestGroup(const std::string& yaml, const std::string& descriptors, LoadOptions options)
    : connection_(db_.Connect()) {
  auto group = LoadText(yaml, descriptors, options);
  if (!group.ok()) throw std::runtime_error(std::string(MessageOf(group.status())));
  group_ = *std::move(group);
  const absl::Status migrated = MigrateState(*connection_);
  if (!migrated.ok()) throw std::runtime_error(std::string(MessageOf(migrated)));
}

absl::StatusOr<std::vector<Outcome>> ApplyTo(const Projector& projector,
                                             postgres::Connection& connection,
                                             const std::vector<Event>& events,
                                             const ApplyOptions& options) {
  std::vector<std::unique_ptr<Change>> changes;
  std::vector<const Change*> pointers;
  for (const Event& event : events) {
    ASSIGN_OR_RETURN(auto change, projector.Map(event));
    pointers.push_back(change.get());
    changes.push_back(std::move(change));
  }
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection.Begin());
  ASSIGN_OR_RETURN(auto outcomes, projector.Apply(transaction, pointers, options));
  RETURN_IF_ERROR(transaction.Commit());
  return outcomes;
}

absl::StatusOr<std::vector<Outcome>> TestGroup::TryApply(const std::vector<Event>& events,
                                                         const ApplyOptions& options) {
  return ApplyTo(projector(), *connection_, events, options);
}

std::vector<Outcome> TestGroup::Apply(const std::vector<Event>& events,
                                      const ApplyOptions& options) {
  const auto outcomes = TryApply(events, options);
  if (!outcomes.ok()) {
    ADD_FAILURE() << outcomes.status();
    return {};
  }
  return *outcomes;
}

std::vector<std::string> RowsOf(testing::TestDatabase& db, const std::string& sql) {
  const postgres::Result result = db.Query(sql);
  std::vector<std::string> rows;
  for (int i = 0; i < result.rows(); ++i) {
    std::vector<std::string> cells;
    for (int j = 0; j < result.columns(); ++j) {
      cells.push_back(result.IsNull(i, j) ? "~" : std::string(result.Text(i, j)));
    }
    rows.push_back(fmt::format("{}", fmt::join(cells, "|")));
  }
  return rows;
}

std::vector<std::string> TestGroup::Rows(const std::string& sql) { return RowsOf(db_, sql); }

absl::Status TestGroup::Check() { return projector().Check(*connection_); }

}  // namespace lockstep::projections
