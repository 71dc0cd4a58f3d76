#!/usr/bin/env bash
# lockstepctl outbox …, as an operator types it; on an outbox, and again on one with partitions.
#   outbox_commands_test.sh BIN_DIR [partitioned]     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
ctl=$1/lockstepctl
database=outbox_commands_$$
out=$(mktemp)
cleanup() {
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -f "$out" "$out.yaml"
}
trap cleanup EXIT
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" -c "$1"; }
says() { # REGEX COMMAND…: succeeds and says so
  local regex=$1; shift
  "$@" >"$out" 2>&1 </dev/null || { echo "FAILED: $*"; cat "$out"; exit 1; }
  grep -qE "$regex" "$out" || { echo "FAILED: no /$regex/: $*"; cat "$out"; exit 1; }
}
refuses() { # REGEX COMMAND…: fails and says why
  local regex=$1; shift
  if "$@" >"$out" 2>&1 </dev/null; then echo "FAILED: not refused: $*"; exit 1; fi
  grep -qE "$regex" "$out" || { echo "FAILED: no /$regex/: $*"; cat "$out"; exit 1; }
}
refuses 'migrate up first' "$ctl" outbox create shop.outbox
"$ctl" migrate up >/dev/null
refuses 'schema' "$ctl" outbox create outbox
if [ "${2:-}" = partitioned ]; then
  refuses "'week' is neither day nor hour" "$ctl" outbox create shop.outbox --partition week
  says 'shop.outbox is an outbox' "$ctl" outbox create shop.outbox --partition day
  says '^shop.outbox .* day$' "$ctl" outbox list
  # Its first rows come into a partition of long ago, and so have the sequences of one without.
  sql "SELECT lockstep.make_partition('shop.outbox', 0), setval('shop.outbox_sequence_seq', 1, false)" >/dev/null
else
  says 'shop.outbox is an outbox' "$ctl" outbox create shop.outbox
fi
says '"outbox": "shop.outbox"' "$ctl" outbox list --json
sql "SELECT lockstep.enqueue('shop.outbox', 't', 'item', k, 'T', v, 'secret', tenant_id => 'acme')
     FROM unnest(ARRAY['a', 'a', 'b'], ARRAY[1, 2, 1]) AS e(k, v)" >/dev/null
says 'acme/a +2 ' "$ctl" outbox list shop.outbox --state pending --key a
says 'has no such rows' "$ctl" outbox list shop.outbox --state dead
sql "UPDATE shop.outbox_pending SET dead_at = now(), available_at = 'infinity', attempts = 25, last_error = 'it broke',
     error_code = 'UNKNOWN.INTERNAL' WHERE sequence = 1"
