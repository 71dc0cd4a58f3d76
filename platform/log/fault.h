#pragma once

#include <string_view>

#include "platform/log/log.h"

namespace lockstep::log {

// A warning of a fault that lasts and is met again and again: a database away, a topic out of
// reach. It is written once, whoever meets it; how often it came again is told ten seconds later,
// then at growing distances up to five minutes. One that was not met for a minute is over.
void Fault(std::string_view message, Fields fields = {});

}  // namespace lockstep::log
