#include "emulator/core/message.h"

#include <fmt/format.h>

#include "emulator/wire/wire.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::emulator {
namespace {

using google::pubsub::v1::PubsubMessage;

// Room for the id (field 3) and the time (field 4), so that Stamp doesn't allocate.
constexpr size_t kStampBytes = 64;

}  // namespace

std::shared_ptr<Message> MakeMessage(const PubsubMessage& sent) {
  auto message = std::make_shared<Message>();
  message->ordering_key = sent.ordering_key();
  const auto serialize = [&message](const PubsubMessage& body) {
    message->wire.reserve(body.ByteSizeLong() + kStampBytes);
    body.AppendToString(&message->wire);
  };
  if (sent.message_id().empty() && !sent.has_publish_time()) {
    serialize(sent);
  } else {  // the service sets them itself, whatever the client sent
    PubsubMessage body = sent;
    body.clear_message_id();
    body.clear_publish_time();
    serialize(body);
  }
  return message;
}

void Stamp(uint64_t sequence, uint64_t id, WallTime publish_time, Message* message) {
  message->sequence = sequence;
  message->id = fmt::format("{}", id);
  message->publish_time = publish_time;

  const auto since_epoch = publish_time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const auto nanos = std::chrono::nanoseconds(since_epoch - seconds).count();
  char stamp[kStampBytes];
  char* out = wire::PutBytes(PubsubMessage::kMessageIdFieldNumber, message->id, stamp);
  char time[24];
  char* end =
      wire::PutVarint(static_cast<uint64_t>(seconds.count()), wire::PutTag(1, wire::kVarint, time));
  end = wire::PutVarint(static_cast<uint64_t>(nanos), wire::PutTag(2, wire::kVarint, end));
  out = wire::PutBytes(PubsubMessage::kPublishTimeFieldNumber,
                       std::string_view(time, static_cast<size_t>(end - time)), out);
  message->wire.append(stamp, static_cast<size_t>(out - stamp));
}

}  // namespace lockstep::emulator
