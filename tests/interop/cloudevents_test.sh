#!/usr/bin/env bash
# What lockstep-publisher sends to an HTTP route, read with the official CloudEvents SDK.
# usage: cloudevents_test.sh DIRECTORY BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/setup.sh" "$1"
bin=$2
dir=$(mktemp -d)
database=cloudevents_$$
cleanup() {
  kill "$server" 2>/dev/null || true
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -rf "$dir"
}
node "$here/cloudevents_test.js" "$dir/port" "$dir/result" &
server=$!
trap cleanup EXIT
for _ in $(seq 200); do [ ! -s "$dir/port" ] || break; sleep 0.05; done
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
"$bin/lockstepctl" migrate up >/dev/null
"$bin/lockstepctl" outbox create shop.outbox >/dev/null
psql -q -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" >/dev/null <<'SQL'
SELECT lockstep.enqueue('shop.outbox', 'shop.item.changed.v1', 'item', 'item ü 1', 'shop.ItemChanged', 1,
  convert_to('{"name": "ü"}', 'UTF8'), event_id => '00000000-0000-4000-8000-000000000001', tenant_id => 'tenant "ü" 100%',
  content_type => 'application/json', attributes => '{"region": "eu", "größe": "1"}',
  traceparent => '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', occurred_at => '2026-01-02 05:04:05.678+02');
SELECT lockstep.enqueue('shop.outbox', 'shop.item.changed.v1', 'item', 'item ü 1', 'shop.ItemChanged', 2, '\x00ff275c');
SQL
"$bin/lockstep-publisher" --once --relay.tables shop.outbox --routes.allow_private true --routes.format cloudevents \
  --routes.source https://shop.example/items --topics "shop.item.changed.v1=http://127.0.0.1:$(cat "$dir/port")/in" 2>"$dir/log" ||
  { cat "$dir/log" "$dir/result" >&2; exit 1; }
[ "$(cat "$dir/result")" = ok ] || { cat "$dir/result" >&2; exit 1; }
