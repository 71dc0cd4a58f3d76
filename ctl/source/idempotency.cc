// lockstepctl idempotency: keys of requests that must not be done twice.
#include <fmt/format.h>

#include "ctl/command/command.h"
#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/command/table.h"
#include "idempotency/keys.h"
#include "platform/status.h"

namespace lockstep::ctl {
namespace {

struct IdempotencyOptions {
  std::string key, tenant;
  idempotency::KeyFilter filter;
  bool force = false;
  int batch = 1'000;

  // No tenant has an empty name.
  std::optional<std::string> of_tenant() const {
    return tenant.empty() ? std::nullopt : std::optional(tenant);
  }
};

std::string KeyState(const Json& key) {
  std::string state = TextOf(key["state"]);
  if (key["expired"].get<bool>()) return state + " (expired)";
  if (key["lapsed"].get<bool>()) return state + " (lapsed)";
  return state;
}

absl::Status ListKeys(const Context& context, const IdempotencyOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  idempotency::KeyFilter filter = options.filter;
  filter.tenant = options.of_tenant();
  ASSIGN_OR_RETURN(const Json keys, idempotency::ListKeys(*connection, filter));
  return context.Answer(keys, [&] {
    if (keys.empty()) return Print("No such keys.\n");
    using enum Table::Column::Kind;
    Table table({{"KEY"},
                 {"TENANT"},
                 {"STATE"},
                 {"ATTEMPTS", kNumber},
                 {"UPDATED", kTime},
                 {"ERROR", kCut}});
    for (const Json& key : keys) {
      const std::string state = KeyState(key);
      table.Add({key["key"], key["tenant"], Table::Cell(state, StyleOf(state)), key["attempts"],
                 key["updated_at"], key["error"]});
    }
    table.Print();
    if (static_cast<int>(keys.size()) == filter.limit) {
      Print("The first {}; --limit shows more.\n", filter.limit);
    }
  });
}

absl::Status ShowKey(const Context& context, const IdempotencyOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const Json key,
                   idempotency::ShowKey(*connection, options.of_tenant(), options.key));
  return context.Answer(key, [&] { PrintMembers(key); });
}

absl::Status ReleaseKey(const Context& context, const IdempotencyOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  ASSIGN_OR_RETURN(const Json key,
                   idempotency::ShowKey(*connection, options.of_tenant(), options.key));
  RETURN_IF_ERROR(context.Confirm(fmt::format(
      "This forgets the key {} ({}): the request may be done again.", options.key, KeyState(key))));
  ASSIGN_OR_RETURN(const std::string state,
                   idempotency::ReleaseKey(*connection, {.tenant = options.of_tenant(),
                                                         .key = options.key,
                                                         .actor = OperatorOfThis(),
                                                         .note = context.reason,
                                                         .force = options.force}));
  return context.Answer(
      {{"released", options.key}, {"tenant", OrNull(options.of_tenant())}, {"was", state}},
      [&] { Print("{} is free; it was {}\n", options.key, state); });
}

absl::Status CleanKeys(const Context& context, const IdempotencyOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  RETURN_IF_ERROR(context.Announce("This deletes keys that have expired."));
  ASSIGN_OR_RETURN(const int64_t gone, idempotency::CleanKeys(*connection, options.batch));
  return context.Answer({{"cleaned", gone}}, [&] { Print("{} expired keys are gone\n", gone); });
}

}  // namespace

void AddIdempotency(const Command& program) {
  const Command keys = program.AddGroup(
      "idempotency", "keys of requests that must not be done twice: docs/idempotency.md");
  const auto o = std::make_shared<IdempotencyOptions>();
  const Option tenant = {"--tenant", &o->tenant, "the key's tenant; without it, keys of no tenant"};
  const Option key = {"key", &o->key, "the key", Option::kRequired};
  keys.Add("list", "what is in flight, done and failed, the youngest first", o, ListKeys)
      .With({{"--tenant", &o->tenant, "of this tenant alone"},
             {"--prefix", &o->filter.prefix, "keys that begin with this"},
             {"--state",
              &o->filter.state,
              "InFlight, Succeeded or Failed",
              Option::kOptional,
              {"InFlight", "Succeeded", "Failed"}},
             {"--limit", &o->filter.limit, "keys at most", Option::kShowsDefault, {}, 1'000'000}});
  keys.Add("show", "one of them, and what was done to it by hand", o, ShowKey).With({key, tenant});
  keys.Add("release", "forget a key, so that its request may be done again", o, ReleaseKey)
      .With({key,
             tenant,
             {"--force", &o->force, "although its caller may be at work; its end is refused"}})
      .Changes();
  keys.Add("clean", "delete what has expired", o, CleanKeys)
      .With({{"--batch", &o->batch, "keys per transaction", Option::kShowsDefault, {}, 100'000}})
      .Changes(Command::kNoReason);
}

}  // namespace lockstep::ctl
