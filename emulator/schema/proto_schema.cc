#include "emulator/schema/proto_schema.h"

#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include <utility>

#include "platform/status.h"

namespace lockstep::emulator {
namespace {

namespace protobuf = google::protobuf;

// The first mistake, as a sentence.
class Mistakes : public protobuf::io::ErrorCollector,
                 public protobuf::DescriptorPool::ErrorCollector {
 public:
  void AddError(int line, protobuf::io::ColumnNumber column, const std::string& message) override {
    Note(fmt::format("line {}, column {}: {}", line + 1, column + 1, message));
  }
  void AddError(const std::string&, const std::string& element, const protobuf::Message*,
                ErrorLocation, const std::string& message) override {
    Note(fmt::format("{}: {}", element, message));
  }

  absl::Status ToStatus() const {
    return InvalidArgument("Invalid schema definition: {}", first_.empty() ? "unreadable" : first_);
  }

 private:
  void Note(std::string mistake) {
    if (first_.empty()) first_ = std::move(mistake);
  }
  std::string first_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const ProtoSchema>> ProtoSchema::Compile(
    const std::string& definition) {
  constexpr size_t kMaxDefinition = 300'000;
  if (definition.empty()) return InvalidArgument("Invalid schema definition: it is empty.");
  if (definition.size() > kMaxDefinition) {
    return InvalidArgument("Invalid schema definition: {} bytes; {} are allowed.",
                           definition.size(), kMaxDefinition);
  }
  Mistakes mistakes;
  protobuf::io::ArrayInputStream input(definition.data(), static_cast<int>(definition.size()));
  protobuf::io::Tokenizer tokenizer(&input, &mistakes);
  protobuf::compiler::Parser parser;
  parser.RecordErrorsTo(&mistakes);
  protobuf::FileDescriptorProto file;
  if (!parser.Parse(&tokenizer, &file)) return mistakes.ToStatus();
  if (file.dependency_size() > 0) {
    return InvalidArgument("Invalid schema definition: import is not supported ('{}').",
                           file.dependency(0));
  }
  if (file.message_type_size() != 1) {
    return InvalidArgument(
        "Invalid schema definition: it must have exactly one top-level message, not {}.",
        file.message_type_size());
  }
  file.set_name("schema.proto");
  auto schema = std::make_shared<ProtoSchema>();
  const auto* built = schema->pool_.BuildFileCollectingErrors(file, &mistakes);
  if (built == nullptr) return mistakes.ToStatus();
  schema->prototype_ = schema->factory_.GetPrototype(built->message_type(0));
  return schema;
}

absl::Status ProtoSchema::Validate(std::string_view data,
                                   google::pubsub::v1::Encoding encoding) const {
  const std::unique_ptr<protobuf::Message> message(prototype_->New());
  if (encoding == google::pubsub::v1::JSON) {
    const auto parsed = protobuf::util::JsonStringToMessage(std::string(data), message.get());
    if (!parsed.ok()) {
      return InvalidArgument("The message is not valid JSON for its schema: {}",
                             std::string(parsed.message().data(), parsed.message().size()));
    }
    return absl::OkStatus();
  }
  if (encoding != google::pubsub::v1::BINARY) return InvalidArgument("An encoding is needed.");
  if (!message->ParseFromArray(data.data(), static_cast<int>(data.size()))) {
    return InvalidArgument("The message is not valid for its schema.");
  }
  return absl::OkStatus();
}

}  // namespace lockstep::emulator
