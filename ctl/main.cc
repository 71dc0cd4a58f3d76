#include <CLI/CLI.hpp>
#include <iterator>

#include "ctl/command.h"
#include "platform/config/database_address.h"
#include "platform/log/log.h"
#include "platform/mutex_checks.h"
#include "platform/version.h"

int main(int argc, char** argv) {
  using namespace lockstep::ctl;
  lockstep::LeaveMutexesUnchecked();
  lockstep::log::Configure({.level = lockstep::log::Level::kWarning});
  CLI::App app{
      "lockstepctl: looks at and operates Lockstep's outboxes, consumer groups and offsets",
      "lockstepctl"};
  app.set_version_flag("--version", lockstep::kVersion);
  app.require_subcommand(1);
  app.fallthrough();  // --json and friends may stand behind the subcommand

  Context context;
  app.add_option("--database", context.database,
                 "Postgres, as postgresql://user@host/database; without it, the file's of --config")
      ->envname("LOCKSTEP_DATABASE");
  app.add_option("--config", context.config, "a publisher's or runner's configuration file");
  app.add_flag("--json", context.json, "answer in JSON");
  app.add_flag("--yes,-y", context.yes, "don't ask before changing something");

  const Command program(app, context);
  AddDeadLetters(program);
  AddMigrate(program);
  AddCheckpoint(program);
  AddLag(program);
  AddOffsets(program);
  AddOutbox(program);
  AddProvision(program);
  AddProjection(program);
  AddRebuild(program);
  AddReplay(program);
  AddRoles(program);
  AddSchema(program);

  // The last argument first, as CLI11 wants them; from here on the process list shows no password.
  std::vector<std::string> arguments(std::make_reverse_iterator(argv + argc),
                                     std::make_reverse_iterator(argv + 1));
  lockstep::HidePasswords(argc, argv);
  return ParseAndRun(app, std::move(arguments));
}
