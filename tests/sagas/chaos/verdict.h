#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/sagas/chaos/records.h"

namespace lockstep::sagachaos {

// The steps of the saga under attack (tests/sagas/chaos/saga.yaml), as the judge sees them.
struct Known {
  enum class Where { kDatabase, kLedger, kNowhere };
  std::string name;
  Where where;
  std::string undo;      // how its undoing is called; empty = it has none
  int group;             // steps of one group run side by side
  bool may_be_repeated;  // false: not idempotent
};
const std::vector<Known>& KnownSteps();

// Judges one saga at a time by what happened outside of it: by the participant's ledger and by the
// effects in the database. What it holds it to:
//   ends        Completed, Failed or Cancelled; no step in flight or in doubt; no dead letter
//   once        no step and no undoing has had its effect twice
//   states      a step that Succeeded was done and not undone; one that is Ready, Skipped or Failed
//               has no effect that stands
//   whole       Completed: every step, and nothing was undone. Failed or Cancelled: whatever was
//               done and can be undone was undone
//   order       no step began before those before it were done; no undoing before those of later
//               steps were done
//   reason      it failed at the step that was to refuse it, or where the ledger shows answers bad
//               enough; it was cancelled because somebody asked
//   not again   whoever may not be asked twice was asked again only after "429, not done"
//   why again   a request after a whole answer or a refusal, only because of an attack
//   audit       the changes of state follow each other from the first state to the one that stands
class Verdict {
 public:
  // REQUIRES: `attacks` in the order of their begin.
  explicit Verdict(std::vector<Attack> attacks) : attacks_(std::move(attacks)) {}

  // What is wrong, as sentences; empty = nothing.
  std::vector<std::string> Judge(const Saga& saga, const Plan& plan) const;

  // Whether a charge in doubt has a reason: an answer that says nothing, or an attack while it was
  // under way. `since` is when the step was begun.
  bool DoubtIsExplained(const Saga& saga, int64_t since) const;

 private:
  bool Attacked(int64_t from, int64_t to) const;

  std::vector<Attack> attacks_;
};

}  // namespace lockstep::sagachaos
