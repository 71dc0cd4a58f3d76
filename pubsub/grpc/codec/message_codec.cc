#include "pubsub/grpc/codec/message_codec.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <utility>

#include "google/pubsub/v1/pubsub.pb.h"

namespace lockstep::pubsub::grpc_client {

namespace {

using google::protobuf::io::CodedOutputStream;
using google::pubsub::v1::PublishRequest;
using google::pubsub::v1::PubsubMessage;

constexpr int kLengthDelimited = 2;
constexpr int kEntryKey = 1;  // of a map's entry, by the protocol
constexpr int kEntryValue = 2;

// Every field number here is below 16: its tag has one byte.
size_t FieldSize(size_t length) {
  return 1 + CodedOutputStream::VarintSize32(static_cast<uint32_t>(length)) + length;
}
// proto3 leaves empty fields out.
size_t TextSize(const std::string& text) { return text.empty() ? 0 : FieldSize(text.size()); }

uint8_t* WriteHead(int field, size_t length, uint8_t* out) {
  *out++ = static_cast<uint8_t>(field << 3 | kLengthDelimited);
  return CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(length), out);
}
uint8_t* WriteField(int field, const std::string& text, uint8_t* out) {
  out = WriteHead(field, text.size(), out);
  return std::copy(text.begin(), text.end(), out);
}
uint8_t* WriteText(int field, const std::string& text, uint8_t* out) {
  return text.empty() ? out : WriteField(field, text, out);
}

// A map's entry has both of its fields, empty or not.
size_t EntrySize(const std::string& key, const std::string& value) {
  return FieldSize(key.size()) + FieldSize(value.size());
}

size_t MessageSize(const Message& message) {
  size_t size = TextSize(message.data) + TextSize(message.ordering_key);
  for (const auto& [key, value] : message.attributes) size += FieldSize(EntrySize(key, value));
  return size;
}

uint8_t* WriteMessage(const Message& message, uint8_t* out) {
  out = WriteText(PubsubMessage::kDataFieldNumber, message.data, out);
  for (const auto& [key, value] : message.attributes) {
    out = WriteHead(PubsubMessage::kAttributesFieldNumber, EntrySize(key, value), out);
    out = WriteField(kEntryKey, key, out);
    out = WriteField(kEntryValue, value, out);
  }
  return WriteText(PubsubMessage::kOrderingKeyFieldNumber, message.ordering_key, out);
}

}  // namespace

grpc::ByteBuffer EncodePublishRequest(const std::string& topic,
                                      const std::vector<Message>& messages) {
  std::vector<size_t> sizes;
  sizes.reserve(messages.size());
  size_t total = TextSize(topic);
  for (const Message& message : messages) {
    sizes.push_back(MessageSize(message));
    total += FieldSize(sizes.back());
  }
  const grpc::Slice slice(total);
  auto* out = const_cast<uint8_t*>(slice.begin());  // ours alone until it is in the buffer
  out = WriteText(PublishRequest::kTopicFieldNumber, topic, out);
  for (size_t i = 0; i < messages.size(); ++i) {
    out = WriteHead(PublishRequest::kMessagesFieldNumber, sizes[i], out);
    out = WriteMessage(messages[i], out);
  }
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace lockstep::pubsub::grpc_client
