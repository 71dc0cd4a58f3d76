#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "google/pubsub/v1/pubsub.pb.h"
#include "platform/clock.h"

namespace lockstep::emulator {

// A published message, as the topic's log, every subscription and every response share it. It is
// serialized once, when it is published; a delivery copies bytes and never touches protobuf.
// Immutable once it is in a topic.
struct Message {
  uint64_t sequence = 0;  // its place in its topic, from 1, without gaps
  std::string id;
  WallTime publish_time;
  std::string ordering_key;
  std::string wire;  // google.pubsub.v1.PubsubMessage
};

// Shared: a message lives as long as anything that can still deliver it.
using MessagePtr = std::shared_ptr<const Message>;

// What a client sent, serialized, lacking what Stamp adds.
std::shared_ptr<Message> MakeMessage(const google::pubsub::v1::PubsubMessage& sent);

// Adds attributes, in the place of those that the client sent under the same names.
void AddAttributes(const std::map<std::string, std::string>& attributes, Message* message);

// Gives a message its place, id and time.
void Stamp(uint64_t sequence, uint64_t id, WallTime publish_time, Message* message);

}  // namespace lockstep::emulator
