#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/print.h"
#include "platform/config/config.h"
#include "platform/status.h"
#include "pubsub/config.h"
#include "pubsub/provision/plan.h"
#include "pubsub/transport.h"

namespace lockstep::ctl {
namespace {

using pubsub::IamCommands;
using pubsub::MakePlan;
using pubsub::Plan;
using pubsub::Step;
using pubsub::Wanted;

struct ProvisionOptions {
  bool print_iam = false;
};

absl::Status ReadFile(const std::string& file, pubsub::PubsubOptions& pubsub, Wanted& wanted) {
  if (file.empty()) {
    return InvalidArgument(
        "name the file that lists topics and subscriptions with --config; docs/provisioning.md "
        "shows one");
  }
  RETURN_IF_ERROR(Config::Read({.file = file}, [&](ConfigSection& config) {
    config.Section("pubsub", [&](ConfigSection& section) { Bind(section, pubsub); });
    Bind(config, wanted);
  }));
  wanted.project = pubsub.project;
  return pubsub.Validate();
}

Json StepJson(const Step& step) {
  return {{"action", step.action}, {"what", step.what}, {"detail", step.detail}};
}

void PrintPlan(const Plan& plan, std::FILE* to) {
  for (const std::string& warning : plan.warnings) Print(stderr, "warning: {}\n", warning);
  if (plan.steps.empty()) Print(to, "Everything is as the file wants it.\n");
  for (const Step& step : plan.steps) {
    Print(to, "  {} {} ({})\n", step.action, step.what, step.detail);
  }
}

absl::Status Provision(const Context& context, const ProvisionOptions& options) {
  pubsub::PubsubOptions pubsub;
  Wanted wanted;
  RETURN_IF_ERROR(ReadFile(context.config, pubsub, wanted));
  if (options.print_iam) {
    const auto commands = IamCommands(wanted);
    return context.Answer(
        commands, [&] { Print("{}\n", Lines{fmt::format("{}", fmt::join(commands, "\n"))}); });
  }
  ASSIGN_OR_RETURN(const auto transport, pubsub::MakeTransport(pubsub.transport));
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(wanted, transport->admin()));
  Json answer = {
      {"steps", ListOf(plan.steps, StepJson)}, {"warnings", plan.warnings}, {"applied", false}};
  if (plan.steps.empty()) return context.Answer(answer, [&] { PrintPlan(plan, stdout); });
  if (!context.json) PrintPlan(plan, context.plan_out());
  RETURN_IF_ERROR(context.Confirm(
      fmt::format("{} changes in project {}.", plan.steps.size(), wanted.project), answer));
  for (const Step& step : plan.steps) {
    const absl::Status done = step.run(transport->admin());
    if (!done.ok()) {
      return MakeStatus(done.code(),
                        "can't {} {}: {}. What was done before it stays; repeat the command after "
                        "mending the cause",
                        step.action, step.what, MessageOf(done));
    }
  }
  answer["applied"] = true;
  return context.Answer(answer, [&] { Print("Done: {} changes.\n", plan.steps.size()); });
}

}  // namespace

void AddProvision(const Command& program) {
  const auto o = std::make_shared<ProvisionOptions>();
  program
      .Add("provision",
           "make the topics, subscriptions and schemas that the file given with --config lists; "
           "shows what it will do first, does nothing twice",
           o, Provision)
      .With({{"--print-iam", &o->print_iam,
              "print the commands that give publisher and runner their least rights"}})
      .Changes(Command::kNoReason);
}

}  // namespace lockstep::ctl
