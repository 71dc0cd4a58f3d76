#include "ctl/command/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <type_traits>
#include <utility>

#include "ctl/command/print.h"
#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::ctl {
namespace {

constexpr char kExitStatus[] = "lockstepctl/exit_status";  // a payload of a status

int ExitStatus(const absl::Status& failure) {
  const auto given = failure.GetPayload(kExitStatus);
  return given ? std::stoi(std::string(*given)) : 1;
}

bool Ask(const std::string& question) {
  std::string answer;
  std::cerr << question << " [y/N] " << std::flush;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "yes");
}

}  // namespace

absl::StatusOr<std::string> Context::Database() const {
  std::string address = database;
  std::string file = password_file;
  if (address.empty() && !config.empty()) {
    ASSIGN_OR_RETURN(address, ReadTopKey(config, "database"));
    if (file.empty()) {
      ASSIGN_OR_RETURN(file, ReadTopKey(config, "database_password_file"));
      if (!file.empty()) file = std::filesystem::path(config).parent_path() / file;
    }
  }
  return address.empty() || file.empty() ? address : WithPasswordFile(address, file);
}

absl::StatusOr<std::unique_ptr<postgres::Connection>> Context::Connect(
    Millis statement_timeout) const {
  postgres::ConnectionOptions options;
  ASSIGN_OR_RETURN(options.url, Database());
  if (options.url.empty()) {
    return InvalidArgument(
        "no database is named: give --database postgresql://…, set LOCKSTEP_DATABASE, or name a "
        "file that has `database:` with --config");
  }
  options.application_name = "lockstepctl";
  options.statement_timeout = statement_timeout;
  return postgres::Connection::Open(options);
}

absl::Status Context::Answer(const Json& object, const std::function<void()>& human) const {
  if (json) {
    PrintJson(object);
  } else {
    human();
  }
  return absl::OkStatus();
}

bool Context::IsLocal() const {
  const auto url = Database();
  return url.ok() && IsLocalDatabase(*url);
}

absl::Status Context::Confirm(const std::string& what) const {
  Print(stderr, "{}\n", Lines{what});
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (!yes) {
    if (!terminal) {
      std::cerr << "Nothing was changed: there is no terminal to ask on. Repeat with --yes.\n";
      return absl::CancelledError("nothing was changed");
    }
    if (!Ask("Go on?")) return absl::CancelledError("nothing was changed");
  }
  return IsLocal() ? absl::OkStatus() : ConfirmFarDatabase(terminal);
}

// A reflex or a script that was meant for another database must not answer it.
absl::Status Context::ConfirmFarDatabase(bool terminal) const {
  ASSIGN_OR_RETURN(const auto connection, Connect());
  const std::string name = connection->database();
  std::string given = confirmed;
  if (given.empty() && terminal) {
    Print(stderr, "This database is not on this machine. Type its name to go on: ");
    std::cerr << std::flush;
    std::getline(std::cin, given);
  }
  if (given == name) return absl::OkStatus();
  if (given.empty() && !terminal) {
    return absl::CancelledError(fmt::format(
        "nothing was changed: the database {} is not on this machine; --yes does not answer for "
        "it, --confirm-database {} does",
        name, name));
  }
  return absl::CancelledError(
      fmt::format("nothing was changed: the database is {}, and '{}' was named", name, given));
}

absl::Status WithExit(int exit_status, absl::Status failure) {
  failure.SetPayload(kExitStatus, absl::Cord(std::to_string(exit_status)));
  return failure;
}

void PrintJson(const Json& object) {
  Print("{}\n", Lines{object.dump(2, ' ', false, Json::error_handler_t::replace)});
}

void PrintMember(int width, const std::string& name, const Json& value) {
  const std::string text = TextOf(value);
  if (value.is_string()) return Print("{:<{}} {}\n", name, width, text);
  Print("{:<{}} {}\n", name, width, Lines{text});
}

std::string TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(value.is_object() ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

Command Command::Add(const std::string& name, const std::string& help, Run run) const {
  CLI::App* const command = app_->add_subcommand(name, help);
  command->callback([command, context = context_, run = std::move(run)] {
    if (!command->get_subcommands().empty()) return;  // one below it was meant
    const absl::Status done = run(*context);
    if (done.ok()) return;
    Print(stderr, "lockstepctl: {}\n", Lines{MessageOf(done)});
    throw CLI::RuntimeError(ExitStatus(done));
  });
  return {*command, *context_};
}

Command Command::AddGroup(const std::string& name, const std::string& help) const {
  CLI::App* const group = app_->add_subcommand(name, help);
  group->require_subcommand(1);
  return {*group, *context_};
}

const Command& Command::With(const std::vector<Option>& options) const {
  for (const Option& option : options) {
    CLI::Option* const made = std::visit(
        [&](auto* value) {
          if constexpr (std::is_same_v<decltype(value), bool*>) {
            return app_->add_flag(option.name, *value, option.help);
          } else {
            return app_->add_option(option.name, *value, option.help);
          }
        },
        option.value);
    if (!option.choices.empty()) made->check(CLI::IsMember(option.choices));
    if (option.most > 0) made->check(CLI::Range(1, option.most));
    if (option.need == Option::kRequired) made->required();
    if (option.need == Option::kShowsDefault) made->capture_default_str();
  }
  return *this;
}

}  // namespace lockstep::ctl
