#include "ctl/command/context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "ctl/command/print.h"
#include "platform/config/config.h"
#include "platform/config/database_address.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/connection.h"

namespace lockstep::ctl {
namespace {

constexpr char kExitStatus[] = "lockstepctl/exit_status";  // a payload of a status
constexpr char kReadOnly[] = "SET default_transaction_read_only = on; ";

// Asks on stderr: stdout is for the answer.
std::string AskFor(const std::string& question) {
  std::string answer;
  Print(stderr, "{} ", question);
  std::cerr << std::flush;
  std::getline(std::cin, answer);
  return std::string(Trim(answer));
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
  if (dry_run) options.settings = kReadOnly;
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

absl::Status Context::ShowPlan(const std::string& what, const Json& plan) const {
  if (!dry_run) return absl::OkStatus();
  if (json) {
    Json answer = {{"dry_run", true}, {"what", what}};
    if (!plan.is_null()) answer["plan"] = plan;
    PrintJson(answer);
  } else {
    Print("{}\nNothing was changed: this was a dry run; --yes in its place does it.\n",
          Lines{what});
  }
  return WithExit(0, absl::CancelledError("a dry run"));
}

absl::Status Context::Announce(const std::string& what, const Json& plan) const {
  RETURN_IF_ERROR(ShowPlan(what, plan));
  return AskReason(isatty(STDIN_FILENO) != 0);
}

absl::Status Context::Confirm(const std::string& what, const Json& plan) const {
  RETURN_IF_ERROR(ShowPlan(what, plan));
  Print(stderr, "{}\n", Lines{what});
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (!yes && !terminal) {
    return absl::CancelledError(
        "nothing was changed: there is no terminal to ask on. Repeat with --yes to do it, with "
        "--dry-run to see it only");
  }
  RETURN_IF_ERROR(AskReason(terminal));
  if (!yes) {
    const std::string answer = AskFor("Go on? [y/N]");
    if (answer != "y" && answer != "yes") return absl::CancelledError("nothing was changed");
  }
  return IsLocal() ? absl::OkStatus() : ConfirmFarDatabase(terminal);
}

absl::Status Context::AskReason(bool terminal) const {
  if (!reason_required || !reason.empty()) return absl::OkStatus();
  if (terminal && !yes) reason = AskFor("Why? It goes into the audit:");
  if (!reason.empty()) return absl::OkStatus();
  return InvalidArgument("nothing was changed: say why with --reason; it goes into the audit");
}

// A reflex or a script that was meant for another database must not answer it.
absl::Status Context::ConfirmFarDatabase(bool terminal) const {
  ASSIGN_OR_RETURN(const auto connection, Connect());
  const std::string name = connection->database();
  std::string given = confirmed;
  if (given.empty() && terminal) {
    given = AskFor("This database is not on this machine. Type its name to go on:");
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
  if (IsDryRun(failure)) return failure;
  failure.SetPayload(kExitStatus, absl::Cord(std::to_string(exit_status)));
  return failure;
}

int ExitStatus(const absl::Status& failure) {
  if (failure.ok()) return 0;
  const auto given = failure.GetPayload(kExitStatus);
  return given ? std::stoi(std::string(*given)) : 1;
}

bool IsDryRun(const absl::Status& status) { return !status.ok() && ExitStatus(status) == 0; }

}  // namespace lockstep::ctl
