#include "ctl/command/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "ctl/command/completion.h"
#include "ctl/command/help.h"
#include "ctl/command/print.h"
#include "platform/status.h"

namespace lockstep::ctl {
namespace {

struct PageOptions {
  std::string shell, directory;
  std::vector<std::string> words;
  const CommandNode* program = nullptr;
};

absl::Status PrintCompletion(const Context&, const PageOptions& options) {
  ASSIGN_OR_RETURN(const std::string script, CompletionScript(options.shell));
  fmt::print("{}", script);
  return absl::OkStatus();
}

absl::Status WritePage(const std::filesystem::path& directory, const CommandNode& command) {
  std::string name = command.Path();
  std::ranges::replace(name, ' ', '-');
  const std::filesystem::path path = directory / (name + ".1");
  std::ofstream file(path);
  file << ManPage(command);
  file.close();
  if (!file) return Unavailable("{} can't be written", path.string());
  return absl::OkStatus();
}

absl::Status WritePages(const Context& context, const PageOptions& options) {
  std::error_code failed;
  std::filesystem::create_directories(options.directory, failed);
  if (failed) return Unavailable("{}: {}", options.directory, failed.message());
  RETURN_IF_ERROR(WritePage(options.directory, *options.program));
  for (const auto& command : options.program->commands) {
    RETURN_IF_ERROR(WritePage(options.directory, *command));
  }
  const size_t pages = options.program->commands.size() + 1;
  return context.Answer({{"directory", options.directory}, {"pages", pages}}, [&] {
    Print("{} pages are in {}; man -M finds them in a folder man1\n", pages, options.directory);
  });
}

// main.cc answers it before the command line is parsed; here it is described.
absl::Status Help(const Context&, const PageOptions& options) {
  fmt::print("{}", HelpText(*options.program, stdout));
  return absl::OkStatus();
}

}  // namespace

void AddPages(const Command& program, const CommandNode& node) {
  const auto o = std::make_shared<PageOptions>();
  o->program = &node;
  program
      .Add("completion", "print the script that completes commands and options in a shell", o,
           PrintCompletion)
      .With({{"shell",
              &o->shell,
              "which; `source <(lockstepctl completion bash)` tries it",
              Option::kRequired,
              {"bash", "zsh", "fish"}}});
  program.Add("man", "write the man pages, one for each command", o, WritePages)
      .With({{"directory", &o->directory, "where to", Option::kRequired}});
  program.Add("help", "what a command does, and its options", o, Help)
      .With({{"command", &o->words, "which, such as outbox list; none = all"}});
}

}  // namespace lockstep::ctl
