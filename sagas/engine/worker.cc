#include "sagas/engine/worker.h"

#include <algorithm>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/sql_error.h"
#include "sagas/engine/key_settler.h"

namespace lockstep::sagas {
namespace {

// One whose definition can't be read is looked at again after that.
constexpr Millis kUnreadable{60'000};
// Where a place is waited for, and the word of it was lost.
constexpr Millis kPlaceLook{1'000};
// So many of those that were given back for a moment are looked at in time.
constexpr size_t kMostSoon = 1'000;
// One whose idempotency key is in flight.
constexpr Millis kKeyLook{1'000};
// One whose row somebody has locked, in a transaction of his own: that is no fault.
constexpr Millis kLockedLook{1'000};
constexpr std::string_view kLockNotAvailable = "55P03";

SteadyTime Now() { return Clock::System().Steady(); }

}  // namespace

void Worker::Run() {
  while (const HeldPtr held = parts_.hand.Take(parts_.stop.get_token())) {
    if (parts_.crashed) return;
    try {
      CarryOn(held);
    } catch (const SeamCrash&) {
      parts_.crashed = true;
      parts_.stop.request_stop();
      parts_.wake.Wake();
      return;
    }
  }
}

void Worker::CarryOn(const HeldPtr& held) {
  while (!parts_.crashed) {
    std::optional<SteadyTime> look_at;
    auto next = absl::StatusOr<Next>(Next::kDecide);
    if (absl::Status opened = session_.Open(); !opened.ok()) {
      next = opened;
    } else {
      next = Step(held, &look_at);
    }
    if (!next.ok() && IsLost(next.status())) {
      held->stale = true;
      continue;
    }
    if (!next.ok()) return PutOff(held, next.status());
    backoff_.Reset();
    // Whichever worker it was: this one's session works.
    if (parts_.failing.exchange(false)) parts_.events.OnDatabase(absl::OkStatus());
    if (*next == Next::kDecide) continue;
    if (*next == Next::kRest) parts_.hand.Rest(held, look_at);
    return;
  }
}

void Worker::PutOff(const HeldPtr& held, const absl::Status& fault) {
  held->stale = true;
  if (postgres::SqlState(fault) == kLockNotAvailable) {
    return parts_.hand.Rest(held, Now() + kLockedLook);
  }
  parts_.failing = true;
  parts_.events.OnDatabase(fault);
  parts_.hand.Rest(held, Now() + backoff_.Next());
}

absl::StatusOr<Worker::Next> Worker::Step(const HeldPtr& held, std::optional<SteadyTime>* look_at) {
  Hand::News news = parts_.hand.TakeNews(*held);
  std::ranges::move(news.answers, std::back_inserter(held->unsaved));
  if (news.look) held->stale = true;
  if (!news.lost && held->stale) {
    ASSIGN_OR_RETURN(const bool ours, Read(*held));
    news.lost = !ours;
  }
  if (news.lost) {
    parts_.events.OnLost(held->id);
    Drop(held);
    return Next::kOver;
  }
  if (const absl::Status known = NeedDefinition(*held); !known.ok()) {
    if (postgres::Classify(known) == postgres::ErrorClass::kTransient) return known;
    log::Error("the definition of a saga can't be read; it is looked at again",
               {{"saga", held->id},
                {"definition", held->saga.definition},
                {"version", held->saga.version},
                {"error", known}});
    return GiveBack(held, held->Now() + kUnreadable);
  }
  if (!held->unsaved.empty()) {
    RETURN_IF_ERROR(saver_.SaveAnswer(*held, held->unsaved.front()));
    held->unsaved.erase(held->unsaved.begin());
    return Next::kDecide;
  }
  return Follow(held, Decide(*held->definition, held->saga, held->Now(), held->StepsHere()),
                look_at);
}

// False = it is another's by now, or has ended.
absl::StatusOr<bool> Worker::Read(Held& held) {
  parts_.Seam("load");
  ASSIGN_OR_RETURN(auto loaded, session_.store().Load({held.lease}));
  if (loaded.empty()) return false;
  held.saga = std::move(loaded.front().saga);
  held.lease = std::move(loaded.front().lease);
  held.read_at = loaded.front().now;
  held.read_steady = Now();
  held.stale = false;
  parts_.hand.Seen(held);
  // What is not in flight any more is not waited for.
  for (const int step : held.StepsHere()) {
    const StoredStep& stored = held.saga.steps[static_cast<size_t>(step)];
    if (stored.state != StepState::kInFlight || stored.in_doubt) held.Forget(step);
  }
  return true;
}

absl::Status Worker::NeedDefinition(Held& held) {
  if (held.definition != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(held.definition, parts_.DefinitionOf(session_.connection(), held.saga.definition,
                                                        held.saga.version));
  return absl::OkStatus();
}

absl::StatusOr<Worker::Next> Worker::Follow(const HeldPtr& held, const Decision& decision,
                                            std::optional<SteadyTime>* look_at) {
  if (decision.changes()) {
    RETURN_IF_ERROR(saver_.Save(*held, decision));
    return OverIfEnded(held);
  }
  const bool more = !decision.begin.empty() || !decision.ask_key.empty();
  if (!parts_.draining) {
    if (!decision.ask_key.empty()) return Settle(*held, decision.ask_key.front(), look_at);
    if (!decision.begin.empty()) return Begin(held, decision, look_at);
  }
  if (held->here.empty()) {
    return GiveBack(held, more ? std::optional(held->Now()) : decision.look_at);
  }
  if (decision.look_at) {
    *look_at = Now() + std::chrono::ceil<Millis>(*decision.look_at - held->Now());
  }
  return Next::kRest;
}

absl::StatusOr<Worker::Next> Worker::Settle(Held& held, int step,
                                            std::optional<SteadyTime>* look_at) {
  parts_.Seam("ask the key");
  ASSIGN_OR_RETURN(const std::optional<Outcome> outcome, AskKey(session_.connection(), held, step));
  if (!outcome) {
    *look_at = Now() + kKeyLook;
    return Next::kRest;
  }
  RETURN_IF_ERROR(saver_.SaveTry(held, held.saga.steps[static_cast<size_t>(step)], *outcome, 0));
  return Next::kDecide;
}

absl::StatusOr<Worker::Next> Worker::Begin(const HeldPtr& held, const Decision& decision,
                                           std::optional<SteadyTime>* look_at) {
  // Calls first, so that they are under way while this thread does what can't be left to others.
  ASSIGN_OR_RETURN(const bool begun, calls_.Begin(*held, decision.begin));
  if (begun) return Next::kDecide;
  for (const Decision::Begin& begin : decision.begin) {
    const ActionKind kind = ActionOf(*held->definition, begin.step, begin.undo).kind;
    if (kind != ActionKind::kSql && kind != ActionKind::kBus) continue;
    const Place place = parts_.tags.Take(TagOf(*held, begin.step), held->id);
    if (place == nullptr) continue;
    RETURN_IF_ERROR(transactions_.Run(*held, begin));
    return OverIfEnded(held);
  }
  *look_at = Now() + kPlaceLook;
  return Next::kRest;
}

absl::StatusOr<Worker::Next> Worker::GiveBack(const HeldPtr& held, std::optional<WallTime> run_at) {
  parts_.Seam("release");
  ASSIGN_OR_RETURN(const bool ours, session_.store().Release(held->lease, run_at));
  parts_.Seam("released");
  if (!ours) {
    held->stale = true;
    return Next::kDecide;
  }
  if (run_at) {
    const SteadyTime at = Now() + std::chrono::ceil<Millis>(*run_at - held->Now());
    if (at < Now() + parts_.options.poll_interval) {
      const std::scoped_lock lock(parts_.mu);
      if (parts_.soon.size() < kMostSoon) parts_.soon.push_back(at);  // else the poll finds it
    }
  }
  Drop(held);
  return Next::kOver;
}

Worker::Next Worker::OverIfEnded(const HeldPtr& held) {
  if (!held->saga.ended()) return Next::kDecide;
  Drop(held);
  return Next::kOver;
}

void Worker::Drop(const HeldPtr& held) {
  for (const int step : held->StepsHere()) held->Forget(step);
  parts_.hand.Drop(held);
}

}  // namespace lockstep::sagas
