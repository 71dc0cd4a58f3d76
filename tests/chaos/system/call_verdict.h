#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/chaos/system/blow.h"
#include "tests/chaos/system/call_notes.h"
#include "tests/chaos/system/ledger.h"

namespace lockstep::chaos {

// What the ledger of the HTTP consumer says about the runners that called it. Each list is of what
// must not be, and empty if all is well.
//
// A request counts unless its caller had hung up before it was read ("gone"): nobody heard an
// answer.
// - lost: an event that is due and was never answered yes.
// - uncalled: a request for what is dead by a table, waits, was rolled back or never was; one whose
//   key, version or Idempotency-Key is not the event's; one that calls itself a replay (the handler
//   skips those).
// - disordered: a request that arrived before every earlier version of its key that is due had been
//   answered yes. And one that comes from the process of the key's last request, and skips a
//   version after it. So the first yes-answers of a key come in version order without a gap, and
//   whoever goes back to repeat goes on from there.
// - known: a repetition (of an event that was answered yes before) that arrived when the inbox had
//   the event as done with. Nothing explains that.
// - unexplained: a repetition that no blow explains. Between the yes and the repetition there must
//   be one to the process that got the yes; or a new epoch; or, at the moment of the yes, one
//   by which it may not have arrived; or, if another process repeats, one to the database or the
//   consumer. A process that lives remembers what was answered. Each blow explains at most
//   `in_hand` of them, but for failovers, which lose as much as was committed.
struct CallFindings {
  std::vector<std::string> lost, uncalled, disordered, known, unexplained;
  int64_t calls = 0, repeated = 0, untold = 0;  // untold: the inbox could not be asked
  std::map<std::string, int64_t> answers;
};

CallFindings JudgeCalls(const std::vector<CallNote>& notes, const std::map<std::string, Due>& due,
                        const std::vector<Blow>& blows, int in_hand);

}  // namespace lockstep::chaos
