#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "projections/plan/table_check.h"

// Messages in the subscription have the shape of yesterday. A field that a mapping uses and that
// has another number or type today would be read wrong, so what was in use is remembered.
namespace lockstep::projections {
namespace {

using postgres::FillNames;

std::string FieldsTable(const GroupPlan& plan) {
  return postgres::QuoteIdentifier(plan.state_schema) + ".projection_fields";
}

absl::StatusOr<bool> HasTable(const GroupPlan& plan, postgres::Connection& connection) {
  if (plan.state_schema.empty()) return false;
  ASSIGN_OR_RETURN(const postgres::Result found,
                   connection.Execute("SELECT to_regclass($1) IS NOT NULL", FieldsTable(plan)));
  return found.Bool(0, 0);
}

}  // namespace

absl::Status CompareFields(const GroupPlan& plan, postgres::Connection& connection,
                           std::vector<Mismatch>* found) {
  ASSIGN_OR_RETURN(const bool has_table, HasTable(plan, connection));
  if (!has_table) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const postgres::Result rows,
      connection.Execute(
          FillNames("SELECT message, field, number, type FROM {fields} WHERE consumer_group = $1",
                    {{"fields", FieldsTable(plan)}}),
          plan.group));
  for (const postgres::Row row : rows) {
    for (const UsedField& field : plan.fields) {
      if (field.message != row.Text("message") || field.field != row.Text("field")) continue;
      const bool renumbered = field.numbers != row.Text("number");
      if (!renumbered && field.type == row.Text("type")) continue;
      found->push_back(
          {field.place,
           fmt::format("field {} of {} was {} ({}, number {}) and is {}, number {}, now: messages "
                       "of the old shape would be read wrong. Give the new field another name and "
                       "number, or, when no such message is left: lockstepctl projection accept",
                       field.field, field.message, renumbered ? "renumbered" : "retyped",
                       row.Text("type"), row.Text("number"), field.type, field.numbers)});
    }
  }
  return absl::OkStatus();
}

absl::Status RememberFields(const GroupPlan& plan, postgres::Connection& connection) {
  ASSIGN_OR_RETURN(const bool has_table, HasTable(plan, connection));
  if (!has_table || plan.fields.empty()) return absl::OkStatus();
  postgres::Array messages, fields, numbers, types;
  for (const UsedField& field : plan.fields) {
    messages.Add(field.message);
    fields.Add(field.field);
    numbers.Add(field.numbers);
    types.Add(field.type);
  }
  return connection
      .Execute(FillNames(R"(
INSERT INTO {fields} (consumer_group, message, field, number, type)
SELECT DISTINCT $1, u.* FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) AS u
ON CONFLICT (consumer_group, message, field) DO UPDATE
SET number = excluded.number, type = excluded.type
WHERE (projection_fields.number, projection_fields.type)
      IS DISTINCT FROM (excluded.number, excluded.type))",
                         {{"fields", FieldsTable(plan)}}),
               plan.group, messages, fields, numbers, types)
      .status();
}

}  // namespace lockstep::projections
