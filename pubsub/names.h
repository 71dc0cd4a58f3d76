#pragma once

#include <string>
#include <string_view>

namespace lockstep::pubsub {

// Full names of resources. What is a full name already ("projects/…") is returned as it is, so that
// a configuration may hold either.
std::string TopicName(std::string_view project, std::string_view topic);
std::string SubscriptionName(std::string_view project, std::string_view subscription);
std::string SnapshotName(std::string_view project, std::string_view snapshot);
std::string SchemaName(std::string_view project, std::string_view schema);

// "projects/p/topics/t" -> "t".
std::string_view ShortName(std::string_view full_name);

// "projects/p/topics/t" -> "p".
std::string_view ProjectOf(std::string_view full_name);

// A group's files name one subscription, for good; a slot that a rebuild made has its own, named
// after it: `<subscription>.slotN`.
std::string SlotSubscription(const std::string& subscription, int slot);
// The one that the files name; `subscription` may be any slot's.
std::string DeclaredSubscription(const std::string& subscription);

}  // namespace lockstep::pubsub
