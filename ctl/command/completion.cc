#include "ctl/command/completion.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::ctl {
namespace {

constexpr char kBash[] = R"(# lockstepctl completion bash
_lockstepctl() {
  local line IFS=$'\n'
  COMPREPLY=()
  for line in $(lockstepctl __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); do
    if [ "$line" = ":files" ]; then
      COMPREPLY+=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
    else
      COMPREPLY+=("${line%%$'\t'*}")
    fi
  done
}
complete -o filenames -F _lockstepctl lockstepctl
)";

constexpr char kZsh[] = R"(#compdef lockstepctl
_lockstepctl() {
  local line
  local -a found
  for line in "${(@f)$(lockstepctl __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    if [[ $line == ":files" ]]; then
      _files
    elif [[ -n $line ]]; then
      found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    fi
  done
  _describe lockstepctl found
}
compdef _lockstepctl lockstepctl
)";

constexpr char kFish[] = R"(# lockstepctl completion fish
function __lockstepctl_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (lockstepctl __complete $words[2..-1] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c lockstepctl -f -a '(__lockstepctl_complete)'
)";

std::vector<std::string> NamesOf(const Option& option) { return SplitList(option.name, ','); }

// The option of this name, of the command or of all.
const Option* FindOption(const CommandNode& command, const std::string& name) {
  for (const CommandNode* node : {&command, &command.Top()}) {
    for (const Option& option : node->options) {
      const auto names = NamesOf(option);
      if (std::ranges::find(names, name) != names.end()) return &option;
    }
  }
  return nullptr;
}

bool TakesFile(const Option& option) {
  constexpr std::string_view kFiles[] = {"--config", "file",     "--declaration",
                                         "--from",   "--ranges", "directory"};
  return std::ranges::find(kFiles, option.name) != std::end(kFiles) ||
         option.name.ends_with("-file") || option.help.starts_with("a file") ||
         option.help.starts_with("a JSON file");
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const std::string& shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return InvalidArgument("there is no completion for the shell '{}': bash, zsh or fish", shell);
}

std::vector<std::string> Complete(const CommandNode& program, std::span<const std::string> words) {
  std::vector<std::string> found;
  if (words.empty()) return found;
  const std::string& last = words.back();
  const auto offer = [&](const std::string& word, const std::string& help) {
    if (word.starts_with(last)) found.push_back(fmt::format("{}\t{}", word, help));
  };
  const auto offer_values = [&](const Option& option) {
    for (const std::string& choice : option.choices) offer(choice, "");
    if (option.choices.empty() && TakesFile(option)) found.emplace_back(":files");
  };
  const CommandNode* command = &program;
  const Option* wanted = nullptr;  // the option whose value comes next
  size_t place = 0;                // arguments so far
  for (const std::string& word : words.first(words.size() - 1)) {
    if (wanted != nullptr) {
      wanted = nullptr;
    } else if (word.starts_with('-')) {
      const Option* const option = FindOption(*command, word);
      if (option != nullptr && !std::holds_alternative<bool*>(option->value)) wanted = option;
    } else if (const CommandNode* const below = command->Find(word)) {
      command = below;
      place = 0;
    } else if (word != "help" || command != &program) {
      ++place;
    }
  }
  if (wanted != nullptr) {
    offer_values(*wanted);
    return found;
  }
  if (last.starts_with('-')) {
    for (const CommandNode* node : {command, &program}) {
      for (const Option& option : node->options) {
        for (const std::string& name : NamesOf(option)) {
          if (name.starts_with("--")) offer(name, option.help);
        }
      }
      if (node == &program) break;
    }
    offer("--help", "what it does, and its options");
    return found;
  }
  for (const auto& below : command->commands) offer(below->name, below->help);
  for (const Option& option : command->options) {
    if (option.name.starts_with('-')) continue;
    if (place-- == 0) offer_values(option);
  }
  return found;
}

}  // namespace lockstep::ctl
