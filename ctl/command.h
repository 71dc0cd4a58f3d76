#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace CLI {
class App;
}
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

// A command's body; its status ends the program (0, or 1 with the message on stderr).
using Run = std::function<absl::Status(const Context&)>;

// A command and its options. A handle: copies mean the same command. CLI11 stands behind it, which
// takes long to compile: only command.cc and main.cc include it.
class Command {
 public:
  Command(CLI::App& app, Context& context) : app_(&app), context_(&context) {}

  Command Add(const std::string& name, const std::string& help, Run run) const;
  // One whose user has to name one of the commands below it.
  Command AddGroup(const std::string& name, const std::string& help) const;

  enum class Need { kOptional, kRequired, kShowsDefault };
  // `name` with dashes is an option, without them an argument by its place. `value` is a text, a
  // number, or a list of texts that the option's user repeats it for.
  template <class Value>
  const Command& Option(const std::string& name, Value& value, const std::string& help,
                        Need need = Need::kOptional) const;
  const Command& Required(const std::string& name, auto& value, const std::string& help) const {
    return Option(name, value, help, Need::kRequired);
  }
  const Command& WithDefault(const std::string& name, auto& value, const std::string& help) const {
    return Option(name, value, help, Need::kShowsDefault);
  }
  const Command& OneOf(const std::string& name, std::string& value, const std::string& help,
                       const std::vector<std::string>& choices, Need need) const;
  const Command& InRange(const std::string& name, int& value, const std::string& help, int least,
                         int most) const;
  const Command& Flag(const std::string& name, bool& value, const std::string& help) const;

 private:
  CLI::App* app_;
  Context* context_;
};

// Reads the command line and runs the command it names; the program's exit status: 0, 1 when the
// command failed, 2 when the command line is wrong. `arguments` are in reverse, as CLI11 wants
// them.
int ParseAndRun(CLI::App& app, std::vector<std::string> arguments);

// One function per group of commands, each in its own file; called from main.cc.
void AddDeadLetters(const Command& program);
void AddMigrate(const Command& program);
void AddCheckpoint(const Command& program);
void AddLag(const Command& program);
void AddOffsets(const Command& program);
void AddProjection(const Command& program);
void AddReplay(const Command& program);
void AddRebuild(const Command& program);
void AddRoles(const Command& program);
void AddSchema(const Command& program);
void AddOutbox(const Command& program);
void AddProvision(const Command& program);

}  // namespace lockstep::ctl
