#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "web/note.h"

namespace lockstep::web {

// Notes as they are found, and then as they are shown: worst first, and those of one kind as one
// note that holds them (`notes`), for fifty poison keys must not hide what else there is.
class NoteList {
 public:
  struct Kind {
    std::string many;              // "keys of group feed are parked", behind their number
    std::string cause = {};        // the notes of a kind are counted by it; empty = not told
    std::vector<Step> steps = {};  // what to type about all of them; empty = each has its own
  };

  void Add(nlohmann::json note) { entries_.push_back({std::move(note), {}, 0}); }
  void Add(nlohmann::json note, Kind kind) {
    entries_.push_back({std::move(note), std::move(kind), 0});
  }
  // There are more of the kind than have a note; `note` is shown when none has.
  void More(int64_t count, nlohmann::json note, Kind kind) {
    entries_.push_back({std::move(note), std::move(kind), count});
  }

  // The list is empty afterwards.
  nlohmann::json Take();

 private:
  struct Entry {
    nlohmann::json note;
    Kind kind;
    int64_t more = 0;
  };
  std::vector<Entry> entries_;
};

}  // namespace lockstep::web
