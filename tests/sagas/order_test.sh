#!/usr/bin/env bash
# The worked example (examples/order), as a user runs it: lockstep-orchestrator, lockstepctl, Postgres, and a payment provider in
# Node that fails as it is told. What happened is read from those who took part: the provider's ledger, the shop's tables, the
# outbox; and from the saga's audit.
#   order_test.sh BIN_DIR SOURCE_DIR success|failures|timeouts|cancel|pause|skip|replay|doubt     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) source=$(cd "$2" && pwd) what=$3
command -v node >/dev/null || { echo 'SKIPPED: node is not installed'; exit 77; }
dir=$(mktemp -d)
database=order_${what}_$$ role=order_orchestrator_$$
children=()
cleanup() {
  for pid in "${children[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" -c "DROP ROLE IF EXISTS $role" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
fail() {
  echo "FAILED: $1" >&2
  [ -z "${saga:-}" ] || ctl saga show "$saga" --history >&2 || true
  tail -n 15 "$dir"/*.log >&2 || true
  exit 1
}
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
sql() { psql -XqAt -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" -c "$1"; }
ctl() { "$bin/lockstepctl" --yes "$@"; }
is() { # WHAT WANTED GOT
  [ "$2" = "$3" ] || fail "$1: wanted '$2', got '$3'"
}

ctl migrate up --set outbox >/dev/null
ctl migrate up --set saga >/dev/null
ctl outbox create shop.outbox >/dev/null
psql -Xq -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" -f "$source/examples/order/shop.sql" 2>"$dir/shop.log"
node "$source/examples/order/payments.js" "$dir/ledger" >"$dir/payments.out" 2>"$dir/payments.log" &
children+=($!)
for _ in $(seq 200); do [ ! -s "$dir/payments.out" ] || break; sleep 0.05; done
payments=$(sed -n 's/^listening on //p' "$dir/payments.out")
[ -n "$payments" ] || fail 'the payment provider did not start'
tell() { # PATH ANSWER…: what its next requests get
  local answers
  answers=$(printf ', "%s"' "${@:2}")
  curl -sf -d "{\"path\": \"$1\", \"answers\": [${answers:2}]}" "$payments/tell" >/dev/null
}
# The example with the provider's port; SED… makes another version of it.
version=0
register() {
  version=$((version + 1))
  # Tries follow each other quickly.
  sed -e "s|http://127.0.0.1:8080|$payments|; s/^version: .*/version: $version/" \
    -e 's/^\( *\)timeout: 5s/\1timeout: 1500ms\n\1retry: {max_attempts: 3, base: 100ms, cap: 300ms}/' "${@/#/-e}" \
    "$source/examples/order/order.yaml" >"$dir/order.yaml"
  ctl saga check "$dir/order.yaml" >/dev/null || fail 'the definition has mistakes'
  ctl saga register "$dir/order.yaml" >/dev/null
}
# The rights of the job, and no more.
ctl roles grant orchestrator "$role" --saga --create >/dev/null
ctl roles grant writer "$role" --outbox shop.outbox >/dev/null
sql "GRANT USAGE ON SCHEMA shop TO $role; GRANT SELECT, INSERT, UPDATE ON shop.stock, shop.orders, shop.reservation TO $role"
cat >"$dir/orchestrator.yaml" <<YAML
database: ${LOCKSTEP_DATABASE/lockstep@/$role@}
http: {enabled: false}
actions: {allow_private: true}
lease: 2s
heartbeat: 500ms
YAML
orchestrator() { # NUMBER
  "$bin/lockstep-orchestrator" --config "$dir/orchestrator.yaml" 2>>"$dir/orchestrator$1.log" &
  orchestrator=$!
  children+=("$orchestrator")
}

await() { # WHAT SQL: until it answers t
  for _ in $(seq 300); do
    [ "$(sql "$2")" != t ] || return 0
    sleep 0.1
  done
  fail "waited in vain: $1"
}
await_state() { await "the saga is $1" "SELECT state = '$1' FROM lockstep.sagas WHERE id = '$saga'"; }
await_step() { await "$1 is $2" "SELECT state = '$2' FROM lockstep.saga_steps WHERE saga = '$saga' AND name = '$1'"; }
order() { # ID ITEM CARD [CENTS]: sets saga
  saga=$(sql "SELECT shop.place_order('$1', 'ann', '$2', 1, ${4:-4900}, '$3')")
}
states() { sql "SELECT string_agg(state, ' ' ORDER BY step) FROM lockstep.saga_steps WHERE saga = '$saga'"; }
undone() {
  sql "SELECT coalesce(string_agg(t.name, ' ' ORDER BY a.id), '') FROM lockstep.saga_audit a
         JOIN lockstep.saga_steps t USING (saga, step) WHERE a.saga = '$saga' AND a.to_state = 'Compensated'"
}
# What the provider did: "charge refund"
did() { sed -n "s|.*\"path\":\"/\([a-z]*\)\".*\"order\":\"$1\".*\"did\":true.*|\1|p" "$dir/ledger" | paste -sd ' '; }
asked() { sed -n "s|.*\"path\":\"/\([a-z]*\)\".*\"order\":\"$1\".*|\1|p" "$dir/ledger" | paste -sd ' '; }
events() {
  sql "SELECT coalesce(string_agg(topic, ' ' ORDER BY sequence), '') FROM shop.outbox
        WHERE convert_from(payload, 'UTF8')::jsonb->>'order' = '$1'"
}
reservation() { sql "SELECT coalesce(string_agg(state, ' '), '') FROM shop.reservation WHERE order_id = '$1'"; }
# expect STATE STEPS UNDONE: how the saga stands, and what was undone in which order.
expect() {
  await_state "$1"
  is 'the steps' "$2" "$(states)"
  is 'what was undone, in order' "$3" "$(undone)"
}
# books ORDER PROVIDER EVENTS RESERVATION: what those have who took part.
books() {
  is "what the provider did" "$2" "$(did "$1")"
  is "the events" "$3" "$(events "$1")"
  is "the reservation" "$4" "$(reservation "$1")"
  # The stock is what is not reserved.
  is "the stock" t "$(sql "SELECT bool_and(on_hand + (SELECT coalesce(sum(count), 0) FROM shop.reservation r
    WHERE r.item = s.item AND r.state <> 'released') = CASE item WHEN 'lamp' THEN 100 WHEN 'piano' THEN 3 ELSE 1000 END) FROM shop.stock s")"
}
approve() { ctl saga signal "$saga" approve "${1:-succeeded}" >/dev/null; }
told() { # REGEX: lockstepctl saga show says so
  ctl saga show "$saga" --history >"$dir/shown"
  grep -qE "$1" "$dir/shown" || { cat "$dir/shown" >&2; fail "saga show does not say /$1/"; }
}
over() { # nothing is left in the queue, and nothing under a lease
  await 'the queue is empty' "SELECT count(*) = 0 FROM lockstep.saga_work"
  kill -TERM "$orchestrator"
  wait "$orchestrator" || fail "the orchestrator ended with status $?"
}
all='order.placed.v1' back='order.placed.v1 order.withdrawn.v1'

case $what in
  success)
    register
    orchestrator 1
    order o-1 lamp visa
    is 'a repeated call begins nothing' "$saga" "$(sql "SELECT shop.place_order('o-1', 'ann', 'lamp', 1, 4900, 'visa')")"
    await_step approve InFlight
    books o-1 'charge' "$all" held
    approve
    approve  # says the same again
    expect Completed 'Succeeded Succeeded Succeeded Succeeded Succeeded' ''
    books o-1 'charge' "$all" shipped
    grep -q "\"key\":\"$saga/charge\"" "$dir/ledger" || fail 'the Idempotency-Key is not SAGA/STEP'
    is 'the changes of the saga' 'Running>Completed' "$(sql "SELECT string_agg(from_state || '>' || to_state, ' ' ORDER BY id)
      FROM lockstep.saga_audit WHERE saga = '$saga' AND step IS NULL AND from_state <> to_state")"
    told "ship .*Succeeded"
    # Rolled back with the order: no saga.
    sql "BEGIN; SELECT shop.place_order('o-2', 'bob', 'lamp', 1, 4900, 'visa'); ROLLBACK" >/dev/null
    is 'sagas' 1 "$(sql 'SELECT count(*) FROM lockstep.sagas')"
    # Two orchestrators, one of them killed in the middle: it goes on.
    order o-3 lamp visa
    await_step approve InFlight
    kill -9 "$orchestrator"
    wait "$orchestrator" 2>/dev/null || true
    approve
    orchestrator 2
    expect Completed 'Succeeded Succeeded Succeeded Succeeded Succeeded' ''
    books o-3 'charge' "$all" shipped
    # What was announced, and withdrawn, gets to Pub/Sub in that order.
    order o-4 piano visa
    await_step approve InFlight
    approve failed
    await_state Failed
    books o-4 'charge refund' "$back" released
    "$bin/lockstep-emulator" --port 0 >"$dir/emulator.out" 2>"$dir/emulator.log" &
    children+=($!)
    for _ in $(seq 200); do [ ! -s "$dir/emulator.out" ] || break; sleep 0.05; done
    export PUBSUB_EMULATOR_HOST LOCKSTEP_PUBSUB_FORCE_EMULATOR=true
    PUBSUB_EMULATOR_HOST=$(sed -n 's/.*listening on //p' "$dir/emulator.out")
    printf 'pubsub: {project: shop}\ntopics: [{name: order.events}]\nsubscriptions: [{name: order.events.mail, topic: order.events, ordering: true}]\n' >"$dir/pubsub.yaml"
    "$bin/lockstepctl" --config "$dir/pubsub.yaml" provision --yes >"$dir/provision.log" 2>&1 || { cat "$dir/provision.log" >&2; fail 'provision'; }
    "$bin/lockstep-publisher" --pubsub.project shop --relay.tables shop.outbox --http.enabled false \
      --topics order.placed.v1=order.events,order.withdrawn.v1=order.events 2>"$dir/publisher.log" &
    children+=($!)
    await 'the events are published' "SELECT count(*) = 4 AND bool_and(published_at IS NOT NULL) FROM shop.outbox_status"
    is 'the versions of an aggregate' '1 2' "$(sql "SELECT string_agg(version::text, ' ' ORDER BY published_at, sequence) FROM shop.outbox JOIN shop.outbox_published USING (sequence)
      WHERE convert_from(payload, 'UTF8')::jsonb->>'order' = 'o-4'")"
    ;;
  failures)
    register
    orchestrator 1
    sql "UPDATE shop.stock SET on_hand = 0 WHERE item = 'book'; INSERT INTO shop.reservation (order_id, item, count, state) VALUES ('all', 'book', 1000, 'held')"
    order reserve book visa
    expect Failed 'Failed Ready Ready Ready Ready' ''
    books reserve '' '' ''
    told 'there are not 1 of book on hand'
    order charge lamp declined
    expect Failed 'Compensated Failed Ready Ready Ready' 'reserve'
    books charge '' '' released
    is 'a refusal is not asked for again' charge "$(asked charge)"
    # The outbox takes no such event: a fault of the data, until the tries are spent.
    sql "ALTER TABLE shop.outbox ADD CONSTRAINT none CHECK (topic <> 'order.placed.v1') NOT VALID"
    register 's|^    action: bus:order.placed.v1|&\n    retry: {max_attempts: 3, base: 50ms}|'
    order announce lamp visa
    expect Failed 'Compensated Compensated Failed Ready Ready' 'charge reserve'
    books announce 'charge refund' '' released
    sql "ALTER TABLE shop.outbox DROP CONSTRAINT none"
    order approve lamp visa
    await_step approve InFlight
    approve failed
    expect Failed 'Compensated Compensated Compensated Failed Ready' 'announce charge reserve'
    books approve 'charge refund' "$back" released
    order ship piano visa
    await_step approve InFlight
    approve
    expect Failed 'Compensated Compensated Compensated Succeeded Failed' 'announce charge reserve'
    books ship 'charge refund' "$back" released
    told 'nobody carries a piano'
    # The refund fails at first: it is tried again, and the rest waits for it.
    tell /refund 500 hang 429
    register 's/max_attempts: 3, base: 100ms/max_attempts: 6, base: 100ms/'
    order refund piano visa
    await_step approve InFlight
    approve
    expect Failed 'Compensated Compensated Compensated Succeeded Failed' 'announce charge reserve'
    books refund 'charge refund' "$back" released
    is 'refunds asked for' 'charge refund refund refund refund' "$(asked refund)"
    is 'dead sagas' '' "$(sql 'SELECT id FROM lockstep.sagas WHERE dead_at IS NOT NULL')"
    ;;
  timeouts)
    # Of a step that waits.
    register 's/timeout: 24h/timeout: 1s/'
    orchestrator 1
    order step lamp visa
    expect Failed 'Compensated Compensated Compensated Failed Ready' 'announce charge reserve'
    books step 'charge refund' "$back" released
    # Of the whole saga, while it waits.
    register 's/timeout: 7d/timeout: 3s/'
    order whole lamp visa
    await_state Failed
    is 'what was undone' 'announce charge reserve' "$(undone)"
    books whole 'charge refund' "$back" released
    # Given by the caller.
    register
    saga=$(ctl saga start order --input '{"order": "ttl", "customer": "bob", "item": "lamp", "count": 1, "cents": 1, "card": "visa"}' --ttl 3s)
    await_state Failed
    books ttl 'charge refund' "$back" released
    # Of a request that is never answered: whether it was done nobody knows, so a person is asked.
    tell /charge hang
    order hang lamp visa
    await_state Paused
    told 'in doubt'
    told "saga signal"
    ctl saga signal "$saga" charge failed >/dev/null
    expect Failed 'Compensated Failed Ready Ready Ready' 'reserve'
    books hang '' '' released
    ;;
  cancel)
    register 's/timeout: 1500ms/timeout: 10s/'
    orchestrator 1
    order waits lamp visa
    await_step approve InFlight
    ctl saga cancel "$saga" --reason 'ann changed her mind' >/dev/null
    await_state Cancelled
    is 'what was undone' 'announce charge reserve' "$(undone)"
    books waits 'charge refund' "$back" released
    told 'ann changed her mind'
    if ctl saga cancel "$saga" >"$dir/again" 2>&1; then fail 'it is cancelled twice'; fi
    grep -q 'nothing to cancel' "$dir/again" || fail 'a second cancel does not say why not'
    # In flight: the request is abandoned, its outcome unknown; a person says that it was done, and it is undone.
    tell /charge slow
    order flies lamp visa
    await_step charge InFlight
    for _ in $(seq 100); do [ -z "$(asked flies)" ] || break; sleep 0.05; done
    ctl saga cancel "$saga" >/dev/null
    await 'it is in doubt' "SELECT in_doubt OR s.state = 'Succeeded' OR s.state = 'Compensated' FROM lockstep.saga_steps s WHERE saga = '$saga' AND name = 'charge'"
    await 'it waits or has ended' "SELECT state IN ('Paused', 'Cancelled') FROM lockstep.sagas WHERE id = '$saga'"
    ctl saga signal "$saga" charge succeeded --result '{"charge": "c-2"}' >/dev/null || true
    await_state Cancelled
    is 'what was undone' 'charge reserve' "$(undone)"
    books flies 'charge refund' '' released
    # Not begun yet: nothing is done at all, or it is undone.
    kill -TERM "$orchestrator"
    wait "$orchestrator" || true
    order early lamp visa
    ctl saga cancel "$saga" >/dev/null
    orchestrator 2
    expect Cancelled 'Ready Ready Ready Ready Ready' ''
    books early '' '' ''
    ;;
  pause)
    register
    kept=
    orchestrator 1
    # What is in flight is recorded, and nothing new begins.
    tell /charge slow
    register 's/timeout: 1500ms/timeout: 10s/'
    order o-1 lamp visa
    await_step charge InFlight
    ctl saga pause "$saga" --reason 'the stock is being counted' >/dev/null
    await_step charge Succeeded
    await_state Paused
    is 'the steps' 'Succeeded Succeeded Ready Ready Ready' "$(states)"
    told 'the stock is being counted'
    approve  # is kept
    kept=$(states)
    # Others go on meanwhile.
    first=$saga
    order o-2 lamp visa
    await_step approve InFlight
    approve
    await_state Completed
    saga=$first
    is 'the steps of the paused one' "$kept" "$(states)"
    ctl saga resume "$saga" >/dev/null
    expect Completed 'Succeeded Succeeded Succeeded Succeeded Succeeded' ''
    books o-1 'charge' "$all" shipped
    ;;
  skip)
    register
    orchestrator 1
    # By its condition: what costs nothing is not charged, and not refunded.
    order free piano visa 0
    await_step approve InFlight
    is 'the steps' 'Succeeded Skipped Succeeded InFlight Ready' "$(states)"
    # By a person.
    ctl saga skip "$saga" approve --reason 'it is free' >/dev/null
    expect Failed 'Compensated Skipped Compensated Skipped Failed' 'announce reserve'
    books free '' "$back" released
    order skipped lamp visa
    await_step approve InFlight
    ctl saga skip "$saga" approve >/dev/null
    expect Completed 'Succeeded Succeeded Succeeded Skipped Succeeded' ''
    books skipped 'charge' "$all" shipped
    ;;
  replay)
    # One that stops where it fails: dead, with all that was done.
    register 's/^timeout: 7d/on_failure: stop/'
    orchestrator 1
    order o-1 piano visa
    await_step approve InFlight
    approve
    expect Failed 'Succeeded Succeeded Succeeded Succeeded Failed' ''
    books o-1 'charge' "$all" held
    ctl saga dead list | grep -q "$saga" || fail 'it is not among the dead'
    ctl saga dead inspect "$saga" | grep -q 'nobody carries a piano' || fail 'inspect does not say why'
    # Mended, and on from the step that failed.
    sql "CREATE OR REPLACE FUNCTION shop.ship(request jsonb) RETURNS jsonb LANGUAGE sql AS \$\$
           UPDATE shop.reservation SET state = 'shipped' WHERE order_id = request->>'order'; SELECT NULL::jsonb \$\$"
    ctl saga dead replay "$saga" --from-failed-step --reason 'found four strong people' >/dev/null
    expect Completed 'Succeeded Succeeded Succeeded Succeeded Succeeded' ''
    books o-1 'charge' "$all" shipped
    told 'TxReplayRequested'
    # Into compensation; not while it is in quarantine.
    order o-2 lamp declined
    await_state Failed
    is 'the steps' 'Succeeded Failed Ready Ready Ready' "$(states)"
    ctl saga dead quarantine "$saga" --reason 'let me look' >/dev/null
    if ctl saga dead replay "$saga" --into-compensation >"$dir/out" 2>&1; then fail 'replayed out of quarantine'; fi
    ctl saga dead quarantine "$saga" --release >/dev/null
    ctl saga dead replay "$saga" --into-compensation >/dev/null
    await 'it has ended anew' "SELECT state = 'Failed' AND dead_at IS NULL FROM lockstep.sagas WHERE id = '$saga'"
    expect Failed 'Compensated Failed Ready Ready Ready' 'reserve'
    books o-2 '' '' released
    # An undoing that fails for good: dead in the middle of it, and replayed from there.
    register
    tell /refund 500 500 500
    order o-3 lamp visa
    await_step approve InFlight
    approve failed
    await 'it is dead' "SELECT dead_at IS NOT NULL FROM lockstep.sagas WHERE id = '$saga'"
    is 'what was undone' 'announce' "$(undone)"
    books o-3 'charge' "$back" held
    ctl saga dead replay "$saga" --from-failed-step >/dev/null
    await 'it has ended anew' "SELECT state = 'Failed' AND dead_at IS NULL FROM lockstep.sagas WHERE id = '$saga'"
    is 'what was undone' 'announce charge reserve' "$(undone)"
    books o-3 'charge refund' "$back" released
    # What is Completed can be undone, too.
    order o-4 lamp visa
    await_step approve InFlight
    approve
    await_state Completed
    ctl saga compensate "$saga" --reason 'it came back' >/dev/null
    await_state Cancelled
    is 'what was undone' 'ship announce charge reserve' "$(undone)"
    books o-4 'charge refund' "$back" released
    ;;
  doubt)
    # The orchestrator dies while the card is charged: nobody charges it again by himself.
    register 's/timeout: 1500ms/timeout: 10s/'
    orchestrator 1
    tell /charge slow
    order o-1 lamp visa
    await_step charge InFlight
    for _ in $(seq 100); do [ -z "$(asked o-1)" ] || break; sleep 0.05; done
    kill -9 "$orchestrator"
    wait "$orchestrator" 2>/dev/null || true
    orchestrator 2
    await_state Paused
    told 'in doubt'
    is 'the requests' charge "$(asked o-1)"
    if ctl saga resume "$saga" >"$dir/out" 2>&1; then fail 'resumed without an answer'; fi
    grep -q 'saga signal' "$dir/out" || fail 'resume does not say what to do'
    ctl saga signal "$saga" charge succeeded --result '{"charge": "c-1"}' >/dev/null
    await_step approve InFlight
    approve
    expect Completed 'Succeeded Succeeded Succeeded Succeeded Succeeded' ''
    books o-1 'charge' "$all" shipped
    # The answer is cut off, the provider says that nothing came of it: once more.
    tell /charge 500
    order o-2 lamp visa
    await_state Paused
    ctl saga retry "$saga" charge >/dev/null
    await_step approve InFlight
    approve
    await_state Completed
    books o-2 'charge' "$all" shipped
    # Certainly not processed: it is asked again without a word.
    tell /charge 429
    order o-3 lamp visa
    await_step approve InFlight
    is 'the requests' 'charge charge' "$(asked o-3)"
    approve
    await_state Completed
    # What may be repeated is repeated: the orchestrator dies during a refund.
    tell /refund slow
    order o-4 lamp visa
    await_step approve InFlight
    approve failed
    for _ in $(seq 100); do [ "$(asked o-4)" != 'charge' ] || { sleep 0.05; continue; }; break; done
    kill -9 "$orchestrator"
    wait "$orchestrator" 2>/dev/null || true
    orchestrator 3
    await_state Failed
    is 'what was undone' 'announce charge reserve' "$(undone)"
    is 'the requests' 'charge refund refund' "$(asked o-4)"
    books o-4 'charge refund' "$back" released
    ;;
  *) echo "no such case: $what" >&2; exit 2 ;;
esac
over
echo "$what: as it should be"
