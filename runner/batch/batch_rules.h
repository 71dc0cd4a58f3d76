#pragma once

#include <cstdint>

#include "projections/model/projector.h"
#include "runner/batch/key_plan.h"

namespace lockstep::runner {

enum class OnPoison { kPark, kSkip };
enum class OnGap { kDeclared, kPark, kApply };

// How a group decides about order; see GroupOptions for the words of the configuration.
struct BatchRules {
  OnPoison on_poison = OnPoison::kPark;
  OnGap on_gap = OnGap::kDeclared;

  // Whether key_state follows every version of the group.
  bool TracksVersions(const projections::Projector& projector) const {
    return on_gap == OnGap::kPark || (on_gap == OnGap::kDeclared && projector.MayPark());
  }
  bool ParksOnGap(const projections::Projector& projector, const projections::Event& event) const {
    return on_gap == OnGap::kPark || (on_gap == OnGap::kDeclared && projector.ParksOnGap(event));
  }
  KeyRules ForKeys(const projections::Projector& projector) const {
    return {.track_versions = TracksVersions(projector),
            .park_on_poison = on_poison == OnPoison::kPark};
  }
};

}  // namespace lockstep::runner
