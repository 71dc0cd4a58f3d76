#include "ctl/command/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "ctl/command/help.h"
#include "ctl/command/print.h"
#include "platform/status.h"

namespace lockstep::ctl {

const CommandNode* CommandNode::Find(std::string_view command) const {
  const auto found =
      std::ranges::find_if(commands, [&](const auto& one) { return one->name == command; });
  return found == commands.end() ? nullptr : found->get();
}

Command Command::AddNode(const std::string& name, const std::string& help) const {
  CLI::App* const command = app_->add_subcommand(name, help);
  CommandNode* const node =
      node_->commands.emplace_back(std::make_shared<CommandNode>(CommandNode{.name = name})).get();
  node->help = help;
  node->above = node_;
  command->formatter_fn(
      [node](const CLI::App*, std::string, CLI::AppFormatMode) { return HelpText(*node, stdout); });
  return {*command, *context_, *node};
}

Command Command::Add(const std::string& name, const std::string& help, Run run) const {
  const Command made = AddNode(name, help);
  made.node_->runs = true;
  made.app_->callback(
      [command = made.app_, node = made.node_, context = context_, run = std::move(run)] {
        if (!command->get_subcommands().empty()) return;  // one below it was meant
        context->reason_required = node->reason_required;
        const absl::Status done = run(*context);
        if (done.ok() || IsDryRun(done)) return;
        Print(stderr, "lockstepctl: {}\n", Lines{MessageOf(done)});
        throw CLI::RuntimeError(ExitStatus(done));
      });
  return made;
}

Command Command::AddGroup(const std::string& name, const std::string& help) const {
  const Command group = AddNode(name, help);
  group.app_->require_subcommand(1);
  return group;
}

const Command& Command::With(const std::vector<Option>& options) const {
  for (const Option& option : options) {
    node_->options.push_back(option);
    CLI::Option* const made = std::visit(
        [&](auto* value) {
          if constexpr (std::is_same_v<decltype(value), bool*>) {
            return app_->add_flag(option.name, *value, option.help);
          } else {
            return app_->add_option(option.name, *value, option.help);
          }
        },
        option.value);
    if (!option.choices.empty()) made->check(CLI::IsMember(option.choices));
    if (option.most > 0) made->check(CLI::Range(1, option.most));
    if (option.need == Option::kRequired) made->required();
    // "--id 1 2" would take an argument that follows.
    if (option.name.starts_with('-') && made->get_items_expected_max() > 1)
      made->allow_extra_args(false);
  }
  return *this;
}

const Command& Command::Changes(Reason reason) const {
  node_->changes = true;
  if (reason == kNoReason) return *this;
  node_->reason_required = reason == kReasonRequired;
  return With({{"--reason", &context_->reason,
                node_->reason_required ? "why; it goes into the audit, and has to be said"
                                       : "why; it goes into the audit"}});
}

}  // namespace lockstep::ctl
