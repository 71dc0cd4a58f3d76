#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/command/json.h"
#include "platform/duration.h"

namespace lockstep::postgres {
class Connection;
}

namespace lockstep::ctl {

// What every command of lockstepctl has in common: where the database is, how to answer, and the
// one way to change something:
//
//   the plan is shown; a person is asked, a script says --yes; --dry-run ends there.
//
// What only adds, or what another command takes back, is done without a question (Announce).
struct Context {
  std::string database;       // --database, LOCKSTEP_DATABASE
  std::string password_file;  // --database-password-file, LOCKSTEP_DATABASE_PASSWORD_FILE
  std::string config;         // --config: a publisher's or runner's file
  bool json = false;          // --json
  bool yes = false;           // --yes: don't ask
  bool dry_run = false;       // --dry-run: show what would be done, change nothing
  std::string confirmed;      // --confirm-database: the name of one that is not on this machine

  mutable std::string reason;    // --reason, of commands that change something
  bool reason_required = false;  // the command's

  // The database's address: --database, else what the --config file says; empty when neither does.
  absl::StatusOr<std::string> Database() const;

  // Under --dry-run a session that could not write if it wanted to.
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

  // Where a plan is shown: it is the answer of --dry-run, and otherwise not to be mixed with one.
  std::FILE* plan_out() const { return dry_run && !json ? stdout : stderr; }

  // Before something is changed. `what` is what will be, in words, after whatever details were
  // printed to plan_out(); `plan` the same for --json. With --dry-run it ends the command: a status
  // that means success. Otherwise it asks on the terminal for a yes, for the reason where one is
  // required, and of a database that is not local for its name. For scripts --yes answers the
  // first, --reason the second, --confirm-database alone the third; without a terminal and without
  // these the answer is no, with a sentence that says so.
  absl::Status Confirm(const std::string& what, const Json& plan = nullptr) const;
  // The same without a question.
  absl::Status Announce(const std::string& what, const Json& plan = nullptr) const;

 private:
  absl::Status ShowPlan(const std::string& what, const Json& plan) const;
  absl::Status AskReason(bool terminal) const;
  absl::Status ConfirmFarDatabase(bool terminal) const;
};

// A failure that ends the program with another status than 1.
absl::Status WithExit(int exit_status, absl::Status failure);
int ExitStatus(const absl::Status& failure);
// Whether it is what --dry-run ends a command with: no failure.
bool IsDryRun(const absl::Status& status);

}  // namespace lockstep::ctl
