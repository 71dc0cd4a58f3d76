#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "envelope/attributes.h"
#include "platform/clock.h"
#include "platform/strong_id.h"

namespace lockstep::pubsub {

// What Pub/Sub accepts. The port splits requests by the first group; a message past the second is
// refused before it is sent.
inline constexpr int kMaxPublishMessages = 1000;
inline constexpr int64_t kMaxPublishBytes = 10'000'000;
inline constexpr int64_t kMaxAckRequestBytes = 512 * 1024;

inline constexpr int64_t kMaxMessageBytes = 10'000'000;
inline constexpr int kMaxAttributes = 100;
inline constexpr int kMaxAttributeKeyBytes = 256;
inline constexpr int kMaxAttributeValueBytes = 1024;
inline constexpr int kMaxOrderingKeyBytes = 1024;

struct Message {
  std::string data;
  Attributes attributes;
  std::string ordering_key;  // empty = unordered

  int64_t ByteSize() const;  // as Pub/Sub counts it against its limits
};

// INVALID_ARGUMENT with a sentence when Pub/Sub would refuse the message whatever the topic: one
// bad message refused by the server takes its whole request with it, so it is found before.
absl::Status CheckLimits(const Message& message);

// Names one delivery of a message to us; a redelivery has another.
using AckToken = StrongId<struct AckTokenTag>;

struct Delivery {
  Message message;
  MessageId message_id;
  WallTime publish_time;
  int delivery_attempt = 0;  // counted only where the subscription has a dead-letter policy
  AckToken token;
};

}  // namespace lockstep::pubsub
