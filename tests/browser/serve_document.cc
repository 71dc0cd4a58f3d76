// Serves the status page over a document from a file, which it reads anew every round: for the
// browser test and for looking at the page while working on it. One without a history gets that of
// this process.
//
//   serve-status-document FILE             prints the address; ends on SIGTERM
//   serve-status-document --console FILE   the console's page, over what it would put together

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "platform/daemon/signals.h"
#include "web/console/console_page.h"
#include "web/history.h"
#include "web/status_page.h"

int main(int argc, char** argv) {
  const bool console = argc == 3 && std::string(argv[1]) == "--console";
  if (argc != 2 && !console) {
    std::fprintf(stderr, "usage: serve-status-document [--console] FILE\n");
    return 2;
  }
  lockstep::Signals signals;
  lockstep::HttpServer http({});
  if (console) {
    lockstep::web::ServeConsole(http, [file = std::string(argv[2])] {
      std::ifstream in(file);
      return nlohmann::json::parse(in);
    });
    if (!http.Start().ok()) return 1;
    std::printf("%s\n", http.url().c_str());
    std::fflush(stdout);
    signals.WaitForStop();
    http.Stop();
    return 0;
  }
  lockstep::web::StatusPage page(
      http,
      [file = std::string(argv[1]), history = lockstep::web::History()]() mutable {
        std::ifstream in(file);
        nlohmann::json document = nlohmann::json::parse(in);
        if (document.contains("history")) return document;
        const bool runner = document.contains("groups");
        const char* const list = runner ? "groups" : "outboxes";
        const char* const left = runner ? "lag_ms" : "pending";
        std::vector<lockstep::web::History::Part> parts;
        for (const auto& part : document[list]) {
          parts.push_back({part[runner ? "name" : "table"],
                           part["counters"][runner ? "applied" : "published"], part[left]});
        }
        history.Add(lockstep::Clock::System().Now(), parts);
        document["history"] = history.ToJson(list, left);
        return document;
      },
      lockstep::Millis(200));
  if (!http.Start().ok() || !page.Start().ok()) return 1;
  std::printf("%s\n", http.url().c_str());
  std::fflush(stdout);
  signals.WaitForStop();
  page.Stop();
  http.Stop();
  return 0;
}
