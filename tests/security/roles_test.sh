#!/usr/bin/env bash
# The whole pipeline under roles with the least rights (lockstepctl roles): enqueue, publish, run, dead
# letter, replay, reset, cleanup. And what each of them must not do is refused by Postgres.
#   roles_test.sh BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) name=roles
. "$(dirname "$0")/lib.sh"
write_files
ctl=$bin/lockstepctl
new_database "${name}_source"; source=$made
new_database "${name}_feed"; feed=$made
start_emulator
"$ctl" --config "$dir/pubsub.yaml" provision --yes >/dev/null 2>&1

# As the owner: tables, outbox, states of two services, roles.
"$ctl" --database "$source" migrate up --set outbox >/dev/null
"$ctl" --database "$source" outbox create shop.outbox >/dev/null
sql "$source" 'CREATE TABLE shop.orders (id int); INSERT INTO shop.orders VALUES (1)'
sql "$feed" "$read_model"
sql "$feed" 'CREATE TABLE feed.private (id int)'
for schema in feed_state other_state; do
  "$ctl" --database "$feed" migrate up --set state --schema $schema >/dev/null
done
for job in writer publisher operator reader; do
  roles+=("${name}_$job")
  says "rights of a $job on outbox shop.outbox" \
    "$ctl" --database "$source" roles grant $job "${name}_$job" --outbox shop.outbox --create
done
roles+=("${name}_runner" "${name}_other")
says "rights of a runner on state feed_state and feed.item" \
  "$ctl" --database "$feed" --config "$dir/runner.yaml" roles grant runner "${name}_runner" --create
says '"on": "state feed_state and feed.item"' "$ctl" --database "$feed" roles grant operator "${name}_operator" \
  --schema feed_state --table feed.item --json
says 'reader on state feed_state' "$ctl" --database "$feed" roles grant reader "${name}_reader" --schema feed_state
roles+=("${name}_waiter")
says 'waiter on state feed_state' "$ctl" --database "$feed" roles grant waiter "${name}_waiter" --schema feed_state --create
says 'runner on state other_state' "$ctl" --database "$feed" roles grant runner "${name}_other" --schema other_state --create
refuses 'there is no role "nobody_here".*--create' "$ctl" --database "$source" roles grant writer nobody_here --outbox shop.outbox
refuses 'name it with --outbox' "$ctl" --database "$source" roles grant writer "${name}_writer" --schema feed_state
writer=$(as "${name}_writer" "$source") publisher=$(as "${name}_publisher" "$source")
operator=$(as "${name}_operator" "$source") reader=$(as "${name}_reader" "$source")
runner=$(as "${name}_runner" "$feed") other=$(as "${name}_other" "$feed")
feed_operator=$(as "${name}_operator" "$feed") feed_reader=$(as "${name}_reader" "$feed")

# The pipeline. A row of each fate: applied, dead in the outbox (an attribute that Pub/Sub refuses can't get past
# enqueue, so that the owner makes one dead by hand), dead in the runner.
for i in 1 2 3; do may "$writer" "$(enqueue "k$i" 1 "{\"title\": \"t$i\", \"amount\": $i}")"; done
may "$writer" "$(enqueue poison 1 '{}' Unknown)"
may "$writer" "$(enqueue poison 2 '{"title": "good", "amount": 7}')"
start publisher "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$publisher" \
  --cleaner.retention 1ms --cleaner.interval 300ms
publisher_pid=$pid
start runner "$bin/lockstep-runner" --config "$dir/runner.yaml" --database "$runner"
runner_pid=$pid
await 3 "$feed" 'SELECT count(*) FROM feed.item'
await 'dead|1' "$feed" 'SELECT state, version FROM feed_state.dead_letters'
await 1 "$feed" 'SELECT count(*) FROM feed_state.parked'
await 0 "$source" 'SELECT count(*) FROM shop.outbox'  # the cleaner's work

