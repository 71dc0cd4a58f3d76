#!/usr/bin/env bash
# Names from configuration can't inject SQL: the pipeline runs with names that try, and what they would drop is still there.
#   identifiers_test.sh BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) name=identifiers
. "$(dirname "$0")/lib.sh"
ctl=$bin/lockstepctl
new_database "${name}_db"; db=$made
start_emulator
sql "$db" 'CREATE SCHEMA victim; CREATE TABLE victim.t (a int)'

# Each ends a quoted name or a literal, and drops the table; 63 bytes at most, with Unicode and format signs.
drop="x'\"; DROP TABLE victim.t; --"
schema="o$drop" table="{0} %s \$1 ü日本$drop" state="s'); DROP TABLE victim.t; --\"{state}"
q() { local n=${1//\"/\"\"}; echo "\"$n\""; }     # as SQL
y() { local n=${1//\'/\'\'}; echo "'$n'"; }       # as YAML
outbox="$(q "$schema").$(q "$table")" model="$(q "m$schema").$(q "m$table")"
key="k$drop" title="t$drop" version="v$drop" updated="u$drop" deleted="d$drop" amount="a$drop"

cat >"$dir/pubsub.yaml" <<EOT
pubsub: {project: lab}
topics: [{name: shop.events, retention: 1d}]
subscriptions: [{name: shop.events.feed, topic: shop.events, ordering: true, retain_acked: true}]
EOT
cat >"$dir/publisher.yaml" <<EOT
instance: $(y "i$drop")
pubsub: {project: lab}
relay: {tables: [$(y "$outbox")], single_active: false, shards: 2}
cleaner: {tables: [$(y "$outbox")], interval: 200ms, retention: 1ms}
topics: {shop.item.set.v1: shop.events, $(y "topic$drop"): shop.events}
heartbeat: {topics: [shop.item.set.v1], interval: 200ms}
http: {port: 0}
EOT
cat >"$dir/group.yaml" <<EOT
group: $(y "g$drop")
subscription: shop.events.feed
settings: {max_attempts: 1, ack_fence: 200ms}
projections:
  - name: $(y "soft$drop")
    table: $(y "$model")
    key: {$(y "$key"): {attribute: aggregate_id}}
    version: $(y "$version")
    updated_at: $(y "$updated")
    deleted_at: $(y "$deleted")
    events:
      Set: {merge: {$(y "$title"): {field: title, type: text}}}
      Gone: delete
      Count: ignore
  - name: $(y "hard$drop")
    table: $(y "$(q "m$schema").$(q "h$drop")")
    key: {$(y "$key"): {attribute: aggregate_id}}
    version: $(y "$version")
    events:
      Set: {replace: {$(y "$title"): {field: title, type: text}}}
      Gone: delete
      Count: ignore
  - name: $(y "count$drop")
    table: $(y "$(q "m$schema").$(q "c$drop")")
    key: {$(y "$key"): {attribute: aggregate_id}}
    events:
      Set: ignore
      Gone: ignore
      Count: {increment: {$(y "$amount"): {field: amount, type: bigint}}}
EOT
cat >"$dir/runner.yaml" <<EOT
state_schema: $(y "$state")
instance: $(y "i$drop")
pubsub: {project: lab}
http: {port: 0}
groups: [{file: group.yaml}]
EOT
sql "$db" "CREATE SCHEMA $(q "m$schema");
  CREATE TABLE $model ($(q "$key") text PRIMARY KEY, $(q "$title") text, $(q "$version") bigint NOT NULL,
    $(q "$updated") timestamptz, $(q "$deleted") timestamptz);
  CREATE TABLE $(q "m$schema").$(q "h$drop") ($(q "$key") text PRIMARY KEY, $(q "$title") text, $(q "$version") bigint NOT NULL);
  CREATE TABLE $(q "m$schema").$(q "c$drop") ($(q "$key") text PRIMARY KEY, $(q "$amount") bigint)"
"$ctl" --config "$dir/pubsub.yaml" provision --yes >/dev/null 2>&1
export LOCKSTEP_DATABASE=$db
says 'applied 1' "$ctl" migrate up --set outbox
says 'applied 1' "$ctl" migrate up --set state --schema "$state"
says 'is an outbox' "$ctl" outbox create "$outbox"
says 'is an outbox' "$ctl" outbox create "$outbox"

# Roles, too, are names.
roles+=("r${drop//\"/\"\"}$$")
says 'has the rights' "$ctl" roles grant publisher "r$drop$$" --outbox "$outbox" --create
says 'has the rights' "$ctl" --config "$dir/runner.yaml" roles grant runner "r$drop$$"

put() { # KEY TYPE VERSION JSON
  psql -qAt -v ON_ERROR_STOP=1 -d "$db" -v outbox="$outbox" -v key="$1" -v type="$2" -v version="$3" -v json="$4" >/dev/null <<'SQL'
SELECT lockstep.enqueue(:'outbox', 'shop.item.set.v1', 'item', :'key', :'type', :version, convert_to(:'json', 'UTF8'),
  content_type => 'application/json', tenant_id => :'key', attributes => jsonb_build_object(:'key', :'key'));
SQL
}
put "$drop" Set 1 '{"title": "one"}'
put "$drop" Set 2 '{"title": "two"}'
put "gone$drop" Set 1 '{"title": "one"}'
put "gone$drop" Gone 2 '{}'
put "count$drop" Count 1 '{"amount": 3}'
put "poison$drop" Count 1 '{"amount": "no number"}'
says 'poison' "$ctl" outbox list "$outbox" --state pending --key "poison$drop"
says 'quarantine: 1' "$ctl" outbox quarantine "$outbox" --key "poison$drop" --reason "n$drop" --yes
says 'release: 1' "$ctl" outbox release "$outbox" --key "poison$drop" --tenant "poison$drop" --yes
start publisher "$bin/lockstep-publisher" --config "$dir/publisher.yaml"
publisher=$pid
start runner "$bin/lockstep-runner" --config "$dir/runner.yaml"
runner=$pid
await 'two' "$db" "SELECT $(q "$title") FROM $model WHERE $(q "$deleted") IS NULL"
await 1 "$db" "SELECT count(*) FROM $model WHERE $(q "$deleted") IS NOT NULL AND $(q "$updated") IS NOT NULL"
await 'two' "$db" "SELECT $(q "$title") FROM $(q "m$schema").$(q "h$drop")"
await 3 "$db" "SELECT $(q "$amount") FROM $(q "m$schema").$(q "c$drop")"
await 1 "$db" "SELECT count(*) FROM $(q "$state").dead_letters WHERE state = 'dead'"
await 0 "$db" "SELECT count(*) FROM $outbox"
says 'dead' "$ctl" dead-letters list --group "g$drop" --schema "$state" --key "poison$drop" --json
says '' "$ctl" --config "$dir/runner.yaml" dead-letters discard --group "g$drop" --key "poison$drop" --reason "$drop" --yes
says 'g' "$ctl" lag --schema "$state"
says 'g' "$ctl" offsets show --schema "$state"
says 'epoch 2' "$ctl" --config "$dir/runner.yaml" offsets reset "g$drop" --to-earliest --empty --accept-missing --reason "$drop" \
  --yes
await 'done' "$db" "SELECT seek_state FROM $(q "$state").consumer_groups WHERE epoch = 2"
await 'two' "$db" "SELECT $(q "$title") FROM $model WHERE $(q "$deleted") IS NULL"
await 3 "$db" "SELECT $(q "$amount") FROM $(q "m$schema").$(q "c$drop")"
stop "$publisher"
stop "$runner"
put "left$drop" Set 1 '{"title": "left"}'
refuses '1 unpublished' "$ctl" outbox drop "$outbox" --yes
says 'is gone' "$ctl" outbox drop "$outbox" --yes --force

# A topic is checked by letters; Postgres would cut a name of more than 63 bytes off, so that two could be one.
refuses 'topic' psql -v ON_ERROR_STOP=1 -d "$db" -c "SELECT lockstep.enqueue((lockstep.create_outbox('a.b')), 'a''; DROP TABLE victim.t; --', 'x', 'y', 'T', 1, '')"
long=$(printf 'n%.0s' $(seq 64)) umlauts=$(printf 'ü%.0s' $(seq 32))
for bad in "$long" "$umlauts" ''; do
  refuses 'schema.table' "$ctl" outbox create "a.$bad"
  refuses 'schema.table' "$bin/lockstep-publisher" --relay.tables "$bad.a" --pubsub.project lab --once
  refuses 'schema.table' "$bin/lockstep-publisher" --cleaner.tables "a.$bad" --pubsub.project lab --once
  refuses '63 bytes' env LOCKSTEP_STATE_SCHEMA="$bad" "$bin/lockstep-runner" --config "$dir/runner.yaml" --once
  refuses '63 bytes|name the service' "$ctl" migrate up --set state --schema "$bad"
  sed "s/table: .*/table: 'a.$bad'/" "$dir/group.yaml" >"$dir/long.yaml"
  refuses 'schema.table|table' "$ctl" projection check "$dir/long.yaml"
done
refuses '63 bytes' "$ctl" roles grant publisher "$long" --outbox a.b
sed "s/version: .*/version: $long/" "$dir/group.yaml" >"$dir/long.yaml"
refuses "no column '$long'" "$ctl" projection check "$dir/long.yaml"
# A type is looked up, not pasted in.
sed "s/type: text/type: 'text); DROP TABLE victim.t; --'/" "$dir/group.yaml" >"$dir/type.yaml"
refuses 'type|syntax error' "$ctl" projection check "$dir/type.yaml"

is 0 "$db" 'SELECT count(*) FROM victim.t'
# The same in what lockstepctl prints for others to run.
"$ctl" projection ddl "$dir/group.yaml" >"$dir/ddl.sql"
sql "$db" "DROP SCHEMA $(q "m$schema") CASCADE" 2>/dev/null
psql -q -v ON_ERROR_STOP=1 -d "$db" -f "$dir/ddl.sql" >"$out" 2>&1 || fail 'the DDL does not run'
says 'undone' "$ctl" migrate down --set state --schema "$state" --yes
is 0 "$db" 'SELECT count(*) FROM victim.t'
is 1 "$db" "SELECT count(*) FROM pg_tables WHERE schemaname = 'victim'"
echo "$checks checks passed"
