#include "ctl/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <utility>

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

}  // namespace

absl::StatusOr<std::unique_ptr<postgres::Connection>> Context::Connect() const {
  if (database.empty()) {
    return InvalidArgument(
        "no database is named: give --database postgresql://… or set LOCKSTEP_DATABASE");
  }
  postgres::ConnectionOptions options;
  options.url = database;
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

bool Context::IsLocal() const { return UrlIsLocal(database); }

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

void On(CLI::App* command, Context& context, Run run) {
  command->callback([&context, run = std::move(run)] {
    const absl::Status done = run(context);
    if (done.ok()) return;
    fmt::print(stderr, "lockstepctl: {}\n", MessageOf(done));
    throw CLI::RuntimeError(1);
  });
}

}  // namespace lockstep::ctl
