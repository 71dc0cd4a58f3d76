#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/identifier.h"
#include "projections/plan/table_check.h"

// Messages in the subscription have the shape of yesterday. A field that a mapping uses and that
// has another number or type today would be read wrong, so what was in use is remembered.
namespace lockstep::projections {
namespace {

std::string FieldsTable(const GroupPlan& plan) {
  return postgres::QuoteIdentifier(plan.state_schema) + ".projection_fields";
}

absl::StatusOr<bool> HasTable(const GroupPlan& plan, postgres::Connection& connection) {
  if (plan.state_schema.empty()) return false;
  const auto found = connection.Execute("SELECT to_regclass($1) IS NOT NULL", FieldsTable(plan));
  if (!found.ok()) return found.status();
  return found->Bool(0, 0);
}

}  // namespace

absl::Status CompareFields(const GroupPlan& plan, postgres::Connection& connection,
                           std::vector<Mismatch>* found) {
  ASSIGN_OR_RETURN(const bool has_table, HasTable(plan, connection));
  if (!has_table) return absl::OkStatus();
  const auto rows = connection.Execute(
      fmt::format("SELECT message, field, number, type FROM {} WHERE consumer_group = $1",
                  FieldsTable(plan)),
      plan.group);
  if (!rows.ok()) return rows.status();
  for (int i = 0; i < rows->rows(); ++i) {
    for (const UsedField& field : plan.fields) {
      if (field.message != rows->Text(i, 0) || field.field != rows->Text(i, 1)) continue;
      const bool renumbered = field.numbers != rows->Text(i, 2);
      if (!renumbered && field.type == rows->Text(i, 3)) continue;
      found->push_back(
          {field.place,
           fmt::format("field {} of {} was {} ({}, number {}) and is {}, number {}, now: messages "
                       "of the old shape would be read wrong. Give the new field another name and "
                       "number, or, when no such message is left: lockstepctl projection accept",
                       field.field, field.message, renumbered ? "renumbered" : "retyped",
                       rows->Text(i, 3), rows->Text(i, 2), field.type, field.numbers)});
    }
  }
  return absl::OkStatus();
}

absl::Status RememberFields(const GroupPlan& plan, postgres::Connection& connection) {
  ASSIGN_OR_RETURN(const bool has_table, HasTable(plan, connection));
  if (!has_table || plan.fields.empty()) return absl::OkStatus();
  postgres::Array columns[4];
  for (const UsedField& field : plan.fields) {
    columns[0].Add(field.message);
    columns[1].Add(field.field);
    columns[2].Add(field.numbers);
    columns[3].Add(field.type);
  }
  postgres::Params params;
  params.Add(plan.group);
  for (const postgres::Array& column : columns) params.Add(column);
  return connection
      .Execute(fmt::format("INSERT INTO {} (consumer_group, message, field, number, type)\n"
                           "SELECT DISTINCT $1, u.* FROM unnest($2::text[], $3::text[],"
                           " $4::text[], $5::text[]) AS u\n"
                           "ON CONFLICT (consumer_group, message, field) DO UPDATE\n"
                           "SET number = excluded.number, type = excluded.type\n"
                           "WHERE (projection_fields.number, projection_fields.type)"
                           " IS DISTINCT FROM (excluded.number, excluded.type)",
                           FieldsTable(plan)),
               params)
      .status();
}

}  // namespace lockstep::projections
