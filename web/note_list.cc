#include "web/note_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::web {
namespace {

using nlohmann::json;

std::string ByCause(const std::map<std::string, int>& causes, int64_t more) {
  std::string text;
  for (const auto& [cause, count] : causes) {
    if (!cause.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", cause, count);
  }
  if (text.empty()) return more > 0 ? fmt::format("{} of them are not listed here.", more) : "";
  if (more > 0) text += fmt::format("; not listed here: {}", more);
  return text + ".";
}

}  // namespace

json NoteList::Take() {
  struct Together {
    json notes = json::array();
    std::map<std::string, int> causes;
    int64_t more = 0;
    size_t first = 0;  // where the first of them stands
    Kind kind;
  };
  std::map<std::pair<std::string, std::string>, Together> kinds;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.kind.many.empty()) continue;
    auto [found, made] =
        kinds.try_emplace({entry.note["severity"].get<std::string>(), entry.kind.many});
    Together& together = found->second;
    if (made) together.first = i, together.kind = entry.kind;
    together.more += entry.more;
    if (entry.more > 0) continue;
    together.notes.push_back(entry.note);
    ++together.causes[entry.kind.cause];
  }
  json notes = json::array();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.kind.many.empty()) {
      notes.push_back(entry.note);
      continue;
    }
    const std::string severity = entry.note["severity"];
    Together& together = kinds.at({severity, entry.kind.many});
    if (together.first != i) continue;
    const auto count = static_cast<int64_t>(together.notes.size()) + together.more;
    if (together.notes.empty() || count == 1) {
      notes.push_back(entry.note);
      continue;
    }
    json note = Note(severity.c_str(), fmt::format("{} {}", count, together.kind.many),
                     ByCause(together.causes, together.more), together.kind.steps);
    note["notes"] = std::move(together.notes);
    notes.push_back(std::move(note));
  }
  entries_.clear();
  std::stable_partition(notes.begin(), notes.end(),
                        [](const json& note) { return note["severity"] == "bad"; });
  return notes;
}

}  // namespace lockstep::web
