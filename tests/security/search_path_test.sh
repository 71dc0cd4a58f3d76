#!/usr/bin/env bash
# Who may create in `public` (in old databases: everybody) can't get code of his run by others: functions and operators are
# planted that Postgres would prefer to its own, and the whole pipeline, lockstepctl and the outbox's functions never meet one.
#   search_path_test.sh BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) name=search_path
. "$(dirname "$0")/lib.sh"
ctl=$bin/lockstepctl
new_database "${name}_db"; db=$made
mallory=mallory_$$ writer=writer_$$ publisher=publisher_$$ runner=runner_$$
for role in $mallory $writer $publisher $runner; do
  sql "$cluster" "CREATE ROLE $role LOGIN"
  roles+=("$role")
done
before_end() { for role in "${roles[@]}"; do sql "$db" "DROP OWNED BY $role CASCADE" >/dev/null || true; done; }
sql "$db" "GRANT ALL ON SCHEMA public TO $mallory"
# What a role or a database was once set to, nobody knows why.
for role in $writer $publisher $runner; do sql "$db" "ALTER ROLE $role SET search_path = public, pg_catalog"; done
for role in $publisher $runner; do sql "$db" "ALTER ROLE $role SET client_encoding = 'LATIN1'"; done
start_emulator
write_files

# Exact types win over "any", over polymorphic ones and over implicit casts, wherever they stand in the path.
plant_function() { # SIGNATURE RESULT
  echo "CREATE FUNCTION public.$1 RETURNS $2 LANGUAGE plpgsql AS \$\$ BEGIN RAISE EXCEPTION 'planted: $1'; END \$\$;"
}
plant_operator() { # OPERATOR LEFT RIGHT RESULT
  local function="o$((operators += 1))"
  plant_function "$function($2, $3)" "$4"
  echo "CREATE OPERATOR public.$1 (LEFTARG = $2, RIGHTARG = $3, FUNCTION = public.$function);"
}
operators=0
{
  for arguments in "text, text" "text, regclass" "text, name" "text, name, name" "text, text, text" "text, regclass, text" \
    "text, regclass, regrole" "text, name, regrole" "text, text, regrole" "text, text, regclass, regrole" "text, regclass, text, text" \
    "text, bigint" "text, integer" "text, timestamptz" "text, name, name, name"; do
    plant_function "format($arguments)" text
  done
  plant_function "unnest(text[])" "SETOF text"
  plant_function "unnest(bigint[])" "SETOF bigint"
  plant_function "unnest(uuid[])" "SETOF uuid"
  plant_function "array_to_string(text[], text)" text
  plant_function "array_length(text[], integer)" integer
  plant_function "hashtextextended(text, integer)" bigint
  plant_function "mod(bigint, integer)" bigint
  plant_function "set_bit(bytea, integer, integer)" bytea
  plant_function "to_jsonb(text)" jsonb
  plant_function "quote_ident(name)" text
  plant_function "pg_notify(text, name)" void
  plant_function "octet_length(varchar)" integer
  for operator in "=" "<>"; do
    plant_operator "$operator" oid regclass boolean
    plant_operator "$operator" regclass oid boolean
    plant_operator "$operator" oid regrole boolean
    plant_operator "$operator" name text boolean
    plant_operator "$operator" bigint integer boolean
    plant_operator "$operator" integer bigint boolean
    plant_operator "$operator" jsonb text boolean
  done
  for operator in "<" ">" "<=" ">="; do
    plant_operator "$operator" bigint integer boolean
    plant_operator "$operator" timestamptz date boolean
  done
  plant_operator "||" text integer text
  plant_operator "||" text bigint text
  plant_operator "||" text name text
  plant_operator "||" text oid text
} >"$dir/planted.sql"
says '' psql -q -v ON_ERROR_STOP=1 -d "$(as "$mallory" "$db")" -f "$dir/planted.sql"
refuses planted psql -v ON_ERROR_STOP=1 -d "$db" -c "SELECT format('%s', 'x'::text)"  # they are met where nobody takes care

# The administrator.
says '' "$ctl" --database "$db" migrate up --set outbox
says '' "$ctl" --database "$db" outbox create shop.outbox
says '' "$ctl" --database "$db" migrate up --set state --schema feed_state
sql "$db" "$read_model"
says '' "$ctl" --database "$db" roles grant writer "$writer" --outbox shop.outbox
says '' "$ctl" --database "$db" roles grant publisher "$publisher" --outbox shop.outbox
says '' "$ctl" --database "$db" roles grant operator "$publisher" --outbox shop.outbox
says '' "$ctl" --database "$db" roles grant reader "$publisher" --outbox shop.outbox
says '' "$ctl" --database "$db" roles grant runner "$runner" --schema feed_state --table feed.item
says '' "$ctl" --database "$db" outbox list
says '' "$ctl" --config "$dir/pubsub.yaml" provision --yes

# The functions by hand, from a session with any path.
may "$db" "SELECT lockstep.create_outbox('other.outbox'); SELECT lockstep.grant_writer('other.outbox', '$writer');
           SELECT lockstep.revoke_rights('other.outbox', '$writer'); SELECT lockstep.drop_outbox('other.outbox')"

# Writer, publisher and runner; a poison event, so that what a bad event does is met too.
for version in 1 2 3; do may "$(as "$writer" "$db")" "$(enqueue a "$version" "{\"title\": \"tür\", \"amount\": $version}")"; done
may "$(as "$writer" "$db")" "$(enqueue bad 1 '{}' Unknown)"
start publisher "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$(as "$publisher" "$db")"
publisher_pid=$pid
start runner "$bin/lockstep-runner" --config "$dir/runner.yaml" --database "$(as "$runner" "$db")"
await 3 "$db" "SELECT amount FROM feed.item WHERE id = 'a'"
is 3 "$db" "SELECT length(title) FROM feed.item WHERE id = 'a'"
await 1 "$db" "SELECT count(*) FROM feed_state.dead_letters"
for command in "lag" "dead-letters list" "dead-letters show 1 --payload" "dead-letters discard 1 --reason mended --yes" "offsets show feed" "offsets history feed" \
  "checkpoint list feed" "outbox list shop.outbox --state pending" "outbox list shop.outbox --state dead" \
  "offsets reset feed --to-earliest --empty --reason again --yes"; do
  # shellcheck disable=SC2086  # a command with its options
  says '' "$ctl" --config "$dir/runner.yaml" --database "$db" $command
done
await 2 "$db" "SELECT epoch FROM feed_state.consumer_groups"
await 3 "$db" "SELECT amount FROM feed.item WHERE id = 'a'"
stop "$pid"
stop "$publisher_pid"
! grep -l planted "$dir"/*.log >"$out" || fail "a planted function was met"

# Every function of both schemas is parsed or has its path.
is '' "$db" "SET search_path = pg_catalog; SELECT string_agg(p.proname, ', ') FROM pg_proc p WHERE p.pronamespace IN ('lockstep'::regnamespace, 'feed_state'::regnamespace)
             AND p.prosqlbody IS NULL AND coalesce(array_to_string(p.proconfig, ',') !~ 'search_path=.*pg_temp', true)"
echo "$checks checks, all as they should be"
