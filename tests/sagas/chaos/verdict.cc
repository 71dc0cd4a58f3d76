#include "tests/sagas/chaos/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace lockstep::sagachaos {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Of the definition: a step that was asked so often has failed. Attempts whose answer did not
// arrive count too, so the ledger may know of fewer bad answers by as many as there were attacks.
constexpr int kMaxAttempts = 12;
// For how long after an attack a repetition may come: leases, waits between tries.
constexpr int64_t kAftermath = 8'000;
constexpr int64_t kAnswerTravels = 1'500;

bool IsWhole(const std::string& answer) { return answer == "ok" || answer == "slow"; }
bool IsDoubtful(const std::string& answer) {
  return !IsWhole(answer) && answer != "429" && answer != "refused";
}

// What became of one step, forward and back, by those outside.
struct Facts {
  int done = 0, undone = 0;                        // how often it had its effect
  double first_try = kNever, done_at = kNever;     // when it was begun; when it had its effect
  double first_undo = kNever, undone_at = kNever;  // … the same of its undoing
};

class Case {
 public:
  Case(const Saga& saga, const Plan& plan, std::function<bool(int64_t, int64_t)> attacked)
      : saga_(saga), plan_(plan), attacked_(std::move(attacked)) {
    for (const Known& known : KnownSteps()) facts_.push_back(Gather(known));
  }

  std::vector<std::string> Judge() {
    if (saga_.steps.size() != KnownSteps().size()) {
      Complain("has {} steps", saga_.steps.size());
      return complaints_;
    }
    if (!Ends()) return complaints_;
    for (size_t i = 0; i < facts_.size(); ++i) Effects(i);
    Order();
    Reason();
    Repetitions();
    Audit();
    return complaints_;
  }

 private:
  template <class... Args>
  void Complain(fmt::format_string<Args...> format, Args&&... args) {
    complaints_.push_back(fmt::format("saga {} ({}): ", saga_.key, saga_.state) +
                          fmt::format(format, std::forward<Args>(args)...));
  }

  Facts Gather(const Known& known) const {
    Facts facts;
    const auto note = [](double at, double& first, double& did_at, int& count, bool did) {
      first = std::min(first, at);
      if (!did) return;
      ++count;
      did_at = std::min(did_at, at);
    };
    for (const Request& request : saga_.requests) {
      const double at = static_cast<double>(request.at);
      if (request.path == known.name) {
        note(at, facts.first_try, facts.done_at, facts.done, request.did == "did");
      } else if (request.path == known.undo) {
        note(at, facts.first_undo, facts.undone_at, facts.undone, request.did == "did");
        // Nothing to undo is undone, too.
        if (request.did == "nothing") facts.undone_at = std::min(facts.undone_at, at);
      }
    }
    for (const Effect& effect : saga_.effects) {
      if (effect.step != known.name) continue;
      if (effect.undo) {
        note(effect.at, facts.first_undo, facts.undone_at, facts.undone, true);
      } else {
        note(effect.at, facts.first_try, facts.done_at, facts.done, true);
      }
    }
    return facts;
  }

  bool completed() const { return saga_.state == "Completed"; }

  bool Ends() {
    if (!completed() && saga_.state != "Failed" && saga_.state != "Cancelled") {
      Complain("is in no final state: {}", saga_.error);
      return false;
    }
    if (saga_.dead) Complain("is a dead letter: {}", saga_.error);
    for (const Step& step : saga_.steps) {
      if (step.state == "InFlight") Complain("{} is in flight", step.name);
      if (step.in_doubt && completed()) Complain("{} is in doubt", step.name);
    }
    return true;
  }

  void Effects(size_t i) {
    const Known& known = KnownSteps()[i];
    const Facts& facts = facts_[i];
    const std::string& state = saga_.steps[i].state;
    if (saga_.steps[i].name != known.name) Complain("step {} is {}", i, saga_.steps[i].name);
    if (completed() && state != "Succeeded" && state != "Skipped") {
      Complain("{} is {}", known.name, state);
    }
    if (known.where == Known::Where::kNowhere) {
      if (completed() && (state == "Succeeded") != plan_.approve) {
        Complain("{} is {}", known.name, state);
      }
      return;
    }
    if (facts.done > 1) Complain("{} was done {} times", known.name, facts.done);
    if (facts.undone > 1) Complain("{} was undone {} times", known.name, facts.undone);
    if (facts.undone > facts.done) Complain("{} was undone and never done", known.name);
    if (state == "Succeeded" && facts.done == 0) {
      Complain("{} has succeeded and was never done", known.name);
    }
    if (completed() && facts.first_undo != kNever) Complain("{} was undone", known.name);
    const bool stands = facts.done > facts.undone;
    if (!completed() && stands) {
      Complain("{} was done, is {}, and was not undone", known.name, state);
    }
    if (state == "Compensated" && stands) Complain("{} still stands", known.name);
    if (state == "Skipped") Complain("{} was skipped", known.name);
  }

