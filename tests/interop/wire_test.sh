#!/usr/bin/env bash
# What lockstep-publisher puts on the wire, read with the official Node client.
# usage: wire_test.sh DIRECTORY BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/setup.sh" "$1"
bin=$2
log=$(mktemp)
database=wire_$$
cleanup() {
  kill "$emulator" 2>/dev/null || true
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -f "$log"
}
"$bin/lockstep-emulator" --host 127.0.0.1 --port 0 >"$log" 2>&1 &
emulator=$!
trap cleanup EXIT
for _ in $(seq 100); do
  address=$(sed -n 's/.*listening on \([0-9.]*:[0-9]*\).*/\1/p' "$log" | head -n 1)
  [ -z "$address" ] || break
  sleep 0.1
done
export METADATA_SERVER_DETECTION=none PUBSUB_EMULATOR_HOST=$address PUBSUB_PROJECT_ID=interop
node "$here/wire_test.js" prepare
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
"$bin/lockstepctl" migrate up >/dev/null
"$bin/lockstepctl" outbox create shop.outbox >/dev/null
psql -q -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" >/dev/null <<'SQL'
SELECT lockstep.enqueue('shop.outbox', 'shop.item.changed.v1', 'item', 'item-1', 'shop.ItemChanged', 1, '\x00ff275c');
SELECT lockstep.enqueue('shop.outbox', 'shop.item.changed.v1', 'item', 'item-1', 'shop.ItemChanged', 2,
  convert_to('{"name": "ü"}', 'UTF8'), event_id => '00000000-0000-4000-8000-000000000002', tenant_id => 'tenant ü',
  schema_version => 7, content_type => 'application/json', attributes => '{"region": "eu"}',
  traceparent => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', tracestate => 'a=1 ,  b=2',
  occurred_at => '2026-01-02 05:04:05.678+02');
SELECT lockstep.enqueue('shop.outbox', 'shop.item.changed.v1', 'item', 'item-1', 'shop.ItemChanged', 3, '');
SQL
"$bin/lockstep-publisher" --once --relay.tables shop.outbox --pubsub.project interop \
  --topics shop.item.changed.v1=shop.events 2>/dev/null
node "$here/wire_test.js" check
