#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "operations/reset_plan.h"
#include "projections/model/projector.h"

namespace lockstep::ctl {

using operations::PlanReset;
using operations::ResetPlan;
using operations::ResetWish;

// The dry run of a reset, for people and for scripts.
void PrintPlan(const std::string& group, const ResetPlan& plan, offsets::ResetMode mode,
               const projections::Projector& projector);
nlohmann::ordered_json PlanJson(const std::string& group, const ResetPlan& plan,
                                offsets::ResetMode mode, const projections::Projector& projector);

}  // namespace lockstep::ctl
