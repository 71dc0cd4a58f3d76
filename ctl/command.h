#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::postgres {
class Connection;
}

namespace lockstep::ctl {

// What every command of lockstepctl has in common: where the database is, and how to answer.
struct Context {
  std::string database;  // --database, LOCKSTEP_DATABASE
  std::string config;    // --config: a publisher's or runner's file
  bool json = false;     // --json
  bool yes = false;      // --yes: don't ask

  // The database's address: --database, else what the --config file says; empty when neither does.
  absl::StatusOr<std::string> Database() const;

  absl::StatusOr<std::unique_ptr<postgres::Connection>> Connect() const;

  bool IsLocal() const;  // the database is on this machine

  // Prints `object` when --json was given; otherwise calls `human`.
  void Answer(const nlohmann::ordered_json& object, const std::function<void()>& human) const;

  // Prints what will be changed and asks on the terminal; a database that is not local asks twice.
  // --yes answers for scripts. False = leave everything as it is. Without a terminal and without
  // --yes the answer is no, with a sentence that says so.
  bool Confirm(const std::string& what) const;
};

// Reads the command line and runs the command it names; the program's exit status: 0, 1 when the
// command failed, 2 when the command line is wrong. `arguments` are in reverse, as CLI11 wants
// them.
int ParseAndRun(CLI::App& app, std::vector<std::string> arguments);

// A command's body; its status ends the program (0, or 1 with the message on stderr).
using Run = std::function<absl::Status(const Context&)>;

// Ties a subcommand to its body.
void On(CLI::App* command, Context& context, Run run);

// One function per group of commands, each in its own file; called from main.cc.
void AddDeadLetters(CLI::App& app, Context& context);
void AddMigrate(CLI::App& app, Context& context);
void AddCheckpoint(CLI::App& app, Context& context);
void AddLag(CLI::App& app, Context& context);
void AddOffsets(CLI::App& app, Context& context);
void AddProjection(CLI::App& app, Context& context);
void AddReplay(CLI::App& app, Context& context);
void AddRebuild(CLI::App& app, Context& context);
void AddRoles(CLI::App& app, Context& context);
void AddSchema(CLI::App& app, Context& context);
void AddOutbox(CLI::App& app, Context& context);
void AddProvision(CLI::App& app, Context& context);

}  // namespace lockstep::ctl
