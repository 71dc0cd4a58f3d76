#pragma once

#include <vector>

#include "postgres/migrator.h"

// The numbered migrations, embedded into the binaries.
namespace lockstep::sql {

// sql/outbox: the schema `lockstep` of a database that has outboxes.
std::vector<postgres::Migration> OutboxMigrations();

// sql/state: what a runner keeps, in the schema that its service configures (`state_schema`).
std::vector<postgres::Migration> StateMigrations();

}  // namespace lockstep::sql
