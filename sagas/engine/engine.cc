#include "sagas/engine/engine.h"

#include <utility>

#include "platform/duration.h"
#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/sql_error.h"
#include "sagas/engine/dispatcher.h"
#include "sagas/engine/parts.h"
#include "sagas/engine/worker.h"
#include "sagas/store/desk.h"

namespace lockstep::sagas {
namespace {

// That the sagas are there, and that this role may work on them; changes nothing.
constexpr char kProbe[] =
    "SELECT lockstep.saga_hold('00000000-0000-0000-0000-000000000000', "
    "'00000000-0000-0000-0000-000000000000', 0), (SELECT count(*) FROM lockstep.sagas WHERE false)";

}  // namespace

absl::StatusOr<std::shared_ptr<const Definition>> Engine::Parts::DefinitionOf(
    postgres::Connection& session, const std::string& name, int version) {
  {
    const std::scoped_lock lock(mu);
    const auto found = definitions.find({name, version});
    if (found != definitions.end()) return found->second;
  }
  ASSIGN_OR_RETURN(Definition read, GetDefinition(session, name, version));
  auto definition = std::make_shared<const Definition>(std::move(read));
  const std::scoped_lock lock(mu);
  definitions[{name, version}] = definition;
  return definition;
}

Engine::Engine(EngineOptions options, EngineEvents& events)
    : options_(std::move(options)), parts_(std::make_unique<Parts>(options_, events)) {
  SetLimits(options_.limits);
}

Engine::~Engine() { Stop(); }

void Engine::AddFunction(const std::string& name, StepFunction function) {
  parts_->functions.Add(name, std::move(function));
}

absl::Status Engine::Check() {
  RETURN_IF_ERROR(parts_->http.Open());
  ASSIGN_OR_RETURN(const auto session,
                   postgres::Connection::Open({.url = options_.database,
                                               .application_name = "lockstep-orchestrator check"}));
  const absl::Status probed = session->Run(kProbe);
  const std::string state = postgres::SqlState(probed);
  if (state == "3F000" || state == "42883" || state == "42P01") {
    return FailedPrecondition("this database has no sagas: run lockstepctl migrate up --set saga");
  }
  if (state == "42501") {
    return FailedPrecondition(
        "{}: the orchestrator's role lacks rights: SELECT "
        "lockstep.saga_grant_orchestrator('the_role')",
        MessageOf(probed));
  }
  return probed;
}

absl::Status Engine::Start() {
  const std::scoped_lock lock(parts_->life_mu);
  if (parts_->stopped) return FailedPrecondition("the engine was stopped");
  if (std::exchange(parts_->started, true)) return FailedPrecondition("the engine runs already");
  parts_->last_turn = Clock::System().Steady();
  parts_->functions.Start();
  for (int i = 0; i < options_.workers; ++i) {
    parts_->workers.emplace_back([this] { Worker(*parts_).Run(); });
  }
  parts_->dispatcher = std::thread([this] {
    Dispatcher dispatcher(*parts_);
    dispatcher.Run();
    if (parts_->crashed) return;
    // What is under way by now is nobody's to wait for.
    parts_->stop.request_stop();
    for (std::thread& worker : parts_->workers) worker.join();
    dispatcher.GiveBack();
  });
  return absl::OkStatus();
}

void Engine::Stop() {
  const std::scoped_lock lock(parts_->life_mu);
  parts_->stopped = true;
  parts_->draining = true;
  parts_->wake.Wake();
  if (parts_->dispatcher.joinable()) parts_->dispatcher.join();
  parts_->stop.request_stop();
  for (std::thread& worker : parts_->workers) {
    if (worker.joinable()) worker.join();
  }
  parts_->functions.Stop();
  parts_->http.Stop();
}

void Engine::SetLimits(const EngineLimits& limits) {
  {
    const std::scoped_lock lock(parts_->mu);
    parts_->limits = limits;
  }
  parts_->tags.Set(limits.tags);
  parts_->hand.QueueAll();
  parts_->wake.Wake();
}

int Engine::in_hand() const { return static_cast<int>(parts_->hand.size()); }
bool Engine::crashed() const { return parts_->crashed; }
SteadyTime Engine::last_turn() const { return parts_->last_turn; }

}  // namespace lockstep::sagas
