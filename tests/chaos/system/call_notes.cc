#include "tests/chaos/system/call_notes.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace lockstep::chaos {

std::string ArrivalLine(const CallNote& note) {
  return fmt::format("call\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", note.number, note.arrived,
                     note.runner, note.event_id, note.key, note.version, note.idempotency_key,
                     note.replay ? "replay" : "new", note.known);
}

std::string AnswerLine(const CallNote& note) {
  return fmt::format("answer\t{}\t{}\t{}\n", note.number, note.answered, note.answer);
}

std::vector<CallNote> ReadCallNotes(const std::string& file) {
  std::vector<CallNote> notes;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, replay;
    CallNote note;
    words >> kind >> note.number;
    if (kind == "call") {
      words >> note.arrived >> note.runner >> note.event_id >> note.key >> note.version >>
          note.idempotency_key >> replay >> note.known;
      note.replay = replay == "replay";
      notes.push_back(std::move(note));
    } else if (note.number >= 1 && note.number <= static_cast<int64_t>(notes.size())) {
      CallNote& answered = notes[static_cast<size_t>(note.number - 1)];
      words >> answered.answered >> answered.answer;
      answered.answered_before = static_cast<int64_t>(notes.size()) + 1;
    }
  }
  return notes;
}

}  // namespace lockstep::chaos
