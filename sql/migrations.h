#pragma once

#include "postgres/migrator.h"

// The numbered migrations, embedded into the binaries.
namespace lockstep::sql {

// sql/outbox, set `outbox`: the schema `lockstep` of a database that has outboxes.
postgres::MigrationSet OutboxMigrations();

// sql/state, set `state`: what a runner keeps, in the schema that its service configures
// (`state_schema`).
postgres::MigrationSet StateMigrations();

// sql/idempotency, set `idempotency`: the store of idempotency keys, in the schema `lockstep` of a
// service's database.
postgres::MigrationSet IdempotencyMigrations();

// sql/saga, set `saga`: sagas with their steps, in the schema `lockstep` of a service's database.
postgres::MigrationSet SagaMigrations();

}  // namespace lockstep::sql
