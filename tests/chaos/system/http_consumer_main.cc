// The HTTP consumer of scripts/chaos: the endpoint of a handler, with a ledger of its own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>

#include "platform/log/log.h"
#include "tests/chaos/system/http_consumer.h"

namespace {

volatile bool stop = false;

}  // namespace

int main(int argc, char** argv) {
  lockstep::chaos::HttpConsumerOptions options;
  CLI::App app{"The HTTP consumer of scripts/chaos"};
  app.add_option("--port", options.port, "to listen on, of 127.0.0.1")->required();
  app.add_option("--database", options.database, "with the runners' state")->required();
  app.add_option("--group", options.group, "whose inbox is asked about what comes again")
      ->required();
  app.add_option("--mood", options.mood_file, "a file that says how to behave")->required();
  app.add_option("--notes", options.notes_file, "the file for the ledger")->required();
  app.add_option("--seed", options.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  lockstep::log::Configure({.level = lockstep::log::Level::kWarning});
  std::signal(SIGTERM, [](int) { stop = true; });
  try {
    lockstep::chaos::HttpConsumer(std::move(options)).Run(stop);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "the HTTP consumer: {}\n", e.what());
    return 3;
  }
}
