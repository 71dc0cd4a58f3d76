#include "projections/decode/descriptors.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>

#include <utility>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::projections {
namespace pb = google::protobuf;
namespace {

constexpr size_t kMaxBytes = 64 * 1024;
constexpr size_t kMaxStock = 64;

class CollectErrors : public pb::DescriptorPool::ErrorCollector {
 public:
  void AddError(const std::string& file, const std::string& element, const pb::Message*,
                ErrorLocation, const std::string& message) override {
    if (!text.empty()) text += "; ";
    text += fmt::format("{}: {}: {}", file, element, message);
  }
  std::string text;
};

}  // namespace

Descriptors::Descriptors()
    : pool_(std::make_unique<pb::DescriptorPool>()),
      factory_(std::make_unique<pb::DynamicMessageFactory>(pool_.get())) {}

Descriptors::~Descriptors() = default;

absl::Status Descriptors::LoadFile(const std::string& file) {
  const auto text = ReadWholeFile(file);
  if (!text.ok()) {
    return NotFound(
        "descriptor set {}; make it with protoc --include_imports --descriptor_set_out={} "
        "your.proto",
        MessageOf(text.status()), file);
  }
  return Load(*text, file);
}

absl::Status Descriptors::Load(const std::string& bytes, const std::string& file) {
  pb::FileDescriptorSet set;
  if (!set.ParseFromString(bytes) || set.file_size() == 0) {
    return InvalidArgument(
        "{} is not a descriptor set; make it with protoc --include_imports --descriptor_set_out",
        file);
  }
  for (const pb::FileDescriptorProto& proto : set.file()) {
    if (pool_->FindFileByName(proto.name()) != nullptr) continue;  // shared import of two sets
    CollectErrors errors;
    const pb::FileDescriptor* built = pool_->BuildFileCollectingErrors(proto, &errors);
    if (built == nullptr) {
      return InvalidArgument("{} can't be used: {}. Was it made with --include_imports?", file,
                             errors.text);
    }
    files_.push_back(built);
    for (int i = 0; i < built->message_type_count(); ++i) {
      names_.push_back(built->message_type(i)->full_name());
    }
  }
  return absl::OkStatus();
}

const pb::Descriptor* Descriptors::Find(const std::string& full_name) const {
  return pool_->FindMessageTypeByName(full_name);
}

const pb::EnumDescriptor* Descriptors::FindEnum(const std::string& full_name) const {
  return pool_->FindEnumTypeByName(full_name);
}

Descriptors::Lease Descriptors::Take(const pb::Descriptor* type, size_t bytes) const {
  if (bytes > kMaxBytes) return Lease(factory_->GetPrototype(type)->New());
  {
    std::scoped_lock lock(mu_);
    auto& stock = stock_[type];
    if (!stock.empty()) {
      Lease lease(stock.back().release(), Return{this});
      stock.pop_back();
      return lease;
    }
  }
  return {factory_->GetPrototype(type)->New(), Return{this}};
}

void Descriptors::Return::operator()(pb::Message* message) const {
  std::unique_ptr<pb::Message> used(message);
  if (to == nullptr) return;
  std::scoped_lock lock(to->mu_);
  auto& stock = to->stock_[used->GetDescriptor()];
  if (stock.size() < kMaxStock) stock.push_back(std::move(used));
}

}  // namespace lockstep::projections