# Dead letters: looked at by a reader, mended by an operator.
says 'poison' "$ctl" --database "$feed_reader" dead-letters list --group feed --schema feed_state
says 'payload_bytes' "$ctl" --database "$feed_reader" dead-letters show 1 --group feed --schema feed_state --json
refuses 'permission denied' "$ctl" --database "$feed_reader" dead-letters show 1 --payload --group feed --schema feed_state
refuses 'permission denied' "$ctl" --database "$feed_reader" --config "$dir/runner.yaml" dead-letters discard 1 --yes --reason test
says '' "$ctl" --database "$feed_operator" --config "$dir/runner.yaml" dead-letters discard 1 --yes --reason test
await good "$feed" "SELECT title FROM feed.item WHERE id = 'poison'"

# Waiting for a version: nothing but the functions.
waiter=$(as "${name}_waiter" "$feed")
may_not "$runner" "SELECT feed_state.reached('feed', 'item', 'k1', 1)"
may_not "$waiter" 'SELECT * FROM feed_state.key_state'
may_not "$waiter" 'SELECT * FROM feed.item'
refuses 'does not follow the versions' psql -d "$waiter" -c "SELECT feed_state.reached('feed', 'item', 'k1', 1)"
# A table of the caller's own in front of ours answers nothing.
refuses 'does not follow the versions' psql -d "$waiter" -c "CREATE TEMP TABLE active_slots (group_name text, generation int,
  follows_versions bool); INSERT INTO active_slots VALUES ('feed', 1, true); SELECT feed_state.reached('feed', 'item', 'k1', 1)"

# Looking: one event, what waits, lag and offsets.
says 'dead letter 1' "$ctl" --database "$feed_reader" trace --aggregate-type item --aggregate-id poison --version 1 --schema feed_state
says 'Nothing of group feed waits' "$ctl" --database "$feed_reader" parked list --group feed --schema feed_state
says '0  missing' "$ctl" --database "$feed_reader" reconcile --group feed --schema feed_state --source "$reader" --outbox shop.outbox
says 'feed' "$ctl" --database "$feed_reader" lag --schema feed_state
says 'feed' "$ctl" --database "$feed_reader" offsets show --schema feed_state
says '\[' "$ctl" --database "$feed_reader" offsets export feed --schema feed_state --json
says '' "$ctl" --database "$feed_reader" checkpoint list feed --schema feed_state

# A reset that empties the read model: an operator's, not a runner's.
refuses 'permission denied' "$ctl" --database "$runner" --config "$dir/runner.yaml" offsets reset feed --to-earliest \
  --empty --accept-missing --reason test --yes
says 'epoch 2' "$ctl" --database "$feed_operator" --config "$dir/runner.yaml" offsets reset feed --to-earliest \
  --empty --accept-missing --reason test --yes
await 'done' "$feed" 'SELECT seek_state FROM feed_state.consumer_groups WHERE epoch = 2'
await 3 "$feed" "SELECT count(*) FROM feed.item WHERE id LIKE 'k_'"
says 'offsets.reset|reset' "$ctl" --database "$feed_reader" offsets history feed --schema feed_state
# What was decided about an event holds after it, too.
await 4 "$feed" 'SELECT count(*) FROM feed.item'

