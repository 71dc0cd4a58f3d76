#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ctl/reset_plan.h"
#include "projections/projector.h"

namespace lockstep::ctl {

// The dry run of a reset, for people and for scripts.
void PrintPlan(const std::string& group, const ResetPlan& plan, offsets::ResetMode mode,
               const projections::Projector& projector);
nlohmann::ordered_json PlanJson(const std::string& group, const ResetPlan& plan,
                                offsets::ResetMode mode, const projections::Projector& projector);

}  // namespace lockstep::ctl
