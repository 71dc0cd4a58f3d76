#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iterator>
#include <span>
#include <utility>

#include "ctl/command/command.h"
#include "ctl/command/completion.h"
#include "ctl/command/help.h"
#include "ctl/command/pages.h"
#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/log/log.h"
#include "platform/mutex_checks.h"
#include "platform/version.h"

namespace lockstep::ctl {
namespace {

// The command whose own commands the user has to choose from.
const CLI::App& Innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : Innermost(*chosen.front());
}

// "lockstepctl outbox: no command 'crate', did you mean create? There are: create, drop"
std::string ExplainMissingCommand(const CLI::App& app) {
  const CLI::App& group = Innermost(app);
  std::vector<std::string> names;
  for (const CLI::App* command : group.get_subcommands({})) names.push_back(command->get_name());
  const std::string where =
      &group == &app ? app.get_name() : app.get_name() + " " + group.get_name();
  for (const std::string& word : app.remaining(true)) {
    if (word.starts_with('-')) continue;
    const std::string near = NearestWord(word, names);
    return fmt::format("{}: no command '{}'{}; there are: {}", where, word,
                       near.empty() ? "" : fmt::format(" (did you mean {}?)", near),
                       fmt::join(names, ", "));
  }
  return fmt::format("{}: name a command: {}", where, fmt::join(names, ", "));
}

// The program's exit status: 0, 1 when the command failed, 2 when the command line is wrong.
// `arguments` are in reverse, as CLI11 wants them.
int ParseAndRun(CLI::App& app, std::vector<std::string> arguments) {
  constexpr int kWrongCommandLine = 2;
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::RuntimeError& error) {  // a command failed, and has said why
    return error.get_exit_code();
  } catch (const CLI::RequiredError& error) {
    const CLI::App& group = Innermost(app);
    if (group.get_require_subcommand_min() == 0 || !group.get_subcommands().empty()) {
      app.exit(error);  // something else is missing
    } else {
      fmt::print(stderr, "{}\n", ExplainMissingCommand(app));
    }
    return kWrongCommandLine;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongCommandLine;  // 0: --help and --version
  }
  return 0;
}

// `help outbox list` is `outbox list --help`; `__complete` is what a shell's Tab asks.
bool IsHelp(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "help") return false;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return true;
}

bool AnswersTab(const CommandNode& program, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "__complete") return false;
  for (const std::string& line : Complete(program, std::span(arguments).subspan(1))) {
    fmt::print("{}\n", line);
  }
  return true;
}

}  // namespace
}  // namespace lockstep::ctl

int main(int argc, char** argv) {
  using namespace lockstep::ctl;
  lockstep::LeaveMutexesUnchecked();
  lockstep::log::Configure({.level = lockstep::log::Level::kWarning});
  CommandNode node{
      .name = "lockstepctl",
      .help = "looks at and operates Lockstep's outboxes, consumer groups and offsets"};
  CLI::App app{node.help, node.name};
  app.formatter_fn(
      [&node](const CLI::App*, std::string, CLI::AppFormatMode) { return HelpText(node, stdout); });
  app.set_version_flag("--version", "lockstepctl " + lockstep::BuildText());
  app.require_subcommand(1);
  app.fallthrough();  // --json and friends may stand behind the subcommand

  Context context;
  const Command program(app, context, node);
  program.With(
      {{"--database", &context.database,
        "Postgres, as postgresql://user@host/database; without it, LOCKSTEP_DATABASE or the file's "
        "of --config"},
       {"--database-password-file", &context.password_file,
        "a file that has the password, in place of one in the address"},
       {"--config", &context.config,
        "a publisher's, runner's or orchestrator's configuration file"},
       {"--json", &context.json, "answer in JSON"},
       {"--dry-run", &context.dry_run, "show what would be changed, and change nothing"},
       {"--yes,-y", &context.yes, "don't ask before changing something"},
       {"--confirm-database", &context.confirmed,
        "with --yes: the name of a database that is not on this machine, to change it"}});
  app.get_option("--database")->envname("LOCKSTEP_DATABASE");
  app.get_option("--database-password-file")->envname("LOCKSTEP_DATABASE_PASSWORD_FILE");
  app.get_option("--dry-run")->excludes(app.get_option("--yes"));

  for (const auto add :
       {AddBackfill,   AddDeadLetters, AddErase,   AddGroupCommands, AddIdempotency, AddMigrate,
        AddCheckpoint, AddConsole,     AddLag,     AddOffsets,       AddOutbox,      AddParked,
        AddProvision,  AddProjection,  AddRebuild, AddReconcile,     AddRepair,      AddReplay,
        AddReplicate,  AddRoles,       AddSaga,    AddSchema,        AddTrace,       AddVerify}) {
    add(program);
  }
  AddPages(program, node);

  std::vector<std::string> arguments(argv + 1, argv + argc);
  lockstep::HidePasswords(argc, argv);  // from here on the process list shows none
  if (AnswersTab(node, arguments)) return 0;
  IsHelp(arguments);
  // The last argument first, as CLI11 wants them.
  return ParseAndRun(app, {std::make_move_iterator(arguments.rbegin()),
                           std::make_move_iterator(arguments.rend())});
}
