#include "tests/sagas/chaos/world.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "platform/status.h"

namespace lockstep::sagachaos {
namespace {

// Leases and waits are short, so that a minute holds many takeovers.
constexpr char kOrchestratorYaml[] = R"(database: postgresql://lockstep@127.0.0.1:{}/shop
http: {{enabled: false}}
lease: {}ms
heartbeat: 500ms
actions: {{allow_private: true}}
)";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("can't read " + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

World::World(WorldOptions options)
    : options_(std::move(options)),
      server_(options_.folder + "/postgres", options_.bin + "/libchaos_bad_machine.so") {
  server_.Make();
  server_.Start();
  StartParticipant();
  MakeDatabase();
  gate_ = std::make_unique<chaos::Gate>(server_.port());
  std::ofstream(File("orchestrator.yaml"))
      << fmt::format(kOrchestratorYaml, gate_->port(), kLease.count());
  orchestrators_ = std::make_unique<chaos::Fleet>(
      "orchestrator", Program("lockstep-orchestrator", {"--config", File("orchestrator.yaml")}));
}

Child::Command World::Program(const std::string& name, std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), options_.bin + "/" + name);
  return {.arguments = std::move(arguments), .log = File(name)};
}

void World::MustRun(const std::string& name, std::vector<std::string> arguments) const {
  Child::Command command = Program(name, std::move(arguments));
  command.log = File("setup.log");
  if (chaos::RunToEnd(command, Millis(60'000)) == 0) return;
  throw std::runtime_error(fmt::format("{} failed:\n{}", name, ReadFile(command.log)));
}

std::unique_ptr<Child> World::Control(std::vector<std::string> arguments) const {
  arguments.insert(arguments.end(), {"--database", url(), "--yes"});
  Child::Command command = Program("lockstepctl", std::move(arguments));
  command.log = File("lockstepctl.log");
  return std::make_unique<Child>(command);
}

void World::StartParticipant() {
  participant_ = std::make_unique<Child>(Child::Command{
      .arguments = {"/usr/bin/env", "node", options_.source + "/participant.js",
                    File("participant.port"), File("ledger.tsv"), fmt::format("{}", options_.seed)},
      .log = File("participant.log")});
  for (int tries = 0; tries < 300 && participant_port_ == 0; ++tries) {
    std::this_thread::sleep_for(Millis(50));
    std::ifstream(File("participant.port")) >> participant_port_;
  }
  if (participant_port_ == 0) throw std::runtime_error("the participant did not start");
}

std::string World::Fill(const std::string& name) const {
  std::string text = ReadFile(options_.source + "/" + name);
  const std::string port = ":8080/";
  for (size_t at = 0; (at = text.find(port, at)) != std::string::npos;) {
    text.replace(at, port.size(), fmt::format(":{}/", participant_port_));
  }
  std::ofstream(File(name)) << text;
  return File(name);
}

std::unique_ptr<postgres::Connection> World::Connect() const {
  for (int tries = 0;; ++tries) {
    auto connection = postgres::Connection::Open({.url = url(), .application_name = "chaos"});
    if (connection.ok()) return *std::move(connection);
    if (tries == 200) throw std::runtime_error(std::string(MessageOf(connection.status())));
    std::this_thread::sleep_for(Millis(100));
  }
}

void World::MakeDatabase() {
  for (int tries = 0; tries < 200; ++tries) {
    const auto made = server_.Run("postgres", {"CREATE DATABASE shop"});
    if (made->WaitFor(Millis(20'000)) == 0) break;
    std::this_thread::sleep_for(Millis(100));
  }
  const auto connection = Connect();
  MustRun("lockstepctl", {"--database", url(), "migrate", "up", "--set", "outbox"});
  MustRun("lockstepctl", {"--database", url(), "migrate", "up", "--set", "saga"});
  MustRun("lockstepctl", {"--database", url(), "outbox", "create", "shop.outbox"});
  const auto made = connection->Run(ReadFile(options_.source + "/shop.sql"));
  if (!made.ok()) throw std::runtime_error(std::string(MessageOf(made)));
  MustRun("lockstepctl", {"--database", url(), "saga", "register", Fill("saga.yaml")});
}

std::map<std::string, std::vector<Request>> World::ReadLedger() const {
  std::map<std::string, std::vector<Request>> requests;
  std::ifstream file(File("ledger.tsv"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Request request;
    words >> request.at >> request.path >> request.saga >> request.key >> request.answer >>
        request.did;
    if (!words) throw std::runtime_error("the ledger has the line: " + line);
    requests[request.saga].push_back(std::move(request));
  }
  return requests;
}

}  // namespace lockstep::sagachaos
