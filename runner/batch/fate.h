#pragma once

namespace lockstep::runner {

// What becomes of an event. PlanKey decides whether it waits, is applied or dies; the inbox finds
// the duplicates; the projector's answer tells the superseded and the ignored from the applied.
enum class Fate {
  kWaitsForPredecessor,  // parked: a version before it is missing
  kWaitsForDeadLetter,   // parked: a version before it is dead
  kApplied,
  kSuperseded,  // every table had a newer version already
  kIgnored,     // by declaration
  kDuplicate,   // came before
  kDead,
  kDeadAndBlocking,  // later versions wait for it
};

constexpr bool Waits(Fate fate) {
  return fate == Fate::kWaitsForPredecessor || fate == Fate::kWaitsForDeadLetter;
}
constexpr bool Dies(Fate fate) { return fate == Fate::kDead || fate == Fate::kDeadAndBlocking; }

}  // namespace lockstep::runner
