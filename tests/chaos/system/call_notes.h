#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::chaos {

// One request that the HTTP consumer got.
struct CallNote {
  int64_t number = 0;   // in the order of arrival, from 1
  int64_t arrived = 0;  // ms of the machine's steady clock, as Millisecond(Now()) has it
  pid_t runner = 0;     // whose connection it is; 0 = it was gone before that could be known
  std::string event_id, key;
  int64_t version = 0;
  std::string idempotency_key;
  bool replay = false;
  // Of an event that was answered yes before: whether the group's inbox said at that moment that it
  // was done with. '-' of others, '?' if the database could not be asked.
  char known = '-';
  // "yes", a status, "cut", "hang", "gone" (the caller did not wait); empty = it never came to one.
  std::string answer;
  int64_t answered = 0;
  int64_t answered_before = 0;  // it was answered before that number arrived
  bool yes() const { return answer == "yes"; }
};

// Where they stand: a line for each request before anything is done about it, one for each answer
// before its first byte is sent.
std::string ArrivalLine(const CallNote& note);
std::string AnswerLine(const CallNote& note);
// In the order of arrival.
std::vector<CallNote> ReadCallNotes(const std::string& file);

}  // namespace lockstep::chaos
