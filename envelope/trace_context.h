#pragma once

#include <string_view>

namespace lockstep {

// The trace id of a W3C traceparent (`00-<32 hex digits>-<16>-<2>`); empty when it is none. The
// header itself travels untouched: outbox row, attribute, logs.
std::string_view TraceId(std::string_view traceparent);

}  // namespace lockstep
