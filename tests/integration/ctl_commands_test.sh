#!/usr/bin/env bash
# What lockstepctl's commands have in common: exit statuses, where the database comes from, who is in the audit.
#   ctl_commands_test.sh BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
ctl=$1/lockstepctl
database=ctl_commands_$$
url=${LOCKSTEP_TEST_PG%/*}/$database
dir=$(mktemp -d)
cleanup() {
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
unset LOCKSTEP_DATABASE
sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$url" -c "$1"; }
ends() { # STATUS REGEX COMMAND…: ends with this status and says so
  local status=0 wanted=$1 regex=$2
  shift 2
  "$@" >"$dir/out" 2>&1 </dev/null || status=$?
  if [ "$status" -ne "$wanted" ] || ! grep -qE "$regex" "$dir/out"; then
    echo "FAILED: $*: status $status, wanted $wanted and /$regex/"
    cat "$dir/out"
    exit 1
  fi
}

# A wrong command line is status 2 and names the word.
ends 2 "^lockstepctl: no command 'frobnicate'; there are: backfill, .*, verify" "$ctl" frobnicate
ends 2 "^lockstepctl outbox: no command 'pendin'; there are: create, content-dedup, drop, list, pending, " "$ctl" outbox pendin x
ends 2 "^lockstepctl outbox: no command 'pendin'; " "$ctl" --json outbox pendin --key a
ends 2 '^lockstepctl offsets: name a command: ' "$ctl" offsets
ends 2 'table is required' "$ctl" outbox pending
ends 2 'not expected: --frob' "$ctl" outbox list --frob
ends 2 'limit' "$ctl" outbox pending a.b --limit many
ends 0 'pending' "$ctl" outbox --help
ends 0 '[0-9]' "$ctl" --version
ends 0 'accept-differences' "$ctl" rebuild resume --help
ends 0 'reason' "$ctl" rebuild rollback --help

# The database is that of the file, be it a publisher's or a runner's; --database wins.
cat >"$dir/publisher.yaml" <<EOF
database: $url
relay: {tables: [shop.outbox]}
topics: {events: events}
EOF
echo "pubsub: {project: test}" >"$dir/none.yaml"
printf 'database: [a\n' >"$dir/broken.yaml"
ends 1 'LOCKSTEP_DATABASE.*--config' "$ctl" migrate status
ends 1 'no database is named' "$ctl" --config "$dir/none.yaml" migrate status
ends 1 "configuration file $dir/missing.yaml can't be read" "$ctl" --config "$dir/missing.yaml" migrate status
ends 1 "broken.yaml:2:1: not YAML" "$ctl" --config "$dir/broken.yaml" migrate status
ends 1 "can't connect to Postgres.*127.0.0.1" \
  "$ctl" --config "$dir/publisher.yaml" --database postgresql://lockstep@127.0.0.1:1/nowhere migrate status
ends 0 'applied' "$ctl" --config "$dir/publisher.yaml" migrate up
ends 0 'shop.outbox is an outbox' "$ctl" --config "$dir/publisher.yaml" outbox create shop.outbox
ends 0 'shop.outbox' "$ctl" --config "$dir/publisher.yaml" outbox list
ends 1 'video_projection.* does not exist' \
  "$ctl" --config "$dir/publisher.yaml" projection check "$(dirname "$1")/examples/catalog/catalog.yaml"
ends 1 'there is no role' "$ctl" --config "$dir/publisher.yaml" roles grant reader nobody_$$ --outbox shop.outbox

# Outboxes and events that are none.
for command in pending dead show; do
  ends 1 'lockstepctl: shop.nope is not an outbox in this database; lockstepctl outbox list shows those that are' \
    "$ctl" --database "$url" outbox $command shop.nope --event 00000000-0000-0000-0000-000000000000
done
ends 1 'no_schema.nope is not an outbox' "$ctl" --database "$url" outbox drop no_schema.nope --yes
ends 1 "lockstepctl: --event: 'nonsense' is not an event id \(a UUID\)" \
  "$ctl" --database "$url" outbox show shop.outbox --event nonsense

# A group that nobody knows; and who it was.
"$ctl" --database "$url" migrate up --set state --schema feed_state >/dev/null
sql "INSERT INTO feed_state.consumer_groups (group_name) VALUES ('feed');
     INSERT INTO feed_state.slots (group_name, slot, generation, subscription) VALUES ('feed', 1, 1, 's');
     INSERT INTO feed_state.dead_letters (group_name, generation, message_id, ordering_key, publish_time, attributes, payload,
       code, reason, blocks) VALUES ('feed', 1, 'm1', '', now(), '{}', '', 'EVENT.MAPPING_FAILED', 'odd', false)"
letters=("$ctl" --database "$url" dead-letters)
ends 1 "there is no group 'fed' in schema 'feed_state'" "${letters[@]}" list --schema feed_state --group fed
ends 1 "there is no group 'fed' in schema 'feed_state'" "${letters[@]}" quarantine --id 1 --schema feed_state --group fed --yes
ends 1 "'lockstep_state'" "${letters[@]}" list --group feed
ends 0 'EVENT.MAPPING_FAILED' "${letters[@]}" list --schema feed_state --group feed
ends 0 'changed: 1' env LOCKSTEP_OPERATOR=ann "${letters[@]}" quarantine --id 1 --schema feed_state --group feed --yes
[ "$(sql "SELECT operator LIKE 'ann%' FROM feed_state.audit")" = t ] || { echo "FAILED: the audit names another"; exit 1; }
sql "SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'a', 'T', 1, '')" >/dev/null
ends 0 'quarantine: 1' env LOCKSTEP_OPERATOR=ann "$ctl" --database "$url" outbox quarantine shop.outbox --key a --note odd --yes
[ "$(sql "SELECT actor LIKE 'ann@%' FROM lockstep.outbox_audit")" = t ] || { echo "FAILED: the outbox's audit names another"; exit 1; }
echo "all as promised"
