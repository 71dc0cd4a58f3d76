#include "ctl/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <utility>

#include "platform/config/config_file.h"
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

void On(CLI::App* command, Context& context, Run run) {
  command->callback([&context, run = std::move(run)] {
    const absl::Status done = run(context);
    if (done.ok()) return;
    fmt::print(stderr, "lockstepctl: {}\n", MessageOf(done));
    throw CLI::RuntimeError(1);
  });
}

}  // namespace lockstep::ctl
