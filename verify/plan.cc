#include "verify/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "envelope/event.h"
#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::verify {
namespace {

using projections::Handler;
using projections::ValueSource;
using publisher::Declaration;

std::string ColumnOf(const std::string& name) { return "r." + postgres::QuoteIdentifier(name); }

// The first that takes such an event: the one that a snapshot meets.
const Handler* HandlerOf(const projections::Route& route, int schema_version) {
  const auto found = std::ranges::find_if(
      route.handlers, [&](const Handler& handler) { return handler.Takes(schema_version); });
  return found == route.handlers.end() ? nullptr : &*found;
}

// The source's side of a key column: sets its expression.
absl::StatusOr<KeySource> SourceOf(const std::string& column, const ValueSource& value,
                                   const Declaration& declaration, std::string* expression) {
  KeySource key{.column = column};
  std::string& constant = key.constant;
  switch (value.kind) {
    case ValueSource::Kind::kField: {
      key.field = value.text;
      const auto field = std::ranges::find(declaration.fields, value.text,
                                           &std::pair<std::string, std::string>::first);
      if (field == declaration.fields.end()) {
        return FailedPrecondition(
            "key column {} is mapped from field {}, which backfill {} does not fill; name it under "
            "payload.fields",
            column, value.text, declaration.name);
      }
      if (value.encoding != projections::Encoding::kPlain) {
        return FailedPrecondition(
            "key column {} is mapped from field {} in another form (as: …), which can't be told "
            "from column {}",
            column, value.text, field->second);
      }
      key.source_column = field->second;
      break;
    }
    case ValueSource::Kind::kAttribute:
      if (value.text == "aggregate_id") key.source_column = declaration.aggregate_id;
      if (value.text == "tenant_id") key.source_column = declaration.tenant;
      if (value.text == "aggregate_type") constant = declaration.aggregate_type;
      if (value.text == "event_type") constant = declaration.event_type;
      if (value.text == "topic") constant = declaration.topic;
      if (key.source_column.empty() && constant.empty()) {
        return FailedPrecondition(
            "key column {} is mapped from attribute {}, which backfill {} takes from no column",
            column, value.text, declaration.name);
      }
      break;
    case ValueSource::Kind::kConstant:
      constant = value.text;
      break;
    case ValueSource::Kind::kNull:
      return FailedPrecondition("key column {} is mapped from null", column);
  }
  *expression = key.source_column.empty() ? postgres::QuoteLiteral(constant) + "::text"
                                          : ColumnOf(key.source_column);
  return key;
}

// Whether a snapshot sets the same as the event that wrote the row.
bool IsState(const ValueSource& value) {
  switch (value.kind) {
    case ValueSource::Kind::kField:
      return true;
    case ValueSource::Kind::kConstant:
      return value.text != "now";
    case ValueSource::Kind::kAttribute:
      return value.text == "aggregate_id" || value.text == "tenant_id" ||
             value.text == "aggregate_type" || value.text == "version";
    case ValueSource::Kind::kNull:
      break;
  }
  return true;
}

// Whether a row's aggregate, a text like video/1 or video@acme/1, is of that type.
std::string IsOfType(const std::string& column, const std::string& type) {
  envelope::Aggregate any;
  any.type = type;
  std::string prefix = envelope::AggregateKey(any);
  prefix.pop_back();
  return fmt::format("(starts_with({0}, {1}) OR starts_with({0}, {2}))", ColumnOf(column),
                     postgres::QuoteLiteral(prefix + "/"), postgres::QuoteLiteral(prefix + "@"));
}

// Events besides the declaration's that make or change rows of the table.
std::vector<std::string> OtherEvents(const Declaration& declaration,
                                     const projections::GroupPlan& group, uint32_t table) {
  std::vector<std::string> others;
  for (const auto& [event, mapping] : group.mappings.events) {
    const bool writes = std::ranges::any_of(mapping.routes, [&](const projections::Route& route) {
      return route.table == table &&
             std::ranges::any_of(route.handlers, [](const Handler& handler) {
               return handler.operation != projections::Operation::kIgnore &&
                      handler.operation != projections::Operation::kDelete;
             });
    });
    if (writes && event != declaration.event_type) others.push_back(event);
  }
  std::ranges::sort(others);
  return others;
}

absl::StatusOr<VerifyTable> PlanTable(const Declaration& declaration,
                                      const projections::Table& table, uint32_t index,
                                      const Handler& handler) {
  if (!handler.when.empty()) {
    return FailedPrecondition(
        "projection {} takes {} only `when` a condition holds: which rows that leaves out can't be "
        "told by key and version; put the condition into the backfill's query and map the event "
        "without `when`",
        table.projection, declaration.event_type);
  }
  VerifyTable planned{.projection = table.projection,
                      .name = table.name.ToString(),
                      .index = index,
                      .source = {.what = fmt::format("the source {}", declaration.SourceName()),
                                 .from = declaration.SourceSql(),
                                 .version = ColumnOf(declaration.version)},
                      .replica = {.what = fmt::format("the replica {}", table.name.ToString()),
                                  .from = table.name.Quoted(),
                                  .version = ColumnOf(table.version)}};
  std::vector<std::string> where;
  if (!table.deleted_at.empty()) where.push_back(ColumnOf(table.deleted_at) + " IS NULL");
  for (size_t i = 0; i < table.key.size(); ++i) {
    auto key = SourceOf(table.key[i].name, handler.key[i], declaration,
                        &planned.source.keys.emplace_back());
    if (!key.ok()) {
      return FailedPrecondition("projection {}: {}", table.projection, MessageOf(key.status()));
    }
    planned.replica.keys.push_back(ColumnOf(table.key[i].name));
    if (key->source_column.empty()) {
      where.push_back(fmt::format("{} = {}", planned.replica.keys.back(),
                                  postgres::QuoteLiteral(key->constant)));
    }
    planned.keys.push_back(*std::move(key));
  }
  if (!table.aggregate.empty()) {
    planned.owned = IsOfType(table.aggregate, declaration.aggregate_type);
    where.push_back(fmt::format("({} IS NULL OR {})", ColumnOf(table.aggregate), planned.owned));
  }
  planned.replica.where = fmt::format("{}", fmt::join(where, " AND "));
  planned.hard_deletes = table.hard_deletes();
  if (!table.deleted_at.empty()) {
    where[0] = ColumnOf(table.deleted_at) + " IS NOT NULL";
    planned.deleted = planned.replica;
    planned.deleted.where = fmt::format("{}", fmt::join(where, " AND "));
  }
  for (const auto& [place, value] : handler.set) {
    if (IsState(value)) planned.values.push_back(place);
  }
  return planned;
}

}  // namespace

