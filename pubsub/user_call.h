#pragma once

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/log/log.h"

namespace lockstep::pubsub {

// Runs a callback of the user's; what it throws ends here. `what` begins the log's sentence.
template <typename Callback>
void Fenced(std::string_view what, const Callback& callback) {
  try {
    callback();
  } catch (const std::exception& error) {
    log::Error(fmt::format("{} threw", what), {{"error", error.what()}});
  } catch (...) {
    log::Error(fmt::format("{} threw", what));
  }
}

// A call of the user's (Publish, Acknowledge, …) whose results come one by one.
template <typename Result>
struct UserCall {
  using Done = std::function<void(std::vector<Result>)>;

  UserCall(size_t count, Done callback) : results(count), open(count), done(std::move(callback)) {}

  // True for the last one: then it is to be reported.
  bool Finish(size_t place, Result result) {
    results[place] = std::move(result);
    return --open == 0;
  }
  void Report(std::string_view what) {
    Fenced(what, [this] { done(std::move(results)); });
  }

  std::vector<Result> results;
  size_t open;  // without a result
  const Done done;
};

}  // namespace lockstep::pubsub