# The outbox by hand.
stop "$publisher_pid"
may "$writer" "$(enqueue held 1 '{"title": "secret"}')"
sql "$source" "UPDATE shop.outbox_pending SET dead_at = now(), available_at = 'infinity', last_error = 'by hand'"
says 'held +1 ' "$ctl" --database "$reader" outbox list shop.outbox --state dead
says 'shop.outbox' "$ctl" --database "$reader" outbox list
refuses 'permission denied' "$ctl" --database "$reader" outbox replay shop.outbox --key held --yes
refuses 'permission denied' "$ctl" --database "$writer" outbox replay shop.outbox --key held --yes
says 'replay: 1' "$ctl" --database "$operator" outbox replay shop.outbox --key held --yes
says 'quarantine: 1' "$ctl" --database "$operator" outbox quarantine shop.outbox --key held --reason test --yes
says 'release: 1' "$ctl" --database "$operator" outbox release shop.outbox --key held --yes
says '"payload_bytes": null' "$ctl" --database "$operator" outbox list shop.outbox --state pending --json
says '' "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$publisher" --once
await secret "$feed" "SELECT title FROM feed.item WHERE id = 'held'"
stop "$runner_pid"
if grep -E 'level=(error|critical)|permission denied' "$dir/publisher.log" "$dir/runner.log"; then fail 'an error under the roles'; fi

# What they must not do. (A GRANT of what one can't grant is a warning in Postgres, not an error.)
sql "$writer" "SELECT lockstep.grant_publisher('shop.outbox', current_user::regrole)" >/dev/null 2>&1 || true
may_not "$writer" 'SELECT payload FROM shop.outbox'
may_not "$writer" 'UPDATE shop.outbox SET payload = NULL'
may_not "$writer" 'UPDATE shop.outbox_pending SET available_at = now()'
may_not "$writer" 'SELECT * FROM shop.outbox_pending'
may_not "$writer" 'INSERT INTO shop.outbox_pending (sequence, aggregate_hash, version) VALUES (1, 1, 1)'
may_not "$writer" 'INSERT INTO shop.outbox_published (sequence, published_at, attempts) VALUES (1, now(), 0)'
may_not "$writer" 'SELECT * FROM shop.outbox_status'
may_not "$writer" 'CREATE TEMP TABLE mine AS SELECT 1; CREATE TRIGGER t AFTER INSERT ON mine REFERENCING NEW TABLE AS inserted EXECUTE FUNCTION shop.outbox_inserted()'
may_not "$writer" 'DELETE FROM shop.outbox'
may_not "$writer" "INSERT INTO shop.outbox (event_id, topic, aggregate_type, aggregate_id, event_type, version, payload, sequence)
  OVERRIDING SYSTEM VALUE VALUES (gen_random_uuid(), 't', 'x', 'y', 'T', 1, '', 1)"
may_not "$writer" 'SELECT * FROM lockstep.outbox_audit'
may_not "$writer" 'SELECT * FROM shop.orders'
may_not "$writer" 'CREATE TABLE shop.mine (a int)'
may_not "$writer" "SELECT lockstep.drop_outbox('shop.outbox', true)"
may_not "$publisher" 'SELECT * FROM shop.orders'
may_not "$publisher" 'UPDATE shop.outbox SET payload = $$x$$'
refuses 'can only be updated to DEFAULT' psql -v ON_ERROR_STOP=1 -d "$publisher" -c "UPDATE shop.outbox SET payload_sha = 'x'"
may_not "$publisher" 'UPDATE shop.outbox_pending SET quarantined_at = now()'
may_not "$publisher" 'UPDATE shop.outbox_published SET published_at = now()'
may_not "$publisher" "$(enqueue k9 1 '{}')"
may_not "$publisher" 'UPDATE lockstep.outbox_audit SET note = NULL'
may_not "$publisher" 'DELETE FROM lockstep.outbox_audit'
may_not "$publisher" 'CREATE TABLE lockstep.mine (a int)'
# Another outbox of the database: its shards and its audit are not theirs.
sql "$source" "SELECT lockstep.create_outbox('shop.bank_outbox')" >/dev/null
sql "$publisher" "UPDATE lockstep.outboxes SET shards = 7"
is 1 "$source" "SELECT shards FROM lockstep.outboxes WHERE outbox = 'shop.bank_outbox'::regclass"
is 7 "$source" "SELECT shards FROM lockstep.outboxes WHERE outbox = 'shop.outbox'::regclass"
audit() { echo "INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id${2:-}) VALUES ('ann', 'replay', '$1', 1, gen_random_uuid()${3:-})"; }
for role in "$publisher" "$operator"; do
  refuses 'row-level security' psql -v ON_ERROR_STOP=1 -d "$role" -c "$(audit shop.bank_outbox)"
  may_not "$role" "$(audit shop.outbox ', role' ", 'postgres'")"
  may "$role" "$(audit shop.outbox)"