absl::StatusOr<std::vector<VerifyTable>> PlanVerify(const Declaration& declaration,
                                                    const projections::GroupPlan& group,
                                                    const std::string& projection) {
  const auto mapping = group.mappings.events.find(declaration.event_type);
  std::vector<std::string> known;
  for (const projections::Table& table : group.tables) known.push_back(table.projection);
  if (!projection.empty() && std::ranges::find(known, projection) == known.end()) {
    return NotFound("group {} has no projection '{}'; it has: {}", group.group, projection,
                    fmt::join(known, ", "));
  }
  std::vector<VerifyTable> planned;
  std::string why;
  if (mapping != group.mappings.events.end()) {
    for (const projections::Route& route : mapping->second.routes) {
      const projections::Table& table = group.tables[route.table];
      if (!projection.empty() && table.projection != projection) continue;
      const Handler* const handler = HandlerOf(route, declaration.schema_version);
      if (handler == nullptr || handler->operation == projections::Operation::kIgnore) continue;
      if (table.counting || handler->operation != projections::Operation::kReplace) {
        why = fmt::format(
            "; projection {} maps it by another operation, whose rows hold no state "
            "that could be compared",
            table.projection);
        continue;
      }
      ASSIGN_OR_RETURN(planned.emplace_back(),
                       PlanTable(declaration, table, route.table, *handler));
      planned.back().other_events = OtherEvents(declaration, group, route.table);
    }
  }
  if (planned.empty()) {
    return FailedPrecondition(
        "{} of group {} that maps {} by `replace`: there is nothing to compare{}",
        projection.empty() ? "there is no projection"
                           : fmt::format("{} is no projection", projection),
        group.group, declaration.event_type, why);
  }
  return planned;
}

}  // namespace lockstep::verify
