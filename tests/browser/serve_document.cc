// Serves the status page over a document from a file, which it reads anew every round: for the
// browser test and for looking at the page while working on it.
//
//   serve-status-document FILE   prints the address; ends on SIGTERM

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "platform/daemon/signals.h"
#include "web/history.h"
#include "web/status_page.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: serve-status-document FILE\n");
    return 2;
  }
  lockstep::Signals signals;
  lockstep::HttpServer http({});
  lockstep::web::StatusPage page(
      http,
      [file = std::string(argv[1]), history = lockstep::web::History()]() mutable {
        std::ifstream in(file);
        nlohmann::json document = nlohmann::json::parse(in);
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
