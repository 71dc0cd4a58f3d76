#include "ctl/command/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <type_traits>

#include "ctl/command/terminal.h"
#include "platform/text.h"

namespace lockstep::ctl {
namespace {

constexpr int kWidest = 100;  // longer lines are hard to read
constexpr size_t kLabel = 30;

bool IsOption(const Option& option) { return option.name.starts_with('-'); }

// The text in lines of so many columns, each after the first indented.
std::string Wrapped(std::string_view text, size_t indent, size_t width) {
  std::string out;
  size_t used = 0;
  for (const std::string& word : SplitList(text, ' ')) {
    const auto columns = static_cast<size_t>(WidthOf(word));
    if (used > 0 && indent + used + 1 + columns > width) {
      out += '\n' + std::string(indent, ' ');
      used = 0;
    }
    if (used > 0) out += ' ';
    out += word;
    used += columns + (used > 0 ? 1 : 0);
  }
  return out;
}

std::string DefaultOf(const Option& option) {
  return std::visit(
      [](const auto* value) -> std::string {
        using Value = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return *value;
        } else if constexpr (std::is_same_v<Value, int> || std::is_same_v<Value, int64_t>) {
          return std::to_string(*value);
        } else {
          return "";
        }
      },
      option.value);
}

// Their names, in the order in which they were added: first what looks, then what changes.
struct Rows {
  std::vector<std::pair<std::string, std::string>> rows;

  std::string Text(const std::string& title, bool colour, size_t width) const {
    if (rows.empty()) return "";
    size_t label = 0;
    for (const auto& [name, help] : rows) {
      if (name.size() <= kLabel) label = std::max(label, name.size());
    }
    std::string text = "\n" + Painted(title, Style::kBold, colour) + "\n";
    for (const auto& [name, help] : rows) {
      text += "  " + name;
      text += name.size() <= label ? std::string(label - name.size() + 2, ' ')
                                   : "\n" + std::string(label + 4, ' ');
      text += Wrapped(help, label + 4, width) + "\n";
    }
    return text;
  }
};

void AddOptions(const CommandNode& command, Rows* arguments, Rows* options) {
  for (const Option& option : command.options) {
    Rows* const to = IsOption(option) ? options : arguments;
    if (to != nullptr) to->rows.emplace_back(OptionText(option), option.help + OptionNote(option));
  }
}

// What troff would take for its own.
std::string Troff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

void AddTroff(const Rows& rows, std::string& page) {
  for (const auto& [name, help] : rows.rows) {
    page += fmt::format(".TP\n\\fB{}\\fR\n{}\n", Troff(name), Troff(help));
  }
}

void AddCommands(const CommandNode& command, std::string& page) {
  for (const auto& below : command.commands) {
    if (below->runs) {
      page += fmt::format(".SS {}\n{}.\n", Troff(UsageText(*below)), Troff(below->help));
      Rows rows;
      AddOptions(*below, &rows, &rows);
      AddTroff(rows, page);
    }
    AddCommands(*below, page);
  }
}

}  // namespace

std::string OptionText(const Option& option) {
  std::string text = option.name;
  if (IsOption(option)) std::ranges::replace(text, ',', ' ');
  if (const size_t space = text.find(' '); space != std::string::npos) text.insert(space, ",");
  if (std::holds_alternative<bool*>(option.value) || !IsOption(option)) return text;
  const bool number = !std::holds_alternative<std::string*>(option.value) &&
                      !std::holds_alternative<std::vector<std::string>*>(option.value);
  if (!option.choices.empty() && option.choices.size() <= 4) {
    return fmt::format("{} {}", text, fmt::join(option.choices, "|"));
  }
  return text + (number ? " N" : " VALUE");
}

std::string OptionNote(const Option& option) {
  std::string note;
  if (option.choices.size() > 4 || (!option.choices.empty() && !IsOption(option))) {
    note += fmt::format(" ({})", fmt::join(option.choices, ", "));
  }
  if (std::holds_alternative<std::vector<std::string>*>(option.value) ||
      std::holds_alternative<std::vector<int64_t>*>(option.value)) {
    note += "; may be repeated";
  }
  if (option.need == Option::kRequired && IsOption(option)) note += " [required]";
  if (option.need == Option::kShowsDefault) note += fmt::format(" [{}]", DefaultOf(option));
  return note;
}

