#!/usr/bin/env bash
# Sagas under roles with the least rights (lockstepctl roles --saga): what each may do, and what Postgres refuses it.
#   saga_roles_test.sh BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) name=saga_roles
. "$(dirname "$0")/lib.sh"
ctl=$bin/lockstepctl
new_database "${name}_db"; db=$made
"$ctl" --database "$db" migrate up --set saga >/dev/null
cat >"$dir/order.yaml" <<'EOT'
saga: order
version: 1
steps:
  - {name: reserve, action: sql:shop.reserve, compensate: sql:shop.release}
  - {name: approve, action: wait}
EOT
sed 's/version: 1/version: 2/' "$dir/order.yaml" >"$dir/order2.yaml"
"$ctl" --database "$db" saga register "$dir/order.yaml" >/dev/null
sql "$db" "CREATE SCHEMA shop; CREATE TABLE shop.stock (n int); INSERT INTO shop.stock VALUES (5);
  CREATE FUNCTION shop.reserve(request jsonb) RETURNS jsonb LANGUAGE sql AS 'UPDATE shop.stock SET n = n - 1 RETURNING to_jsonb(n)';
  CREATE FUNCTION shop.release(request jsonb) RETURNS jsonb LANGUAGE sql AS 'UPDATE shop.stock SET n = n + 1 RETURNING to_jsonb(n)';
  REVOKE ALL ON FUNCTION shop.reserve(jsonb), shop.release(jsonb) FROM PUBLIC"
for job in starter orchestrator operator reader; do
  roles+=("${name}_$job")
  says "rights of a $job on sagas" "$ctl" --database "$db" roles grant $job "${name}_$job" --saga --create
done
roles+=("${name}_nobody")
sql "$db" "CREATE ROLE ${name}_nobody LOGIN"
starter=$(as "${name}_starter" "$db") orchestrator=$(as "${name}_orchestrator" "$db")
operator=$(as "${name}_operator" "$db") reader=$(as "${name}_reader" "$db") nobody=$(as "${name}_nobody" "$db")

# Nobody has anything.
may_not "$nobody" "SELECT lockstep.saga_start('order', '{}')"
may_not "$nobody" 'SELECT * FROM lockstep.sagas'

# A starter starts and signals; it reads nothing, and changes the course of none.
saga=$(sql "$starter" "SELECT lockstep.saga_start('order', '{\"order\": 1}', key => 'o-1')")
says "^$saga$" "$ctl" --database "$starter" saga start order --input '{"order": 1}' --key o-1
may "$starter" "SELECT lockstep.saga_signal('$saga', 'approve', 'succeeded')"
for table in sagas saga_steps saga_work saga_audit saga_definitions; do
  may_not "$starter" "SELECT * FROM lockstep.$table"
  for role in "$starter" "$orchestrator" "$operator" "$reader"; do
    may_not "$role" "DELETE FROM lockstep.$table"
    may_not "$role" "TRUNCATE lockstep.$table"
  done
done
for call in "saga_pause('$saga', 'me')" "saga_cancel('$saga', 'me')" "saga_register('x', 1, '', '{}', '{a}', NULL, 'me')" \
  "saga_claim('me', '15 s', 1)" "saga_clean('0 s', 10, NULL)" "saga_save('$saga', 'Completed', NULL, NULL, NULL, NULL, false)" \
  "saga_lock('$saga')" "saga_touch('$saga')" "saga_reopen(NULL, 'Running', NULL)" "saga_act('$saga', NULL, 'me', 'x', '')"; do
  may_not "$starter" "SELECT lockstep.$call"
  may_not "$reader" "SELECT lockstep.$call"
done

# A reader looks.
says 'order v1' "$ctl" --database "$reader" saga list
says 'reserve' "$ctl" --database "$reader" saga show "$saga" --payloads --history
says 'order' "$ctl" --database "$reader" saga definitions
says 'No such dead' "$ctl" --database "$reader" saga dead list
refuses 'permission denied' "$ctl" --database "$reader" saga pause "$saga"
refuses 'permission denied' "$ctl" --database "$reader" saga register "$dir/order2.yaml"
may_not "$reader" "SELECT lockstep.saga_start('order', '{}')"
may_not "$reader" "SELECT lockstep.saga_signal('$saga', 'approve', 'failed')"
may_not "$reader" "UPDATE lockstep.sagas SET state = 'Paused'"

# An operator intervenes, by the functions alone, and is in the audit as whom Postgres let him in.
says 'is registered' "$ctl" --database "$operator" saga register "$dir/order2.yaml"
says 'paused' "$ctl" --database "$operator" saga pause "$saga" --reason 'look'
says 'goes on' "$ctl" --database "$operator" saga resume "$saga"
is t "$db" "SELECT bool_and(role = '${name}_operator') FROM lockstep.saga_audit WHERE saga = '$saga' AND action IN ('pause', 'resume')"
may_not "$operator" "UPDATE lockstep.sagas SET state = 'Completed'"
may_not "$operator" "UPDATE lockstep.saga_definitions SET body = '{}'"
may_not "$operator" "INSERT INTO lockstep.saga_audit (saga, actor, action) VALUES ('$saga', 'me', 'x')"
may_not "$operator" "SELECT lockstep.saga_claim('me', '15 s', 1)"

# An orchestrator runs them with what it was given, and no more: without the right to the functions it waits and says so.
may_not "$orchestrator" "SELECT lockstep.saga_start('order', '{}')"
may_not "$orchestrator" "SELECT lockstep.saga_register('x', 1, '', '{}', '{a}', NULL, 'me')"
may_not "$orchestrator" "SELECT lockstep.saga_pause('$saga', 'me')"
may_not "$orchestrator" "UPDATE lockstep.sagas SET state = 'Completed'"
may_not "$orchestrator" "SELECT shop.reserve('{}')"
start orchestrator "$bin/lockstep-orchestrator" --database "$orchestrator" --http.port 0
await SAGA.MISCONFIGURED "$db" "SELECT error_code FROM lockstep.saga_steps WHERE saga = '$saga' AND step = 0"
is '0|Ready' "$db" "SELECT attempts, state FROM lockstep.saga_steps WHERE saga = '$saga' AND step = 0"
sql "$db" "GRANT USAGE ON SCHEMA shop TO ${name}_orchestrator; GRANT EXECUTE ON FUNCTION shop.reserve(jsonb), shop.release(jsonb) TO ${name}_orchestrator;
  GRANT SELECT, UPDATE ON shop.stock TO ${name}_orchestrator"
says 'tried again' "$ctl" --database "$operator" saga retry "$saga" --yes
await Completed "$db" "SELECT state FROM lockstep.sagas WHERE id = '$saga'"
is 4 "$db" 'SELECT n FROM shop.stock'
stop "$pid"

# Taken back, nothing is left.
for job in starter orchestrator operator reader; do
  says 'no rights on sagas' "$ctl" --database "$db" roles revoke "${name}_$job" --saga --yes
  may_not "$(as "${name}_$job" "$db")" "SELECT lockstep.saga_start('order', '{}')"
  may_not "$(as "${name}_$job" "$db")" 'SELECT * FROM lockstep.sagas'
done
sql "$db" "DROP OWNED BY ${name}_orchestrator"
echo "$checks checks: each role may do its job and nothing else"
