// lockstepctl console: one page for all publishers, runners and orchestrators.
#include <fmt/format.h>

#include <memory>

#include "ctl/command/command.h"
#include "ctl/console/finder.h"
#include "platform/daemon/http_server.h"
#include "platform/daemon/service_thread.h"
#include "platform/daemon/signals.h"
#include "platform/http_client/url.h"
#include "platform/status.h"
#include "web/console/console_page.h"
#include "web/console/picture.h"
#include "web/console/poller.h"

namespace lockstep::ctl {
namespace {

constexpr Millis kFindEvery{10'000};

struct ConsoleOptions {
  std::vector<std::string> publishers, runners, orchestrators, databases, schemas;
  std::string listen = "127.0.0.1";
  int64_t port = 0;
};

absl::Status AddNamed(const std::vector<std::string>& addresses, const char* role,
                      std::vector<web::Instance>& named) {
  for (const std::string& address : addresses) {
    const auto url = http::ParseUrl(address);
    if (!url.ok()) {
      return InvalidArgument("--{} {}: {}", role, address, MessageOf(url.status()));
    }
    named.push_back({.address = address, .role = role});
  }
  return absl::OkStatus();
}

absl::StatusOr<ConsoleFinder::Options> WhereToLook(const Context& context,
                                                   const ConsoleOptions& options) {
  ConsoleFinder::Options where{.schemas = options.schemas};
  if (where.schemas.empty()) where.schemas = {"lockstep_state"};
  ASSIGN_OR_RETURN(const std::string database, context.Database());
  if (!database.empty()) where.databases.push_back(context);
  for (const std::string& url : options.databases) where.databases.push_back(context.At(url, ""));
  RETURN_IF_ERROR(AddNamed(options.publishers, "publisher", where.named));
  RETURN_IF_ERROR(AddNamed(options.runners, "runner", where.named));
  RETURN_IF_ERROR(AddNamed(options.orchestrators, "orchestrator", where.named));
  if (where.databases.empty() && where.named.empty()) {
    return InvalidArgument(
        "nobody to ask: name instances (--publisher, --runner, --orchestrator, each with the "
        "address of its page), or databases where they are found (--database, --find)");
  }
  return where;
}

absl::Status Console(const Context& context, const ConsoleOptions& options) {
  ASSIGN_OR_RETURN(ConsoleFinder::Options where, WhereToLook(context, options));
  Signals signals;
  ConsoleFinder finder(std::move(where));
  web::Poller poller;
  HttpServer http({.address = options.listen, .port = static_cast<int>(options.port)});
  web::ServeConsole(http, [&] {
    nlohmann::json document = web::Picture(poller.Look(), Clock::System().Now());
    document["databases"] = finder.Databases();
    document["left_out"] = poller.left_out();
    return document;
  });
  Ticker finding(kFindEvery, [&] { poller.Follow(finder.Round()); });
  RETURN_IF_ERROR(http.Start());
  RETURN_IF_ERROR(finding.Start());
  RETURN_IF_ERROR(poller.Start());
  if (context.json) {
    PrintJson({{"url", http.url()}});
  } else {
    fmt::print("The console is at {} until Ctrl-C.\n", http.url());
  }
  std::fflush(stdout);
  signals.WaitForStop();
  http.Stop();
  finding.Stop();
  poller.Stop();
  return absl::OkStatus();
}

}  // namespace

void AddConsole(const Command& program) {
  const auto o = std::make_shared<ConsoleOptions>();
  program
      .Add("console",
           "one page for all publishers, runners and orchestrators: source, topics and groups as a "
           "picture. It only reads",
           o, &Console)
      .With({{"--publisher", &o->publishers,
              "the address of a publisher's page, http://host:port; repeat it"},
             {"--runner", &o->runners, "the same of a runner"},
             {"--orchestrator", &o->orchestrators, "the same of an orchestrator"},
             {"--find", &o->databases,
              "a database where publishers and runners are looked for, besides --database; repeat "
              "it"},
             {"--schema", &o->schemas,
              "the state schema of consumers there (lockstep_state); repeat it"},
             {"--listen", &o->listen, "the address to listen on", Option::kShowsDefault},
             {"--port", &o->port, "the port; 0 takes a free one", Option::kShowsDefault}});
}

}  // namespace lockstep::ctl