done
may_not "$publisher" "SELECT lockstep.clean_audit('shop.bank_outbox', interval '400 days', 100)"
# As long as a month counts as 30 days this is more than 30; by the calendar it lies in the future.
is 0 "$publisher" "SELECT lockstep.clean_audit('shop.outbox', interval '-1200 months 36031 days', 100)"
is "${name}_operator,${name}_publisher" "$source" "SELECT string_agg(role, ',' ORDER BY role) FROM lockstep.outbox_audit WHERE actor = 'ann'"
may_not "$operator" 'SELECT payload FROM shop.outbox'
may_not "$operator" 'DELETE FROM shop.outbox'
may_not "$operator" 'DELETE FROM shop.outbox_pending'
may_not "$operator" 'INSERT INTO shop.outbox_published (sequence, published_at, attempts) VALUES (1, now(), 0)'
may_not "$operator" 'UPDATE shop.outbox_leases SET owner = $$me$$'
may "$reader" 'SELECT * FROM shop.outbox_status'
may_not "$operator" 'UPDATE lockstep.outbox_audit SET actor = NULL'
may_not "$reader" 'SELECT payload FROM shop.outbox'
may_not "$runner" 'SELECT * FROM other_state.inbox'
may_not "$runner" 'SELECT * FROM other_state.dead_letters'
may_not "$runner" 'SELECT * FROM feed.private'
may_not "$runner" 'UPDATE feed_state.audit SET reason = NULL'
may_not "$runner" 'DELETE FROM feed_state.audit'
may_not "$runner" "INSERT INTO feed_state.audit (group_name, action, operator, role) VALUES ('feed', 'x', 'ann', 'postgres')"
is "${name}_operator" "$feed" "SELECT DISTINCT role FROM feed_state.audit WHERE action = 'offsets.reset'"
may_not "$runner" "UPDATE feed_state.schema_migrations SET md5 = 'x'"
may_not "$runner" 'TRUNCATE feed.item'
may_not "$runner" 'ALTER TABLE feed.item ADD COLUMN x int'
may_not "$runner" 'CREATE TABLE feed_state.mine (a int)'
may_not "$runner" 'CREATE TABLE feed.mine (a int)'
may_not "$runner" 'DROP TABLE feed_state.inbox'
may_not "$other" 'SELECT * FROM feed_state.offsets'
may_not "$other" 'SELECT * FROM feed.item'
may_not "$feed_reader" 'SELECT payload FROM feed_state.dead_letters'
may_not "$feed_reader" 'SELECT payload FROM feed_state.parked'
may_not "$feed_reader" 'SELECT * FROM feed.item'
may_not "$feed_reader" 'UPDATE feed_state.consumer_groups SET epoch = 9'
may_not "$feed_operator" 'DROP TABLE feed.item'

# And back: nothing is left of a role's rights.
for job in writer publisher operator reader; do
  says 'no rights' "$ctl" --database "$source" roles revoke "${name}_$job" --outbox shop.outbox --yes
done
for job in runner operator reader waiter; do
  says 'no rights' "$ctl" --database "$feed" roles revoke "${name}_$job" --schema feed_state --table feed.item --yes
done
says 'no rights' "$ctl" --database "$feed" roles revoke "${name}_other" --schema other_state --yes
for database in "$source" "$feed"; do
  is 0 "$database" "SELECT count(*) FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid AND r.rolname LIKE '${name}\\_%'
    WHERE d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
done
may_not "$writer" "$(enqueue k9 1 '{}')"
echo "$checks checks passed"