  void Order() {
    for (size_t later = 0; later < facts_.size(); ++later) {
      for (size_t earlier = 0; earlier < later; ++earlier) {
        const Known& first = KnownSteps()[earlier];
        const Known& second = KnownSteps()[later];
        const Facts& a = facts_[earlier];
        const Facts& b = facts_[later];
        if (first.where == Known::Where::kNowhere || second.where == Known::Where::kNowhere)
          continue;
        if (first.group != second.group && b.first_try < a.done_at) {
          Complain("{} began before {} was done", second.name, first.name);
        }
        if (!second.undo.empty() && (b.done > 0 || b.first_undo < kNever) &&
            a.first_undo < kNever && a.first_undo < b.undone_at) {
          Complain("{} was undone before {} was", first.name, second.name);
        }
      }
    }
  }

  // How many answers a step's forward requests got that say nothing good.
  int BadAnswers(const std::string& step) const {
    return static_cast<int>(std::count_if(
        saga_.requests.begin(), saga_.requests.end(),
        [&](const Request& request) { return request.path == step && request.answer != "ok"; }));
  }

  void Reason() {
    if (completed()) {
      if (!plan_.refuse.empty()) Complain("{} was to refuse it", plan_.refuse);
      return;
    }
    if (saga_.state == "Cancelled") {
      if (!plan_.may_cancel) Complain("nobody asked to cancel it");
      return;
    }
    if (saga_.state != "Failed") return;
    const std::string& at = saga_.failed_step;
    if (at == plan_.refuse && !at.empty()) return;
    if (at == "charge" && plan_.said_failed) return;
    const auto step = std::find_if(saga_.steps.begin(), saga_.steps.end(),
                                   [&](const Step& each) { return each.name == at; });
    if (step == saga_.steps.end()) return Complain("it failed at '{}': {}", at, saga_.error);
    // As often as it may be tried, and the ledger does not say otherwise.
    if (step->attempts >= kMaxAttempts && (at == "reserve" || at == "ship")) return;
    if (step->attempts >= kMaxAttempts && BadAnswers(at) * 2 >= kMaxAttempts) return;
    Complain("failed at {} without reason: {} attempts, {} bad answers: {} {}", at, step->attempts,
             BadAnswers(at), step->last_error, saga_.error);
  }

  void Repetitions() {
    std::map<std::string, const Request*> last;
    for (const Request& request : saga_.requests) {
      if (request.key.find(saga_.id) == std::string::npos) {
        Complain("{} came with the key {}", request.path, request.key);
      }
      const Request*& before = last[request.path];
      if (before != nullptr) {
        if (before->key != request.key) {
          Complain("{} came with the keys {} and {}", request.path, before->key, request.key);
        }
        if (request.path == "charge" && before->answer != "429") {
          Complain("charge came again after '{}'", before->answer);
        }
        const bool said = IsWhole(before->answer) || before->answer == "refused";
        if (said && !attacked_(before->at, request.at)) {
          Complain("{} came again {} ms after the answer '{}', without an attack", request.path,
                   request.at - before->at, before->answer);
        }
      }
      before = &request;
    }
  }

  void Audit() {
    std::map<std::string, std::string> now;
    for (const Change& change : saga_.changes) {
      if (change.from == change.to) continue;
      const auto [at, first] = now.emplace(change.step, change.from);
      if (!first && at->second != change.from) {
        Complain("audit: '{}' went from {} to {} when it was {}", change.step, change.from,
                 change.to, at->second);
      }
      at->second = change.to;
    }
    if (now[""] != saga_.state) Complain("audit: ends with the saga {}", now[""]);
    for (const Step& step : saga_.steps) {
      const auto at = now.find(step.name);
      const std::string& known = at == now.end() ? "Ready" : at->second;
      if (known != step.state)
        Complain("audit: {} ends {} and is {}", step.name, known, step.state);
    }
  }

  const Saga& saga_;
  const Plan& plan_;
  const std::function<bool(int64_t, int64_t)> attacked_;
  std::vector<Facts> facts_;
  std::vector<std::string> complaints_;
};

}  // namespace

const std::vector<Known>& KnownSteps() {
  using enum Known::Where;
  static const std::vector<Known> steps = {{"reserve", kDatabase, "release", 0, true},
                                           {"charge", kLedger, "refund", 1, false},
                                           {"pack", kLedger, "unpack", 2, true},
                                           {"label", kLedger, "unlabel", 2, true},
                                           {"announce", kDatabase, "withdraw", 3, true},
                                           {"approve", kNowhere, "", 4, true},
                                           {"ship", kDatabase, "", 5, true}};
  return steps;
}

bool Verdict::Attacked(int64_t from, int64_t to) const {
  return std::any_of(attacks_.begin(), attacks_.end(), [&](const Attack& attack) {
    return attack.begin <= to && attack.end + kAftermath >= from;
  });
}

std::vector<std::string> Verdict::Judge(const Saga& saga, const Plan& plan) const {
  return Case(saga, plan, [this](int64_t from, int64_t to) { return Attacked(from, to); }).Judge();
}

bool Verdict::DoubtIsExplained(const Saga& saga, int64_t since) const {
  for (const Request& request : saga.requests) {
    if (request.path == "charge" && IsDoubtful(request.answer)) return true;
  }
  return Attacked(since, since + kAnswerTravels);
}

}  // namespace lockstep::sagachaos
