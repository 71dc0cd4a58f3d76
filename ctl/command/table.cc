#include "ctl/command/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/printable.h"

namespace lockstep::ctl {
namespace {

constexpr int kGap = 2;
constexpr int kLeast = 8;  // what is left of a text that is cut

std::string Spaces(int count) { return std::string(static_cast<size_t>(std::max(count, 0)), ' '); }

void EndLine(std::string& text) {
  text.erase(text.find_last_not_of(' ') + 1);
  text += '\n';
}

}  // namespace

std::string ToTheSecond(const std::string& rfc3339) {
  const size_t dot = rfc3339.find('.');
  if (dot != 19 || !rfc3339.ends_with('Z')) return rfc3339;
  return rfc3339.substr(0, dot) + "Z";
}

Style StyleOf(std::string_view state) {
  const auto one_of = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words,
                               [&](std::string_view word) { return state.starts_with(word); });
  };
  if (one_of({"dead", "Failed", "failed", "no runner", "no publisher", "missing", "wrong"})) {
    return Style::kBad;
  }
  if (one_of({"quarantined", "paused", "Paused", "held", "seeking", "Compensating", "warning"})) {
    return Style::kWarning;
  }
  if (one_of({"published", "working", "Completed", "done", "replayed", "ok"})) return Style::kGood;
  return Style::kPlain;
}

void Table::Add(std::vector<Cell> cells) {
  for (size_t i = 0; i < columns_.size(); ++i) {
    std::string& text = cells[i].text;
    if (columns_[i].kind == Column::kTime) text = ToTheSecond(text);
    text = Printable(text);
    widths_[i] = std::max(widths_[i], WidthOf(text));
  }
  rows_.push_back(std::move(cells));
}

std::vector<int> Table::Fit(int width) const {
  std::vector<int> widths(columns_.size(), 0);
  int total = -kGap;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (!Shown(i)) continue;
    widths[i] = std::max(widths_[i], WidthOf(columns_[i].header));
    total += widths[i] + kGap;
  }
  while (width > 0 && total > width) {
    // The widest of those that may be cut gives way, to the width of the next.
    int* widest = nullptr;
    int least = 0;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].kind != Column::kCut || widths[i] == 0) continue;
      const int floor = std::max(kLeast, WidthOf(columns_[i].header));
      if (widths[i] <= floor || (widest != nullptr && *widest >= widths[i])) continue;
      widest = &widths[i];
      least = floor;
    }
    if (widest == nullptr) return {};
    int next = least;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].kind == Column::kCut && widths[i] < *widest) next = std::max(next, widths[i]);
    }
    const int cut = std::max(1, std::min(total - width, *widest - next));
    *widest -= cut;
    total -= cut;
  }
  return widths;
}

std::string Table::Text(int width, bool colour) const {
  const std::vector<int> widths = Fit(width);
  if (widths.empty()) return Blocks(width, colour);
  std::string text;
  const auto line = [&](const auto& cell_of) {
    std::string cells;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!Shown(i)) continue;
      const Cell& cell = cell_of(i);
      const std::string shown = Cut(cell.text, std::max(widths[i], 1));
      const int left = widths[i] - WidthOf(shown);
      const bool number = columns_[i].kind == Column::kNumber;
      cells += (number ? Spaces(left) : "") + Painted(shown, cell.style, colour) +
               (number ? "" : Spaces(left)) + Spaces(kGap);
    }
    EndLine(cells);
    text += cells;
  };
  line([&](size_t i) { return Cell(columns_[i].header, Style::kBold); });
  for (const auto& row : rows_) line([&](size_t i) -> const Cell& { return row[i]; });
  return text;
}

std::string Table::Blocks(int width, bool colour) const {
  int label = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (Shown(i)) label = std::max(label, WidthOf(columns_[i].header));
  }
  std::string text;
  for (const auto& row : rows_) {
    if (!text.empty()) text += '\n';
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (row[i].text.empty()) continue;
      const std::string& header = columns_[i].header;
      const int left = std::max(width - label - kGap, kLeast);
      const bool cut = columns_[i].kind == Column::kCut;
      text += Painted(header, Style::kBold, colour) + Spaces(label - WidthOf(header) + kGap) +
              Painted(cut ? Cut(row[i].text, left) : row[i].text, row[i].style, colour) + '\n';
    }
  }
  return text;
}

void Table::Print(std::FILE* to) const { fmt::print(to, "{}", Text(WidthOf(to), HasColour(to))); }

}  // namespace lockstep::ctl
