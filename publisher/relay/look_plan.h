#pragma once

#include <optional>
#include <string>

#include "platform/clock.h"
#include "publisher/outbox/outbox_store.h"

namespace lockstep::publisher {

// Whether a relay looks for rows, and where its next claim looks from. Sequence order is not commit
// order, so a look starts at the first pending row, as a rule. Under load, claims go on behind one
// another and come back to the start every so often.
//
// Where looking from the start is slow (a long snapshot, such as a dump's, keeps dead tuples in the
// index), a look starts at a floor, a second back, and at the start only so often that it takes a
// tenth of the time. What lies below the floor (a slow transaction's row, one that was given back)
// waits for that. Pure data of the relay's thread.
class LookPlan {
 public:
  // The place for the next claim, which moves it on.
  ClaimCursor& Next(SteadyTime now);

  // What the claim that Next was for came to. `full`: as many candidates as it asked for. `floor`:
  // the claim's.
  void Looked(SteadyTime began, SteadyTime ended, bool full, const std::string& floor);

  // There may be rows that the last look did not see. So it is at first.
  void LookAgain() { wanted_ = true; }
  bool wanted() const { return wanted_; }
  // The last claim was full.
  bool more() const { return going_on_; }

  // The last look that came to the end had begun at the start: there was nothing else.
  bool whole() const { return whole_; }
  // Where it had not: until one that does is due.
  std::optional<Millis> UntilStart(SteadyTime now) const;

  // Where a look that is not due from the start begins; the start itself unless that is slow.
  ClaimCursor floor() const { return StartIsSlow() ? floor_ : ClaimCursor(); }

 private:
  bool StartIsSlow() const;
  Millis Patience() const;

  ClaimCursor cursor_;
  ClaimCursor floor_;
  bool wanted_ = true;
  bool going_on_ = false;    // the last claim was full: the next one goes on behind it
  bool begins_ = false;      // the claim under way does not go on behind another …
  bool from_start_ = false;  // … and this is where it, or the first of its row, began
  bool whole_ = false;
  bool measured_ = false;
  SteadyTime last_start_;
  Millis start_cost_{0};
};

}  // namespace lockstep::publisher
