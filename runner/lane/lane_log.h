#pragma once

#include <span>
#include <string>

#include "runner/batch/batch.h"

// A lane's log lines: `group message_id event_id ordering_key trace_id` where they concern one
// message (ids as far as they could be read), and never a payload.
namespace lockstep::runner {

// A dead letter is a warning; the others are told when debugging.
void LogFate(const std::string& group, const Inbound& item, Fate fate);

// A message that can't be applied, where the dead letters are the bus's own.
void LogGivenBack(const std::string& group, const Inbound& item);

void LogOffsetSaved(const std::string& group, const Inbound& newest, Millis lag,
                    const std::string& by);

void LogFailure(const std::string& group, int lane, const absl::Status& status,
                std::span<Inbound* const> items);

}  // namespace lockstep::runner
