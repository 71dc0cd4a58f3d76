#!/usr/bin/env bash
# lockstep-runner with HTTP handlers at a real server, Node's, which misbehaves: the server of routes_test.sh.
# usage: calls_test.sh BIN_DIR flaky|kills     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd) what=$2
command -v node >/dev/null || { echo "SKIPPED: node is not installed"; exit 77; }
dir=$(mktemp -d)
database=calls_$$
children=()
cleanup() {
  for pid in "${children[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "FAILED: $1" >&2; tail -n 15 "$dir"/*.log >&2; exit 1; }
cd "$dir"
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
sql() { psql -qtA -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" "$@"; }
await() { # words command …
  local words=$1
  shift
  for _ in $(seq 400); do ! "$@" || return 0; sleep 0.1; done
  fail "it never came to this: $words"
}
"$bin/lockstepctl" migrate up --set outbox >/dev/null
"$bin/lockstepctl" migrate up --set state --schema st >/dev/null
"$bin/lockstepctl" outbox create shop.outbox >/dev/null

node "$here/server.js" port ledger 2>server.log &
children+=($!)
"$bin/lockstep-emulator" --port 0 >emulator.log 2>&1 &
children+=($!)
await 'the server listens' test -s port
await 'the emulator listens' grep -q 'listening on ' emulator.log
base=http://127.0.0.1:$(cat port)
PUBSUB_EMULATOR_HOST=$(sed -n 's/.*listening on //p' emulator.log)
export PUBSUB_EMULATOR_HOST

enqueue() { # topic type keys versions
  sql -c "SELECT count(lockstep.enqueue('shop.outbox', '$1', '$2', '$1-$2-' || k, '$2', v, convert_to('{\"secret\": \"4711081547110815\"}', 'UTF8'),
            content_type => 'application/json', attributes => '{\"note\": \"grün\"}'))
          FROM generate_series(1, $3) k, generate_series(1, $4) v" >/dev/null
}
group() { # name handlers: a group with a topic of its own
  printf 'group: %s\nsubscription: %s.calls\nhandlers:\n%s' "$1" "$1" "$2" >"$1.yaml"
  groups+="{file: $1.yaml, lanes: 16}, "
  topics+="{name: $1}, "
  routes+="$1=$1,"
  subscriptions+="{name: $1.calls, topic: $1, ordering: true}, "
}
groups='' topics='' routes='' subscriptions=''
provision() {
  echo "{pubsub: {project: p}, topics: [$topics], subscriptions: [$subscriptions]}" >pubsub.yaml
  "$bin/lockstepctl" --config pubsub.yaml provision --yes >provision.log 2>&1 || fail 'provision'
  echo "{database: '$LOCKSTEP_DATABASE', state_schema: st, pubsub: {project: p}, http: {enabled: false}, groups: [$groups]}" >runner.yaml
}
publish() {
  "$bin/lockstep-publisher" --once --database "$LOCKSTEP_DATABASE" --pubsub.project p --relay.tables shop.outbox --topics "${routes%,}" \
    --http.enabled false >publisher.log 2>&1 || fail 'the publisher'
}
run() {
  "$bin/lockstep-runner" --config runner.yaml >>runner.log 2>&1 &
  runner=$!
  children+=("$runner")
}
handler() { printf '  - {name: %s, call: "%s/%s", events: [%s], allow_private: true, %s}\n' "$1" "$base" "$1" "$1" "${2-}"; }
settled() { [ "$(sql -c "SELECT count(*) FROM st.inbox i JOIN st.slots s USING (generation) WHERE s.group_name = '$1'")" = "$2" ]; }

