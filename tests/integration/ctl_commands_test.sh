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
ends 2 "^lockstepctl: no command 'frobnicate'; there are: backfill, .*, verify, completion, man, help" "$ctl" frobnicate
ends 2 "^lockstepctl outbox: no command 'pendin'; there are: list, show, replay, quarantine, release, create, " "$ctl" outbox pendin x
ends 2 "^lockstepctl outbox: no command 'pendin'" "$ctl" --json outbox pendin --key a
ends 2 '^lockstepctl offsets: name a command: ' "$ctl" offsets
ends 2 'table is required' "$ctl" outbox show
ends 2 'not expected: --frob' "$ctl" outbox list --frob
ends 2 'limit' "$ctl" outbox list a.b --state pending --limit many
ends 0 'quarantine' "$ctl" outbox --help
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

# Any of our files is understood, and the wrong one is named.
printf 'database: %s\nstate_schema: from_file\ngroups: []\n' "$url" >"$dir/runner.yaml"
printf 'topics: [{name: a}]\nsubscriptions: []\n' >"$dir/pubsub.yaml"
ends 0 'This applies 1, .* of the set state in the schema from_file' "$ctl" --config "$dir/runner.yaml" migrate up --dry-run
ends 0 'state: applied 1, ' "$ctl" --config "$dir/runner.yaml" migrate up
ends 0 '^state +from_file +1 ' "$ctl" --config "$dir/runner.yaml" migrate status
ends 0 '^outbox +lockstep +1 ' "$ctl" --config "$dir/publisher.yaml" migrate status
ends 1 "pubsub.yaml is a file of topics and subscriptions.*names no database" "$ctl" --config "$dir/pubsub.yaml" migrate up
ends 1 "publisher.yaml is a publisher's configuration, which says nothing of a service's state" \
  "$ctl" --config "$dir/publisher.yaml" migrate up --set state
ends 1 "publisher.yaml is a publisher's configuration; this command is about consumer groups" "$ctl" --config "$dir/publisher.yaml" lag
ends 0 '' "$ctl" --config "$dir/publisher.yaml" offsets show --schema from_file

# --dry-run: the plan, 0, and nothing else.
ends 0 'This makes shop.second an outbox.*|this was a dry run' "$ctl" --database "$url" outbox create shop.second --dry-run
ends 0 '"what": "This drops shop.outbox' "$ctl" --database "$url" outbox drop shop.outbox --dry-run --json
ends 0 'This drops tables of the set state in the schema from_file' "$ctl" --config "$dir/runner.yaml" migrate down --dry-run
ends 2 'dry-run' "$ctl" --database "$url" outbox drop shop.outbox --dry-run --yes
ends 1 'no terminal to ask on. Repeat with --yes.*--dry-run' "$ctl" --database "$url" outbox drop shop.outbox
[ "$("$ctl" --database "$url" outbox list --json | grep -c '"outbox"')" = 1 ] || { echo "FAILED: a dry run did something"; exit 1; }

# help, completion, man.
ends 0 '^Usage: lockstepctl outbox list ' "$ctl" help outbox list
ends 0 '^Options of every command:' "$ctl" outbox list --help
ends 0 '^  outbox ' "$ctl" help
ends 0 'replay.let dead rows start over' "$ctl" __complete outbox rep
for shell in bash zsh fish; do ends 0 'lockstepctl __complete' "$ctl" completion $shell; done
bash -c "$("$ctl" completion bash); PATH=$(dirname "$ctl"):\$PATH; COMP_WORDS=(lockstepctl outbox sho) COMP_CWORD=2; _lockstepctl; [ \"\${COMPREPLY[*]}\" = show ]" ||
  { echo "FAILED: bash completes nothing"; exit 1; }
ends 0 'pages are in' "$ctl" man "$dir/man1"
grep -q 'lockstepctl outbox list' "$dir/man1/lockstepctl-outbox.1" || { echo "FAILED: the man page says nothing of list"; exit 1; }
# Every command that is described says what it does, and none is left without its page.
for command in $("$ctl" __complete '' | cut -f1); do ends 0 '^Usage: ' "$ctl" help "$command"; done

# Outboxes and events that are none.
for command in list show; do
  ends 1 'lockstepctl: shop.nope is not an outbox in this database; lockstepctl outbox list shows those that are' \
    "$ctl" --database "$url" outbox $command shop.nope $([ $command = list ] || echo 00000000-0000-0000-0000-000000000000)
done
ends 1 'no_schema.nope is not an outbox' "$ctl" --database "$url" outbox drop no_schema.nope --yes
ends 1 "lockstepctl: 'nonsense' is not an event id \(a UUID\)" \
  "$ctl" --database "$url" outbox show shop.outbox nonsense

# A group that nobody knows; and who it was.
"$ctl" --database "$url" migrate up --set state --schema feed_state >/dev/null
sql "INSERT INTO feed_state.consumer_groups (group_name) VALUES ('feed');
     INSERT INTO feed_state.slots (group_name, slot, generation, subscription) VALUES ('feed', 1, 1, 's');
     INSERT INTO feed_state.dead_letters (group_name, generation, message_id, ordering_key, publish_time, attributes, payload,
       code, reason, blocks) VALUES ('feed', 1, 'm1', '', now(), '{}', '', 'EVENT.MAPPING_FAILED', 'odd', false)"
letters=("$ctl" --database "$url" dead-letters)
ends 1 "there is no group 'fed' in schema 'feed_state'" "${letters[@]}" list --schema feed_state --group fed
ends 1 "there is no group 'fed' in schema 'feed_state'" "${letters[@]}" quarantine 1 --schema feed_state --group fed --yes
ends 1 "'lockstep_state'" "${letters[@]}" list --group feed
ends 0 'EVENT.MAPPING_FAILED' "${letters[@]}" list --schema feed_state --group feed
ends 0 'changed: 1' env LOCKSTEP_OPERATOR=ann "${letters[@]}" quarantine 1 --schema feed_state --group feed --yes --reason odd
[ "$(sql "SELECT operator LIKE 'ann%' FROM feed_state.audit")" = t ] || { echo "FAILED: the audit names another"; exit 1; }
sql "SELECT lockstep.enqueue('shop.outbox', 't', 'item', 'a', 'T', 1, '')" >/dev/null
ends 0 'quarantine: 1' env LOCKSTEP_OPERATOR=ann "$ctl" --database "$url" outbox quarantine shop.outbox --key a --reason odd --yes
[ "$(sql "SELECT actor LIKE 'ann@%' FROM lockstep.outbox_audit")" = t ] || { echo "FAILED: the outbox's audit names another"; exit 1; }
echo "all as promised"
