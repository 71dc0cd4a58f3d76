#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "platform/duration.h"

namespace CLI {
class App;
}
namespace lockstep::postgres {
class Connection;
}

namespace lockstep::ctl {

using Json = nlohmann::ordered_json;

// What every command of lockstepctl has in common: where the database is, and how to answer.
struct Context {
  std::string database;       // --database, LOCKSTEP_DATABASE
  std::string password_file;  // --database-password-file, LOCKSTEP_DATABASE_PASSWORD_FILE
  std::string config;         // --config: a publisher's or runner's file
  bool json = false;          // --json
  bool yes = false;           // --yes: don't ask
  std::string confirmed;      // --confirm-database: the name of one that is not on this machine

  // The database's address: --database, else what the --config file says; empty when neither does.
  absl::StatusOr<std::string> Database() const;

  absl::StatusOr<std::unique_ptr<postgres::Connection>> Connect(
      Millis statement_timeout = Millis(30'000)) const;

  bool IsLocal() const;  // the database is on this machine

  // The same for another database.
  Context At(std::string url, std::string url_password_file) const {
    Context other = *this;
    other.database = std::move(url);
    other.password_file = std::move(url_password_file);
    return other;
  }

  // Prints `object` when --json was given; otherwise calls `human`. OK, for a command to end with.
  absl::Status Answer(const Json& object, const std::function<void()>& human) const;

  // Prints what will be changed and asks on the terminal; of a database that is not local it wants
  // the name typed, too. For scripts --yes answers the first, --confirm-database alone the second.
  // CANCELLED = leave everything as it is. Without a terminal and without these the answer is no,
  // with a sentence that says so.
  absl::Status Confirm(const std::string& what) const;

 private:
  absl::Status ConfirmFarDatabase(bool terminal) const;
};

// A list of what `to_json` makes of each.
template <class List, class ToJson>
Json ListOf(const List& list, const ToJson& to_json) {
  Json array = Json::array();
  for (const auto& item : list) array.push_back(to_json(item));
  return array;
}

template <class Value>
Json OrNull(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}
inline Json OrNull(const std::optional<WallTime>& time) {
  return time ? Json(FormatTimestamp(*time)) : Json(nullptr);
}

void PrintJson(const Json& object);
// A line `name value` for people, the name `width` wide; of an object or a list several lines.
void PrintMember(int width, const std::string& name, const Json& value);

// A string as it is, anything else as JSON.
std::string TextOf(const Json& value);

// An option of a command. Its value outlives the command.
struct Option {
  enum Need { kOptional, kRequired, kShowsDefault };

  std::string name;  // with dashes an option, without them an argument by its place
  std::variant<bool*, int*, int64_t*, std::optional<int64_t>*, std::string*,
               std::vector<std::string>*>
      value;  // of a list the user repeats the option
  std::string help;
  Need need = kOptional;
  std::vector<std::string> choices = {};  // none = anything
  int most = 0;                           // of a number from 1; 0 = any
};

// A failure that ends the program with another status than 1.
absl::Status WithExit(int exit_status, absl::Status failure);

// A command's body; its status ends the program (0, or 1 with the message on stderr).
using Run = std::function<absl::Status(const Context&)>;

// A command and its options. A handle: copies mean the same command. CLI11 stands behind it, which
// takes long to compile: only command.cc and main.cc include it.
class Command {
 public:
  Command(CLI::App& app, Context& context) : app_(&app), context_(&context) {}

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

 private:
  CLI::App* app_;
  Context* context_;
};

// One function per group of commands, each in its own file; called from main.cc.
void AddBackfill(const Command& program);
void AddDeadLetters(const Command& program);
void AddErase(const Command& program);
void AddGroupCommands(const Command& program);
void AddIdempotency(const Command& program);
void AddMigrate(const Command& program);
void AddCheckpoint(const Command& program);
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
