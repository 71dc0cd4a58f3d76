#pragma once

#include <optional>
#include <string>

#include "envelope/event.h"
#include "projections/model/projector.h"

namespace lockstep::projections {

// The payload of an event as JSON, for people who asked to see it: JSON as it is, protobuf decoded
// with the message that the group's file names for the event type. Nothing when it can't be decoded
// (or when the projector was not loaded from a file).
std::optional<std::string> PayloadAsJson(const Projector& projector, const Event& event);

}  // namespace lockstep::projections