std::string UsageText(const CommandNode& command) {
  std::string usage = command.Path();
  const bool options = std::ranges::any_of(command.options, IsOption);
  if (options) usage += " [OPTIONS]";
  for (const Option& option : command.options) {
    if (IsOption(option)) continue;
    const bool list = std::holds_alternative<std::vector<std::string>*>(option.value);
    const std::string name = option.name + (list ? "…" : "");
    usage += option.need == Option::kRequired ? " " + name : " [" + name + "]";
  }
  if (!command.commands.empty()) usage += command.runs ? " [COMMAND]" : " COMMAND";
  return usage;
}

std::string HelpText(const CommandNode& command, std::FILE* to) {
  const int columns = WidthOf(to);
  const bool colour = HasColour(to);
  const auto width = static_cast<size_t>(columns > 0 ? std::min(columns, kWidest) : kWidest);
  std::string about = command.help;
  if (!about.empty()) about[0] = static_cast<char>(std::toupper(about[0]));
  std::string text = Wrapped(about, 0, width) + ".\n";
  if (command.changes) {
    text +=
        Wrapped("It changes something: --dry-run only shows what, --yes does it without asking.", 0,
                width) +
        "\n";
  }
  text += "\n" + Painted("Usage:", Style::kBold, colour) + " " +
          Wrapped(UsageText(command), 7, width) + "\n";
  Rows arguments, options, commands, globals;
  AddOptions(command, &arguments, &options);
  for (const auto& below : command.commands) {
    if (!below->help.empty()) commands.rows.emplace_back(below->name, below->help);
  }
  text += arguments.Text("Arguments:", colour, width);
  if (command.above != nullptr) {
    text += options.Text("Options:", colour, width);
    AddOptions(command.Top(), nullptr, &globals);
  } else {
    globals = options;
  }
  text += commands.Text("Commands:", colour, width);
  globals.rows.emplace_back("-h, --help", "this text; also `lockstepctl help [COMMAND…]`");
  text += globals.Text("Options of every command:", colour, width);
  return text;
}

std::string ManPage(const CommandNode& command) {
  std::string name = command.Path();
  std::ranges::replace(name, ' ', '-');
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  std::string page = fmt::format(
      ".TH {} 1 \"\" \"Lockstep\" \"Lockstep\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n\\fB{}\\fR\n",
      Troff(upper), Troff(name), Troff(command.help), Troff(UsageText(command)));
  if (command.changes) {
    page +=
        ".SH DESCRIPTION\nIt changes something: \\-\\-dry\\-run only shows what, \\-\\-yes does "
        "it without asking.\n";
  }
  Rows arguments, options, globals;
  AddOptions(command, &arguments, &options);
  if (command.above == nullptr) std::swap(options, globals);
  if (!arguments.rows.empty()) page += ".SH ARGUMENTS\n";
  AddTroff(arguments, page);
  if (!options.rows.empty()) page += ".SH OPTIONS\n";
  AddTroff(options, page);
  if (command.above == nullptr) {
    page += ".SH COMMANDS\n";
    for (const auto& below : command.commands) {
      page += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", Troff(name + "-" + below->name),
                          Troff(below->help));
    }
  } else {
    if (!command.commands.empty()) page += ".SH COMMANDS\n";
    AddCommands(command, page);
    AddOptions(command.Top(), nullptr, &globals);
  }
  page += ".SH OPTIONS OF EVERY COMMAND\n";
  AddTroff(globals, page);
  page +=
      ".SH EXIT STATUS\n0 when it is done, and after \\-\\-dry\\-run; 1 when it failed or was "
      "declined; 2 when the command line is wrong.\n.SH ENVIRONMENT\n\\fBLOCKSTEP_DATABASE\\fR, "
      "\\fBLOCKSTEP_DATABASE_PASSWORD_FILE\\fR, \\fBLOCKSTEP_OPERATOR\\fR (who the audit names), "
      "\\fBNO_COLOR\\fR.\n";
  return page;
}

}  // namespace lockstep::ctl
