#include "publisher/backfill/payload_maker.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <vector>

#include "platform/config/config.h"
#include "platform/status.h"
#include "projections/decode/descriptors.h"
#include "publisher/backfill/declaration.h"

namespace lockstep::publisher {
namespace pb = google::protobuf;
namespace {

// protobuf's words without the value that they quote.
std::string WithoutValue(std::string text) {
  text = text.substr(0, text.find('\n'));
  const size_t first = text.find('"');
  const size_t last = text.rfind('"');
  if (first == std::string::npos || last == first) return text;
  return text.substr(0, first) + "…" + text.substr(last + 1);
}

}  // namespace

absl::StatusOr<PayloadMaker> PayloadMaker::Make(const Declaration& declaration) {
  PayloadMaker maker;
  if (declaration.message.empty()) return maker;
  const auto descriptors = std::make_shared<projections::Descriptors>();
  RETURN_IF_ERROR(descriptors->Load(declaration.descriptors, "payload.descriptors"));
  maker.type_ = descriptors->Find(declaration.message);
  if (maker.type_ == nullptr) {
    const std::string nearest = NearestWord(declaration.message, descriptors->names());
    return InvalidArgument("payload.message: the descriptor set has no message {}{}",
                           declaration.message,
                           nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
  }
  std::vector<std::string> known;
  for (int i = 0; i < maker.type_->field_count(); ++i) {
    known.push_back(maker.type_->field(i)->name());
  }
  for (const auto& [field, column] : declaration.fields) {
    if (maker.type_->FindFieldByName(field) != nullptr ||
        maker.type_->FindFieldByCamelcaseName(field) != nullptr) {
      continue;
    }
    const std::string nearest = NearestWord(field, known);
    return InvalidArgument("payload.fields: message {} has no field {}{}", declaration.message,
                           field,
                           nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
  }
  maker.descriptors_ = descriptors;
  return maker;
}

absl::StatusOr<std::string> PayloadMaker::Payload(const std::string& json) const {
  if (type_ == nullptr) return json;
  const auto message = descriptors_->Take(type_, json.size());
  message->Clear();
  if (const auto parsed = pb::util::JsonStringToMessage(json, message.get()); !parsed.ok()) {
    return InvalidArgument("it does not fit the message {}: {}", type_->full_name(),
                           WithoutValue(std::string(parsed.message())));
  }
  std::string bytes;
  if (!message->SerializeToString(&bytes)) {
    return InvalidArgument("a required field of {} is missing", type_->full_name());
  }
  return bytes;
}

const char* PayloadMaker::content_type() const {
  return type_ == nullptr ? "application/json" : "application/protobuf";
}

}  // namespace lockstep::publisher
