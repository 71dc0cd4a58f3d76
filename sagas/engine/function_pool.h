#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "sagas/engine/attempt.h"
#include "sagas/engine/call.h"

namespace lockstep::sagas {

// Runs fn: steps on threads of its own, so many at a time; others wait for their turn. Safe from
// any thread. Its end stops the tokens of what runs and waits for it.
class FunctionPool {
 public:
  explicit FunctionPool(int threads) : most_(threads) {}
  ~FunctionPool() { Stop(); }

  // REQUIRES: before Start.
  void Add(const std::string& name, StepFunction function) {
    functions_[name] = std::move(function);
  }
  bool Has(const std::string& name) const { return functions_.contains(name); }

  void Start();  // no thread without a function
  void Stop();

  using Done = std::function<void(Outcome)>;
  void Run(const std::string& name, StepCall call, std::stop_token stop, Done done);

 private:
  struct Task {
    const StepFunction* function = nullptr;
    StepCall call;
    std::stop_token stop;
    Done done;
  };
  void Work(const std::stop_token& end);

  const int most_;
  std::map<std::string, StepFunction> functions_;
  std::mutex mu_;
  std::condition_variable_any changed_;
  std::deque<Task> tasks_;
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep::sagas
