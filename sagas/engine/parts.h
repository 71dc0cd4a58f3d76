#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sagas/engine/engine.h"
#include "sagas/engine/function_pool.h"
#include "sagas/engine/hand.h"
#include "sagas/engine/http_caller.h"
#include "sagas/engine/places.h"
#include "sagas/engine/wake_up.h"

namespace lockstep::postgres {
class Connection;
}

namespace lockstep::sagas {

// What the threads of one engine share.
struct Engine::Parts {
  Parts(const EngineOptions& engine_options, EngineEvents& engine_events)
      : options(engine_options),
        events(engine_events),
        hand(static_cast<size_t>(2 * engine_options.workers), [this] { wake.Wake(); }),
        tags(0, [this](const std::string& saga) { hand.Queue(saga); }),
        calls(engine_options.http.concurrency,
              [this](const std::string& saga) { hand.Queue(saga); }),
        functions(engine_options.function_threads),
        http(engine_options.http) {
    calls.Set({{kFunctionCalls, engine_options.function_threads},
               {kHttpCalls, HttpCaller::MostRequests(engine_options.http)}});
  }
  ~Parts() { hand.Clear(); }

  // Kinds of `calls`, beside the hosts.
  static constexpr char kHttpCalls[] = "http", kFunctionCalls[] = "fn";

  void Seam(std::string_view place) const {
    if (options.seam) options.seam(place);
  }
  // The definition that a saga keeps; read once.
  absl::StatusOr<std::shared_ptr<const Definition>> DefinitionOf(postgres::Connection& session,
                                                                 const std::string& name,
                                                                 int version);

  const EngineOptions& options;
  EngineEvents& events;
  WakeUp wake;  // of the dispatcher
  Hand hand;
  Places tags;   // by concurrency_tag
  Places calls;  // by host; what has no place is not begun: it would only wait, and time run out
  FunctionPool functions;
  HttpCaller http;
  std::atomic<int64_t> last_call = 0;
  std::atomic<bool> draining = false;  // nothing new begins
  std::atomic<bool> failing = false;   // the last that a worker heard of the database is a fault
  std::atomic<bool> crashed = false;   // by a seam: nothing at all is done any more
  std::atomic<SteadyTime> last_turn{};
  std::stop_source stop;  // of the workers and the dispatcher

  std::mutex mu;
  EngineLimits limits;
  std::map<std::pair<std::string, int>, std::shared_ptr<const Definition>> definitions;
  // When what this process has given back is to be looked at: no notification tells.
  std::vector<SteadyTime> soon;

  std::mutex life_mu;
  bool started = false, stopped = false;
  std::thread dispatcher;
  std::vector<std::thread> workers;
};

}  // namespace lockstep::sagas
