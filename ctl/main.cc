#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iterator>
#include <utility>

#include "ctl/command/command.h"
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

// "lockstepctl outbox: no command 'pendin'; there are: create, drop"
std::string ExplainMissingCommand(const CLI::App& app) {
  const CLI::App& group = Innermost(app);
  std::vector<std::string> names;
  for (const CLI::App* command : group.get_subcommands({})) names.push_back(command->get_name());
  const std::string where =
      &group == &app ? app.get_name() : app.get_name() + " " + group.get_name();
  for (const std::string& word : app.remaining(true)) {
    if (word.starts_with('-')) continue;
    return fmt::format("{}: no command '{}'; there are: {}", where, word, fmt::join(names, ", "));
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

}  // namespace
}  // namespace lockstep::ctl

int main(int argc, char** argv) {
  using namespace lockstep::ctl;
  lockstep::LeaveMutexesUnchecked();
  lockstep::log::Configure({.level = lockstep::log::Level::kWarning});
  CLI::App app{
      "lockstepctl: looks at and operates Lockstep's outboxes, consumer groups and offsets",
      "lockstepctl"};
  app.set_version_flag("--version", "lockstepctl " + lockstep::BuildText());
  app.require_subcommand(1);
  app.fallthrough();  // --json and friends may stand behind the subcommand

  Context context;
  app.add_option("--database", context.database,
                 "Postgres, as postgresql://user@host/database; without it, the file's of --config")
      ->envname("LOCKSTEP_DATABASE");
  app.add_option("--database-password-file", context.password_file,
                 "a file that has the password, in place of one in the address")
      ->envname("LOCKSTEP_DATABASE_PASSWORD_FILE");
  app.add_option("--config", context.config, "a publisher's or runner's configuration file");
  app.add_flag("--json", context.json, "answer in JSON");
  app.add_flag("--yes,-y", context.yes, "don't ask before changing something");
  app.add_option("--confirm-database", context.confirmed,
                 "with --yes: the name of a database that is not on this machine, to change it");

  const Command program(app, context);
  for (const auto add :
       {AddBackfill,   AddDeadLetters, AddErase,     AddGroupCommands, AddIdempotency, AddMigrate,
        AddCheckpoint, AddLag,         AddOffsets,   AddOutbox,        AddParked,      AddProvision,
        AddProjection, AddRebuild,     AddReconcile, AddRepair,        AddReplay,      AddReplicate,
        AddRoles,      AddSaga,        AddSchema,    AddTrace,         AddVerify}) {
    add(program);
  }

  // The last argument first, as CLI11 wants them; from here on the process list shows no password.
  std::vector<std::string> arguments(std::make_reverse_iterator(argv + argc),
                                     std::make_reverse_iterator(argv + 1));
  lockstep::HidePasswords(argc, argv);
  return ParseAndRun(app, std::move(arguments));
}
