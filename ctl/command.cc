#include "ctl/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <regex>
#include <type_traits>
#include <utility>

#include "platform/config/config.h"
#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::ctl {
namespace {

// Of a connection string: the host behind `host=`, or between user and port of an address.
std::string HostOf(const std::string& url) {
  static const std::regex kHost(
      R"(^postgres(?:ql)?://(?:[^/?]*@)?(\[[^\]]*\]|[^:/?]*)|(?:^| )host=([^ ]*))");
  std::smatch found;
  return std::regex_search(url, found, kHost) ? found.str(1) + found.str(2) : "";
}

// Without a host libpq uses a socket; a host with a slash is the socket's directory.
bool UrlIsLocal(const std::string& url) {
  static const std::regex kLocal(R"(|localhost|::1|\[::1\]|127\..*|/.*|%2[Ff].*)");
  return std::regex_match(HostOf(url), kLocal);
}

bool Ask(const std::string& question) {
  std::string answer;
  std::cerr << question << " [y/N] " << std::flush;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "yes");
}

}  // namespace

absl::StatusOr<std::string> Context::Database() const {
  if (!database.empty() || config.empty()) return database;
  return ReadTopKey(config, "database");
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
    fmt::print("{}\n", object.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    human();
  }
  return absl::OkStatus();
}

bool Context::IsLocal() const {
  const auto url = Database();
  return url.ok() && UrlIsLocal(*url);
}

absl::Status Context::Confirm(const std::string& what) const {
  std::cerr << what << "\n";
  if (yes) return absl::OkStatus();
  if (isatty(STDIN_FILENO) == 0) {
    std::cerr << "Nothing was changed: there is no terminal to ask on. Repeat with --yes.\n";
  } else if (Ask("Go on?") &&
             (IsLocal() || Ask("This database is not on this machine. Really go on?"))) {
    return absl::OkStatus();
  }
  return absl::CancelledError("nothing was changed");
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
    fmt::print(stderr, "lockstepctl: {}\n", MessageOf(done));
    throw CLI::RuntimeError(1);
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
