// A service that runs its sagas in its own process, with steps in C++: it registers a definition,
// starts a saga of it and waits for its end.
//
//   export LOCKSTEP_DATABASE=postgresql://user@host/database
//   lockstepctl migrate up --set saga
//   embedded_orchestrator "$LOCKSTEP_DATABASE" trip.yaml NAME
#include <chrono>
#include <cstdio>
#include <thread>

#include "postgres/connection.h"
#include "sagas/definition/definition.h"
#include "sagas/orchestrator/orchestrator.h"
#include "sagas/store/desk.h"

namespace {

namespace sagas = lockstep::sagas;
using lockstep::postgres::Connection;
using sagas::Json;

// A step: `call.key` is the same with every try of it, and tells the two apart.
absl::StatusOr<Json> Book(const sagas::StepCall& call, const std::stop_token& /*stop*/) {
  const std::string what = call.request.value("what", "");
  if (what == "bed" && call.request.value("for", "") == "eve") {
    return absl::FailedPreconditionError("there is no bed for eve");  // for good
  }
  std::printf("booked a %s\n", what.c_str());
  return Json{{"booking", call.key}};
}

absl::StatusOr<Json> GiveBack(const sagas::StepCall& /*call*/, const std::stop_token& /*stop*/) {
  std::printf("gave a booking back\n");
  return Json();
}

// Answers the saga's last state.
absl::StatusOr<std::string> Travel(Connection& connection, const std::string& name) {
  auto transaction = connection.Begin();
  if (!transaction.ok()) return transaction.status();
  // Beside whatever else the service writes: the saga begins if and when it commits.
  const auto id = sagas::StartSaga(
      *transaction, {.definition = "trip", .input = {{"name", name}, {"nights", 2}}});
  if (!id.ok()) return id.status();
  if (const absl::Status committed = transaction->Commit(); !committed.ok()) return committed;
  for (int i = 0; i < 300; ++i) {
    const auto saga = sagas::ShowSaga(connection, *id);
    if (!saga.ok()) return saga.status();
    if (saga->ended()) return std::string(sagas::Name(saga->state));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return absl::DeadlineExceededError("the saga has not ended");
}

absl::Status Run(const std::string& database, const std::string& file, const std::string& name) {
  const auto definition = sagas::LoadDefinition(file);
  if (!definition.ok()) return definition.status();
  auto connection = Connection::Open({.url = database});
  if (!connection.ok()) return connection.status();
  const auto registered = sagas::Register(**connection, *definition, "embedded_orchestrator");
  if (!registered.ok()) return registered.status();

  sagas::OrchestratorOptions options;
  options.engine.database = database;
  lockstep::MetricsRegistry metrics;
  sagas::SagaOrchestrator orchestrator(options, metrics);
  orchestrator.AddFunction("book", Book);
  orchestrator.AddFunction("give_back", GiveBack);
  if (const absl::Status started = orchestrator.Start(); !started.ok()) return started;
  const auto state = Travel(**connection, name);
  orchestrator.Stop();
  if (!state.ok()) return state.status();
  std::printf("the trip of %s is %s\n", name.c_str(), state->c_str());
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr,
                 "usage: embedded_orchestrator postgresql://user@host/database FILE NAME\n");
    return 2;
  }
  const absl::Status ran = Run(argv[1], argv[2], argv[3]);
  if (ran.ok()) return 0;
  std::fprintf(stderr, "embedded_orchestrator: %s\n", ran.ToString().c_str());
  return 1;
}
