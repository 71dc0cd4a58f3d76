// lockstepctl saga check, register, definitions, start.
#include <fmt/format.h>

#include <fstream>

#include "ctl/command/operator.h"
#include "ctl/command/print.h"
#include "ctl/saga/saga.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "sagas/definition/definition.h"

namespace lockstep::ctl {
namespace {

struct DefinitionOptions {
  std::vector<std::string> files;
  std::string name, input, tenant, key, ttl;
  int version = 0;
};

absl::StatusOr<std::vector<sagas::Definition>> LoadAll(const std::vector<std::string>& files) {
  std::vector<sagas::Definition> definitions;
  std::string wrong;
  for (const std::string& file : files) {
    auto definition = sagas::LoadDefinition(file);
    if (definition.ok()) {
      definitions.push_back(*std::move(definition));
    } else {
      wrong += fmt::format("\n{}", MessageOf(definition.status()));
    }
  }
  if (!wrong.empty()) return InvalidArgument("not registered can be:{}", wrong);
  return definitions;
}

Json Summary(const sagas::Definition& definition) {
  Json steps = Json::array();
  for (const sagas::Step& step : definition.steps) steps.push_back(step.name);
  return {{"saga", definition.name},
          {"version", definition.version},
          {"hash", definition.Hash()},
          {"steps", steps}};
}

absl::Status Check(const Context& context, const DefinitionOptions& options) {
  ASSIGN_OR_RETURN(const auto definitions, LoadAll(options.files));
  return context.Answer(ListOf(definitions, Summary), [&] {
    for (const sagas::Definition& definition : definitions) {
      Print("{} version {}: {} steps, sound ({})\n", definition.name, definition.version,
            definition.steps.size(), definition.Hash().substr(0, 12));
    }
  });
}

absl::Status Register(const Context& context, const DefinitionOptions& options) {
  ASSIGN_OR_RETURN(const auto definitions, LoadAll(options.files));
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  Json answer = Json::array();
  for (const sagas::Definition& definition : definitions) {
    ASSIGN_OR_RETURN(const bool fresh, sagas::Register(*connection, definition, OperatorOfThis()));
    answer.push_back(Summary(definition));
    answer.back()["new"] = fresh;
    if (!context.json) {
      Print(
          "{} version {} {}\n", definition.name, definition.version,
          fresh ? "is registered: sagas started from now on are of it" : "was registered already");
    }
  }
  return context.Answer(answer, [] {});
}

absl::Status Definitions(const Context& context, const DefinitionOptions& options) {
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  if (options.version > 0) {
    if (options.name.empty()) return InvalidArgument("--version is of one definition: name it");
    ASSIGN_OR_RETURN(const auto definition,
                     sagas::GetDefinition(*connection, options.name, options.version));
    PrintJson(definition.ToJson());  // it is YAML, too
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const auto registered, sagas::ListDefinitions(*connection, options.name));
  const auto json = [](const sagas::Registered& one) {
    Json entry = Summary(one.definition);
    entry["hash"] = one.hash;
    entry["open"] = one.open;
    entry["registered_at"] = FormatTimestamp(one.registered_at);
    entry["registered_by"] = one.registered_by;
    entry["definition"] = one.definition.ToJson();
    return entry;
  };
  return context.Answer(ListOf(registered, json), [&] {
    if (registered.empty()) return Print("No such definitions.\n");
    Print("{:<24}  {:>7}  {:>5}  {:>6}  {:<12}  {:<27}  {}\n", "SAGA", "VERSION", "STEPS", "OPEN",
          "HASH", "REGISTERED", "BY");
    for (const sagas::Registered& one : registered) {
      Print("{:<24}  {:>7}  {:>5}  {:>6}  {:<12}  {:<27}  {}\n", one.definition.name,
            one.definition.version, one.definition.steps.size(), one.open, one.hash.substr(0, 12),
            FormatTimestamp(one.registered_at), one.registered_by);
    }
  });
}

absl::Status Start(const Context& context, const DefinitionOptions& options) {
  sagas::NewSaga saga;
  saga.definition = options.name;
  ASSIGN_OR_RETURN(saga.input, ReadJson("--input", options.input.empty() ? "{}" : options.input));
  if (!options.tenant.empty()) saga.tenant = options.tenant;
  if (!options.key.empty()) saga.key = options.key;
  if (!options.ttl.empty()) {
    const auto ttl = ParseDuration(options.ttl);
    if (!ttl.ok()) return InvalidArgument("--ttl: {}", MessageOf(ttl.status()));
    saga.ttl = *ttl;
  }
  ASSIGN_OR_RETURN(const auto connection, context.Connect());
  RETURN_IF_ERROR(sagas::ActAs(*connection, OperatorOfThis()));
  ASSIGN_OR_RETURN(const std::string id, sagas::StartSaga(*connection, saga));
  return context.Answer({{"id", id}}, [&] { Print("{}\n", id); });
}

}  // namespace

void AddSagaDefinitions(const Command& saga) {
  const auto o = std::make_shared<DefinitionOptions>();
  const Option files = {"file", &o->files, "definitions, as YAML", Option::kRequired};
  saga.Add("check", "read definitions and list every mistake; no database is asked", o, Check)
      .With({files});
  saga.Add("register", "make definitions known: the highest version is what is started", o,
           Register)
      .With({files});
  saga.Add("definitions", "what is registered, and how many sagas of it have not ended", o,
           Definitions)
      .With({{"name", &o->name, "this one alone"},
             {"--version",
              &o->version,
              "print this version itself, as JSON (which is YAML)",
              Option::kOptional,
              {},
              2'147'483'647}});
  saga.Add("start", "start a saga, as services do with saga_start; prints its id", o, Start)
      .With({{"name", &o->name, "the definition's name", Option::kRequired},
             {"--input", &o->input, "JSON, or @FILE"},
             {"--key", &o->key, "the same call again with this key answers the same saga"},
             {"--tenant", &o->tenant, "for whom it is"},
             {"--ttl", &o->ttl, "in place of the definition's timeout, such as 2h"}});
}

}  // namespace lockstep::ctl
