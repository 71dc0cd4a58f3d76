#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <utility>

#include "runner/handlers/http_handlers.h"

namespace lockstep::runner {

struct CallLimits {
  // A transaction is open meanwhile, and a reset waits for it: no call is begun after this.
  Millis budget{2'000};
  // An event that a handler can't take while it takes others is refused in the end.
  int tries = 10;
  // So often an answer that may as well speak of the endpoint (404, 401) is asked for again, while
  // the handler accepts nothing else.
  int endpoint_tries = 5;
};

// A lane's way to the HTTP handlers of its group: has a batch's events called, waits for the
// answers, and remembers what was accepted until the batch is through. Owned by the lane's thread;
// a stop ends the wait at once.
class LaneCalls final : public Outside {
 public:
  // REQUIRES: `handlers` outlives it.
  LaneCalls(HttpHandlers& handlers, CallLimits limits, std::stop_token stop)
      : handlers_(handlers), limits_(limits), stop_(std::move(stop)) {}

  absl::StatusOr<Answers> Call(std::span<const OutsideCall> calls,
                               const std::function<absl::Status()>& alive) override;
  void Forget() override;

 private:
  using Key = std::pair<std::string, uint32_t>;  // event, call
  struct Trouble {
    int64_t accepted = 0;  // how many others the handler had accepted at the last try
    int failed = 0;        // tries in vain with others accepted in between
    int refused = 0;       // answers that may be the endpoint's
  };
  // How the lane is woken; shared with the round, which may outlive the wait.
  struct Wake {
    std::mutex mu;
    std::condition_variable_any changed;
    bool settled = false;
  };

  static Key KeyOf(const OutsideCall& call) {
    return {call.item->event.event_id.value(), call.call};
  }
  absl::Status Await(CallRound& round, Wake& wake, const std::function<absl::Status()>& alive);
  Verdict VerdictOn(const OutsideCall& call, const http::Verdict& answer);
  Verdict AfterOutage(const OutsideCall& call, const http::Verdict& answer);
  Verdict AfterRefusal(const OutsideCall& call, const http::Verdict& answer);
  std::string Words(const OutsideCall& call, const http::Verdict& answer) const;

  HttpHandlers& handlers_;
  const CallLimits limits_;
  const std::stop_token stop_;
  std::set<Key> accepted_;
  std::map<Key, Trouble> troubles_;
};

}  // namespace lockstep::runner
