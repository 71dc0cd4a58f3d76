#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/command/context.h"
#include "ctl/command/json.h"

namespace CLI {
class App;
}

namespace lockstep::ctl {

// An option of a command. Its value outlives the command.
struct Option {
  enum Need { kOptional, kRequired, kShowsDefault };

  std::string name;  // with dashes an option, without them an argument by its place
  std::variant<bool*, int*, int64_t*, std::optional<int64_t>*, std::string*,
               std::vector<std::string>*, std::vector<int64_t>*>
      value;  // of a list the user repeats the option
  std::string help;
  Need need = kOptional;
  std::vector<std::string> choices = {};  // none = anything
  int most = 0;                           // of a number from 1; 0 = any
};

// A command as it is described: what --help, man pages and completion are made from.
struct CommandNode {
  std::string name, help;
  std::vector<Option> options;
  std::vector<std::shared_ptr<CommandNode>> commands;
  CommandNode* above = nullptr;  // owns this
  bool runs = false;             // by itself; else one of its commands has to be named
  bool changes = false;          // something, so that --dry-run and --yes mean something
  bool reason_required = false;

  // "lockstepctl outbox list"
  std::string Path() const { return above == nullptr ? name : above->Path() + " " + name; }
  const CommandNode* Find(std::string_view command) const;
  const CommandNode& Top() const { return above == nullptr ? *this : above->Top(); }
};

// A command's body; its status ends the program (0, or 1 with the message on stderr).
using Run = std::function<absl::Status(const Context&)>;

// A command and its options. A handle: copies mean the same command. CLI11 stands behind it, which
// takes long to compile: only command.cc and main.cc include it.
class Command {
 public:
  Command(CLI::App& app, Context& context, CommandNode& node)
      : app_(&app), context_(&context), node_(&node) {}

  Command Add(const std::string& name, const std::string& help, Run run) const;
  // One whose body gets its options too, and keeps them alive; then `more`, if there is more.
  template <class Options, class... More>
  Command Add(const std::string& name, const std::string& help,
              const std::shared_ptr<Options>& options,
              absl::Status (*body)(const Context&, const Options&, More...), More... more) const {
    return Add(name, help, [options, body, more...](const Context& context) {
      return body(context, *options, more...);
    });
  }
  // One whose user has to name one of the commands below it.
  Command AddGroup(const std::string& name, const std::string& help) const;

  const Command& With(const std::vector<Option>& options) const;

  // It changes something: its body calls Context::Confirm or Announce before it does, and it has
  // --reason. `required`: it does nothing without one.
  enum Reason { kNoReason, kReason, kReasonRequired };
  const Command& Changes(Reason reason = kReason) const;

 private:
  Command AddNode(const std::string& name, const std::string& help) const;

  CLI::App* app_;
  Context* context_;
  CommandNode* node_;
};

// One function per group of commands, each in its own file; called from main.cc.
void AddBackfill(const Command& program);
void AddDeadLetters(const Command& program);
void AddErase(const Command& program);
void AddGroupCommands(const Command& program);
void AddIdempotency(const Command& program);
void AddMigrate(const Command& program);
void AddCheckpoint(const Command& program);
void AddConsole(const Command& program);
void AddLag(const Command& program);
void AddOffsets(const Command& program);
void AddReset(const Command& offsets);  // called by AddOffsets
void AddParked(const Command& program);
void AddProjection(const Command& program);
void AddReconcile(const Command& program);
void AddReplay(const Command& program);
void AddRebuild(const Command& program);
void AddReplicate(const Command& program);
void AddRoles(const Command& program);
void AddSaga(const Command& program);
void AddSchema(const Command& program);
void AddTrace(const Command& program);
void AddOutbox(const Command& program);
void AddProvision(const Command& program);
void AddRepair(const Command& program);
void AddVerify(const Command& program);

}  // namespace lockstep::ctl
