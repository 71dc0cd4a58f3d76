#!/usr/bin/env bash
# Runs docs/sagas.md: its definition, SQL and commands, with lockstep-orchestrator and the payment provider of examples/order
# (where there is node). Then lockstepctl saga, as an operator types it.
#   sagas_test.sh BIN_DIR SOURCE_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
dir=$(mktemp -d)
database=sagas_$$ service=saga_service_$$ worker=saga_orchestrator_$$
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" -c "DROP ROLE IF EXISTS $service" \
    -c "DROP ROLE IF EXISTS $worker" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "FAILED: $1"; tail -n 40 "$dir"/*.out 2>/dev/null; exit 1; }
export PATH=$bin:$PATH
cd "$dir"
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database LOCKSTEP_OPERATOR=ann
sql() { psql -XqAt -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" "$@"; }
page=$source/docs/sagas.md
block() { awk -v open="\`\`\`$1" '$0 == open { on = 1; next } /^```$/ { on = 0 } on' "$page"; }
commands() { block sh | grep -E "^lockstepctl $1" || true; } # REGEX: those of the page, in its order
says() { # REGEX COMMAND…: succeeds and says so
  local regex=$1; shift
  "$@" >said.out 2>&1 </dev/null || fail "$*"
  grep -qE -e "$regex" said.out || fail "no /$regex/: $*"
}
refuses() { # REGEX COMMAND…: fails and says why
  local regex=$1; shift
  if "$@" >said.out 2>&1 </dev/null; then fail "not refused: $*"; fi
  grep -qE -e "$regex" said.out || fail "no /$regex/: $*"
}
await() { # WHAT SQL: until it answers t
  local try
  for try in $(seq 300); do
    [ "$(sql -c "$2")" != t ] || return 0
    sleep 0.1
  done
  sql -c 'SELECT name, state, last_error FROM lockstep.saga_steps ORDER BY saga, step' >steps.out
  fail "$1"
}
await_step() { await "$2 is $3" "SELECT state = '$3' FROM lockstep.saga_steps WHERE saga = '$1' AND name = '$2'"; }
await_saga() { await "the saga is $2" "SELECT state = '$2' FROM lockstep.sagas WHERE id = '$1'"; }

# Before anything is set up.
refuses 'migrate up --set saga' lockstepctl saga list
refuses 'migrate up --set saga' lockstepctl saga show 00000000-0000-0000-0000-000000000000
refuses 'migrate up --set saga' lockstepctl saga clean --yes

# The page's definition is the example's, its function that of shop.sql.
block 'yaml order.yaml' >order.yaml
grep -vE '^ *(#|$)' "$source/examples/order/order.yaml" | diff order.yaml - >order.out || fail 'the definition of the page is not examples/order/order.yaml'
block 'sql reserve_stock' >reserve.sql
[ -s reserve.sql ] || fail 'the page has a function'
grep -qF "$(tr -s ' \n' '  ' <reserve.sql)" <(tr -s ' \n' '  ' <"$source/examples/order/shop.sql") || fail 'the function of the page is not that of examples/order/shop.sql'

# Setting up, as the page says it.
{ commands '(migrate|roles)'; } | sed "s/shop_service/$service/; s/shop_orchestrator/$worker/" >setup.sh
[ "$(wc -l <setup.sh)" = 3 ] || fail 'the page sets up in three commands'
bash -euo pipefail setup.sh >setup.out 2>&1 || fail 'setting up'
lockstepctl migrate up --set outbox >/dev/null
lockstepctl outbox create shop.outbox >/dev/null
sql -f "$source/examples/order/shop.sql" >shop.out 2>&1
block 'sql grants.sql' | sed "s/shop_orchestrator/$worker/" | sql >grants.out || fail 'the grants of the page'
lockstepctl roles grant writer "$worker" --outbox shop.outbox >/dev/null

# The payment provider, where there is node; its port in place of the page's.
payments=
if command -v node >/dev/null; then
  node "$source/examples/order/payments.js" ledger >payments.out 2>&1 &
  pids+=($!)
  for _ in $(seq 100); do
    payments=$(sed -n 's/^listening on //p' payments.out)
    [ -z "$payments" ] || break
    sleep 0.1
  done
  [ -n "$payments" ] || fail 'the payment provider did not start'
  sed -i "s|http://127.0.0.1:8080|$payments|" order.yaml
fi
commands 'saga (check|register|definitions)' >register.sh
[ "$(wc -l <register.sh)" = 3 ] || fail 'the page registers in three commands'
bash -euo pipefail register.sh >register.out 2>&1 || fail 'registering'
grep -q 'order version 1: 5 steps, sound' register.out || fail 'check'
grep -qE '^order +1 +5 +0 ' register.out || fail 'definitions'
says 'was registered already' lockstepctl saga register order.yaml
sed 's/7d/8d/' order.yaml >changed.yaml
refuses 'raise the version' lockstepctl saga register changed.yaml
sed 's/reserve_stock/reserve/; s/^  - name: ship/  - nam: ship/' order.yaml >wrong.yaml
refuses "^wrong.yaml:2[0-9]:5: step: unknown key 'nam'; did you mean 'name'\?" lockstepctl saga check wrong.yaml
refuses '^wrong.yaml:' lockstepctl saga register order.yaml wrong.yaml
says '"hash": "[0-9a-f]{64}"' lockstepctl saga check order.yaml --json
lockstepctl saga definitions order --version 1 >again.yaml
says 'was registered already' lockstepctl saga register again.yaml
refuses 'no saga nothing of version 3 is registered' lockstepctl saga definitions nothing --version 3

# Started by the page's transaction; without an orchestrator nothing happens yet.
block 'sql place_order.sql' | sql >place.out || fail 'the transaction of the page'
ID=$(sql -c "SELECT saga FROM shop.orders WHERE id = 'o-1'")
export ID
[ "$(sql -c "SELECT tenant, key, state FROM lockstep.sagas WHERE id = '$ID'")" = 'acme|o-1|Running' ] || fail 'the saga of the page'
says "^$ID$" lockstepctl saga start order --key o-1 --tenant acme \
  --input '{"order": "o-1", "customer": "ann", "item": "lamp", "count": 1, "cents": 4900, "card": "visa"}'
refuses 'STORAGE.CONFLICT' lockstepctl saga start order --key o-1 --tenant acme --input '{}'
refuses 'no JSON' lockstepctl saga start order --input '{'
refuses 'no saga nothing is registered' lockstepctl saga start nothing
echo '{"order": "o-2", "customer": "bob", "item": "book", "count": 2, "cents": 0}' >input.json
other=$(lockstepctl saga start order --input @input.json --ttl 1h)
[ "$(sql -c "SELECT (deadline - created_at) = interval '1 hour' FROM lockstep.sagas WHERE id = '$other'")" = t ] || fail '--ttl'
[ "$(sql -c "SELECT actor LIKE 'ann%' FROM lockstep.saga_audit WHERE saga = '$other' AND action = 'start'")" = t ] || fail 'the audit of a start'

# Looking and mending. The page's commands pause it and go on.
block sh | awk '/^lockstepctl saga (list|show|pause|resume|signal)/' >look.sh
[ "$(wc -l <look.sh)" = 5 ] || fail 'the page looks and mends in five commands'
bash -euo pipefail look.sh >look.out 2>&1 || fail 'the commands of the page'
grep -qE '^reserve +sql:shop.reserve_stock +Ready ' look.out || fail 'show has no steps'
grep -q 'step approve is taken as succeeded' look.out || fail 'signal'
says 'paused by ann.*the customer has called' lockstepctl saga show "$ID" --history
says '"state": "Paused"' bash -c "lockstepctl saga pause $ID >/dev/null; lockstepctl saga show $ID --json"
says "$ID" lockstepctl saga list --state Paused --tenant acme --key o-1
says 'No such sagas' lockstepctl saga list --definition nothing
says '"history": \[' lockstepctl saga show "$ID" --json --history
says '"card": "visa"' lockstepctl saga show "$ID" --payloads --json
[ -z "$(lockstepctl saga show "$ID" --json --history | grep visa)" ] || fail 'payloads are shown without being asked for'
refuses 'is no saga.s id' lockstepctl saga show nonsense
refuses 'there is no saga' lockstepctl saga pause 00000000-0000-0000-0000-000000000000
refuses 'has no step aprove' lockstepctl saga signal "$ID" aprove failed
refuses 'too late|otherwise' lockstepctl saga signal "$ID" approve failed
refuses 'outcome' lockstepctl saga signal "$ID" approve perhaps
refuses 'Repeat with --yes' lockstepctl saga cancel "$ID"
refuses 'Repeat with --yes' lockstepctl saga skip "$ID" charge
refuses 'only a dead one is replayed' lockstepctl saga dead replay "$ID" --from-failed-step --yes
refuses 'say how' lockstepctl saga dead replay "$ID" --yes
refuses 'say which dead sagas' lockstepctl saga dead replay --from-failed-step --yes
refuses 'not dead' lockstepctl saga dead inspect "$ID"
says 'No such dead saga' lockstepctl saga dead list
says 'goes on' lockstepctl saga resume "$ID" --reason 'enough'
refuses 'starter, orchestrator, reader and operator' lockstepctl roles grant writer "$service" --saga
refuses 'starter, orchestrator, reader and operator' lockstepctl roles grant starter "$service" --outbox shop.outbox
says 'rights of a operator on sagas' lockstepctl roles grant operator "$service" --saga
says 'no rights on sagas' lockstepctl roles revoke "$service" --saga --yes
says '^0 sagas are gone' lockstepctl saga clean --yes

if [ ! -x "$bin/lockstep-orchestrator" ]; then
  echo 'there is no lockstep-orchestrator in this build: the sagas were not run'
  exit 77
fi
if [ -z "$payments" ]; then
  echo 'there is no node: the sagas were not run'
  exit 77
fi
block 'yaml orchestrator.yaml' >orchestrator.yaml
grep -q '^database: ' orchestrator.yaml || fail 'the configuration of the page'
sed -i "s|^database: .*|database: ${LOCKSTEP_DATABASE/lockstep@/$worker@}|; /password_file/d; s|^  origins: .*|  origins: [$payments]\\n  allow_private: true|" orchestrator.yaml
echo 'http: {port: 0}' >>orchestrator.yaml
lockstep-orchestrator --config orchestrator.yaml >orchestrator.out 2>&1 &
pids+=($!)
await_saga "$ID" Completed
[ "$(sql -c "SELECT state FROM shop.orders WHERE id = 'o-1'")" = shipped ] || fail 'the order was not shipped'
says '^charge +.*Succeeded +.*' lockstepctl saga show "$ID"
says '"charge": "c-1"' lockstepctl saga show "$ID" --payloads
says '"by": "ann"' lockstepctl saga show "$ID" --payloads
refuses 'nothing to pause' lockstepctl saga pause "$ID"
# What costs nothing is not charged; a signal as the page's SQL gives it; then it is undone.
await_step "$other" approve InFlight
says '^charge +.*Skipped' lockstepctl saga show "$other"
says 'is being undone' lockstepctl saga cancel "$other" --reason 'changed her mind' --yes
await_saga "$other" Cancelled
says '^reserve +.*Compensated' lockstepctl saga show "$other"
third=$(lockstepctl saga start order --input '{"order": "o-3", "customer": "eve", "item": "lamp", "count": 1, "cents": 5, "card": "visa"}')
block sql | grep saga_signal | sed "s/01890a5d-ac96-774b-bcce-b302099a8057/$third/" | sql >signal.out || fail 'the signal of the page'
[ "$(cat signal.out)" = t ] || fail 'the signal of the page does not count'
await_saga "$third" Completed
# More than there is on hand: refused for good, nothing to undo. Its reason is shown.
none=$(lockstepctl saga start order --input '{"order": "o-4", "customer": "eve", "item": "piano", "count": 9, "cents": 5, "card": "visa"}')
await_saga "$none" Failed
says 'there are not 9 of piano on hand' lockstepctl saga show "$none"
# A person undoes what no call can: compensate: wait.
cat >by_hand.yaml <<'END'
saga: by-hand
version: 1
steps:
  - {name: look, action: sql:shop.look, compensate: wait}
  - {name: fail, action: sql:shop.fail, when: $.input.fails}
END
sql -c "CREATE FUNCTION shop.look(request jsonb) RETURNS jsonb RETURN request" \
  -c "CREATE FUNCTION shop.fail(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN PERFORM lockstep.saga_refuse('not today'); END \$\$"
lockstepctl saga register by_hand.yaml >/dev/null
hand=$(lockstepctl saga start by-hand --input '{"fails": true}')
await "the undoing waits" "SELECT state = 'InFlight' AND compensating FROM lockstep.saga_steps WHERE saga = '$hand' AND name = 'look'"
says 'compensating' lockstepctl saga show "$hand"
says 'taken as succeeded' lockstepctl saga signal "$hand" look succeeded
await_saga "$hand" Failed
says '^look +.*Compensated' lockstepctl saga show "$hand"
says 'fail: .*not today' lockstepctl saga show "$hand"
[ "$(sql -c "SELECT dead_at IS NULL FROM lockstep.sagas WHERE id = '$hand'")" = t ] || fail 'one that was undone is not dead'
# Kept as long as asked, then gone.
says '^5 sagas are gone' lockstepctl saga clean --older-than 0ms --yes
refuses 'there is no saga' lockstepctl saga show "$ID"
echo 'docs/sagas.md does what it says'