says '"error_code": "UNKNOWN.INTERNAL"' "$ctl" outbox list shop.outbox --state dead --tenant acme --json
refuses 'say which rows' "$ctl" outbox replay shop.outbox --yes
refuses 'Repeat with --yes' "$ctl" outbox replay shop.outbox --key a
[ "$(sql "SELECT count(*) FROM shop.outbox_status WHERE dead_at IS NOT NULL")" = 1 ]
says 'This will replay 1 row of shop.outbox' "$ctl" outbox replay shop.outbox --code UNKNOWN.INTERNAL --yes
[ "$(sql "SELECT count(*) FROM shop.outbox_status WHERE dead_at IS NULL AND attempts = 0 AND last_error IS NULL")" = 3 ]
refuses 'has no such rows to replay' "$ctl" outbox replay shop.outbox --key a --yes
# On a terminal it asks; a database that is not on this machine asks twice.
if command -v script >/dev/null; then
  far=${LOCKSTEP_DATABASE/127.0.0.1/db.example.com}?hostaddr=127.0.0.1
  asked() { # OPTION ANSWER…: how many rows are dead after a replay that is answered so
    local option=$1; shift
    sql "UPDATE shop.outbox_pending SET dead_at = now(), available_at = 'infinity' WHERE sequence = 1"
    printf '%s\n' "$@" | script -qec "env -u LOCKSTEP_DATABASE $ctl $option outbox replay shop.outbox --key a" /dev/null >"$out" 2>&1 || true
    sql "SELECT count(*) FROM shop.outbox_status WHERE dead_at IS NOT NULL"
  }
  [ "$(asked "--database '$LOCKSTEP_DATABASE'" n)" = 1 ] || { echo "FAILED: a no was taken for a yes"; cat "$out"; exit 1; }
  [ "$(asked "--database '$LOCKSTEP_DATABASE'" y)" = 0 ] || { echo "FAILED: a yes was not enough"; cat "$out"; exit 1; }
  [ "$(asked "--database '$far'" y n)" = 1 ] || { echo "FAILED: a database that is far asked once"; cat "$out"; exit 1; }
  grep -q 'not on this machine' "$out" || { echo "FAILED: it does not say why it asks twice"; cat "$out"; exit 1; }
  [ "$(asked "--database '$far'" y y)" = 1 ] || { echo "FAILED: a yes was taken for the name of a database that is far"; cat "$out"; exit 1; }
  [ "$(asked "--database '$far'" y "${LOCKSTEP_DATABASE##*/}")" = 0 ] || { echo "FAILED: its name was not enough"; cat "$out"; exit 1; }
  echo "database: $far" >"$out.yaml"
  [ "$(asked "--config '$out.yaml'" y n)" = 1 ] || { echo "FAILED: one in a file that is far asked once"; cat "$out"; exit 1; }
  grep -q 'not on this machine' "$out" || { echo "FAILED: it does not ask twice for the file's"; cat "$out"; exit 1; }
  sql "DELETE FROM lockstep.outbox_audit WHERE id > 1"
fi
refuses 'say why with --reason' "$ctl" outbox quarantine shop.outbox --key b --yes
says '"rows": 1' "$ctl" outbox quarantine shop.outbox --key b --reason odd --yes --json
says 'acme/b +1 ' "$ctl" outbox list shop.outbox --state quarantined
event=$(sql "SELECT event_id FROM shop.outbox WHERE aggregate_id = 'b'")
says 'quarantine .*@.* odd' "$ctl" outbox show shop.outbox "$event"
if grep -q secret "$out"; then echo "FAILED: a payload was shown"; exit 1; fi
says 'release: 1 rows' "$ctl" outbox release shop.outbox "$event" --yes
[ "$(sql "SELECT count(*) FROM lockstep.outbox_audit")" = 3 ]
# What one aggregate's events say is erased once they are sent; ids and versions stay, so that enqueue knows them.
refuses 'wait to be published' "$ctl" erase item a --tenant acme --outbox shop.outbox --reason gdpr --yes
sql "UPDATE shop.outbox SET attributes = '{\"name\": \"secret\"}' WHERE aggregate_id = 'a';
     UPDATE shop.outbox_pending SET last_error = 'secret', dead_at = now(), available_at = 'infinity' WHERE sequence = 1;
     DELETE FROM shop.outbox_pending WHERE sequence = 2;
     INSERT INTO shop.outbox_published (sequence, published_at, attempts) VALUES (2, now(), 0)"
says 'erased: 0 rows' "$ctl" erase item a --outbox shop.outbox --reason gdpr --yes
says 'erased: 2 rows' "$ctl" erase item a --tenant acme --outbox shop.outbox --reason gdpr --yes
[ "$(sql "SELECT string_agg(aggregate_id || version || convert_from(payload, 'UTF8') || content_type, ',' ORDER BY sequence) FROM shop.outbox")" = \
  "a1application/x-lockstep-erased,a2application/x-lockstep-erased,b1secretapplication/protobuf" ]
[ "$(sql "SELECT count(*) FROM shop.outbox_status t WHERE aggregate_id = 'a' AND to_jsonb(t)::text LIKE '%secret%'")" = 0 ]
[ "$(sql "SELECT count(*) FROM lockstep.outbox_audit WHERE action = 'erase' AND note = 'gdpr'")" = 2 ]
if sql "SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'a', 'T', 2, 'x', tenant_id => 'acme')" 2>/dev/null; then
  echo "FAILED: an erased version was enqueued again"; exit 1
fi
sql "DELETE FROM lockstep.outbox_audit WHERE action = 'erase'"
refuses '2 unpublished rows' "$ctl" outbox drop shop.outbox --yes
says 'is gone' "$ctl" outbox drop shop.outbox --yes --force
[ "${2:-}" = partitioned ] || "$0" "$1" partitioned
echo "all as promised"