case $what in
  flaky)
    # A handler that answers late has been called all the same: only who hangs has little time.
    paths=(hang truncate busy down close large ok)
    all=''
    for path in "${paths[@]}"; do
      enqueue flaky "$path" 4 6
      [ "$path" = hang ] && time='timeout: 500ms' || time='timeout: 30s'
      all+=$(handler "$path" "$time")$'\n'
    done
    enqueue refuse refuse 1 3
    enqueue moved moved 1 2
    group flaky "$all"
    group refuse "$(handler refuse)"$'\n'
    group moved "$(handler moved)"$'\n'
    # Of a certificate that nobody vouches for.
    if command -v openssl >/dev/null; then
      openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
      node -e "require('https').createServer({key: require('fs').readFileSync('key.pem'), cert: require('fs').readFileSync('cert.pem')},
        (q, r) => { require('fs').appendFileSync('tls', q.url + '\n'); r.end(); })
        .listen(0, 'localhost', function () { require('fs').writeFileSync('tls.port', String(this.address().port)); })" 2>tls.log &
      children+=($!)
      await 'the server with TLS listens' test -s tls.port
      enqueue known tls 1 1
      enqueue unknown tls 1 1
      tls="events: [tls], allow_private: true"
      group known "  - {name: tls, call: 'https://localhost:$(cat tls.port)/known', ca_file: cert.pem, $tls}"$'\n'
      group unknown "  - {name: tls, call: 'https://localhost:$(cat tls.port)/unknown', $tls}"$'\n'
    fi
    provision
    publish
    run
    events=$((${#paths[@]} * 24))
    called() { [ "$(grep -cvE '"path":"/(refuse|moved)"' ledger)" -ge $events ]; }
    await 'every handler was called' called
    for path in "${paths[@]}"; do
      done_with() { node "$here/check_ledger.js" ledger "/$path" 4 6 repeats 2>check.log; }
      await "every version of $path in order" done_with
      [ "$path" = hang ] || node "$here/check_ledger.js" ledger "/$path" 4 6 || fail "$path was called twice"
    done
    dead() { [ "$(sql -c "SELECT string_agg(code || ' ' || version, ',') FROM st.dead_letters")" = 'HANDLER.REFUSED 2' ]; }
    await 'version 2 alone is refused' dead
    await 'the redirect is told' grep -q 'group=moved.*redirect' runner.log
    [ "$(sql -c "SELECT count(*) FROM st.dead_letters WHERE reason LIKE '%47110815%' OR octet_length(reason) > 600")" = 0 ] ||
      fail 'a dead letter quotes a payload, or is long'
    ! grep -q 47110815 runner.log || fail 'the log quotes a payload'
    if [ -s tls.port ]; then
      await 'the certificate is refused' grep -q 'group=unknown.*certificate.*ca_file' runner.log
      await 'who is vouched for is called' grep -q /known tls
      ! grep -q /unknown tls || fail 'an event went to a server that was not verified'
    fi
    touch ledger.mended
    "$bin/lockstepctl" --config runner.yaml dead-letters replay --group refuse --code HANDLER.REFUSED --yes >replay.log 2>&1 || fail 'the replay'
    in_order() { node "$here/check_ledger.js" ledger /refuse 1 3 2>check.log; }
    await 'what was refused is called, and what waited behind it' in_order
    ;;
  kills)
    keys=20 versions=60
    enqueue slow slow $keys $versions
    group slow "$(handler slow 'concurrency: 8')"$'\n'
    provision
    publish
    for _ in $(seq 6); do
      before=$(wc -l <ledger)
      run
      for _ in $(seq 200); do [ "$(wc -l <ledger)" -lt $((before + 100)) ] || break; sleep 0.02; done
      kill -9 "$runner"
      wait "$runner" 2>/dev/null || true
    done
    run
    await 'everything is in the inbox' settled slow $((keys * versions))
    node "$here/check_ledger.js" ledger /slow $keys $versions repeats || fail 'the order'
    # What a kill explains: what was accepted in the transactions under way, of 2 s at most.
    [ "$(wc -l <ledger)" -le $((2 * keys * versions)) ] || fail "far too many repeats: $(wc -l <ledger)"
    ;;
esac
