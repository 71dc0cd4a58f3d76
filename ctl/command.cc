#include "ctl/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <optional>
#include <utility>

#include "platform/config/config.h"
#include "platform/status.h"
#include "postgres/connection.h"

namespace lockstep::ctl {
namespace {

// The host that a connection string names, if any.
std::string HostOf(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) {
    const size_t at = (" " + url).find(" host=");
    if (at == std::string::npos) return "";
    const std::string rest = url.substr(at + 5);
    return rest.substr(0, rest.find(' '));
  }
  const std::string authority =
      url.substr(scheme + 3, url.find_first_of("/?", scheme + 3) - scheme - 3);
  const size_t user = authority.rfind('@');
  const std::string host = user == std::string::npos ? authority : authority.substr(user + 1);
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool UrlIsLocal(const std::string& url) {
  const std::string host = HostOf(url);
  return host.empty() || host == "localhost" || host == "[::1]" || host == "::1" ||
         host.starts_with("127.") || host.starts_with('/') || host.starts_with("%2F") ||
         host.starts_with("%2f");
}

bool Ask(const std::string& question) {
  std::string answer;
  std::cerr << question << " [y/N] " << std::flush;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "yes");
}

void Apply(CLI::Option* option, Command::Need need) {
  if (need == Command::Need::kRequired) option->required();
  if (need == Command::Need::kShowsDefault) option->capture_default_str();
}

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

}  // namespace

absl::StatusOr<std::string> Context::Database() const {
  if (!database.empty() || config.empty()) return database;
  return ReadTopKey(config, "database");
}

absl::StatusOr<std::unique_ptr<postgres::Connection>> Context::Connect() const {
  postgres::ConnectionOptions options;
  ASSIGN_OR_RETURN(options.url, Database());
  if (options.url.empty()) {
    return InvalidArgument(
        "no database is named: give --database postgresql://…, set LOCKSTEP_DATABASE, or name a "
        "file that has `database:` with --config");
  }
  options.application_name = "lockstepctl";
  return postgres::Connection::Open(options);
}

void Context::Answer(const nlohmann::ordered_json& object,
                     const std::function<void()>& human) const {
  if (json) {
    fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    human();
  }
}

bool Context::IsLocal() const {
  const auto url = Database();
  return url.ok() && UrlIsLocal(*url);
}

bool Context::Confirm(const std::string& what) const {
  std::cerr << what << "\n";
  if (yes) return true;
  if (isatty(STDIN_FILENO) == 0) {
    std::cerr << "Nothing was changed: there is no terminal to ask on. Repeat with --yes.\n";
    return false;
  }
  if (!Ask("Go on?")) return false;
  return IsLocal() || Ask("This database is not on this machine. Really go on?");
}

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

template <class Value>
const Command& Command::Option(const std::string& name, Value& value, const std::string& help,
                               Need need) const {
  Apply(app_->add_option(name, value, help), need);
  return *this;
}
template const Command& Command::Option(const std::string&, std::string&, const std::string&,
                                        Need) const;
template const Command& Command::Option(const std::string&, int&, const std::string&, Need) const;
template const Command& Command::Option(const std::string&, int64_t&, const std::string&,
                                        Need) const;
template const Command& Command::Option(const std::string&, std::optional<int64_t>&,
                                        const std::string&, Need) const;
template const Command& Command::Option(const std::string&, std::vector<std::string>&,
                                        const std::string&, Need) const;

const Command& Command::OneOf(const std::string& name, std::string& value, const std::string& help,
                              const std::vector<std::string>& choices, Need need) const {
  Apply(app_->add_option(name, value, help)->check(CLI::IsMember(choices)), need);
  return *this;
}

const Command& Command::InRange(const std::string& name, int& value, const std::string& help,
                                int least, int most) const {
  app_->add_option(name, value, help)->check(CLI::Range(least, most))->capture_default_str();
  return *this;
}

const Command& Command::Flag(const std::string& name, bool& value, const std::string& help) const {
  app_->add_flag(name, value, help);
  return *this;
}

}  // namespace lockstep::ctl
