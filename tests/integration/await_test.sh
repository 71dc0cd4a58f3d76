#!/usr/bin/env bash
# Runs docs/await.md: its runner.yaml, every block of SQL and shell, and the one for Node.
#   await_test.sh BIN_DIR SOURCE_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
dir=$(mktemp -d)
database=await_$$
emulator='' runner=''
cleanup() {
  for pid in $runner $emulator; do kill "$pid" 2>/dev/null || true; done
  wait || true
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "$1"; cat "$dir"/*.out "$dir"/*.log 2>/dev/null; exit 1; }
export PATH=$bin:$PATH
cd "$dir"
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
# A block of the page, by its opening line.
block() { awk -v open="\`\`\`$1" '$0 == open { on = 1; next } /^```$/ { on = 0 } on' "$source/docs/await.md"; }
block 'yaml runner.yaml' | sed "s|postgresql://…/feed|$LOCKSTEP_DATABASE|; s|port: 9102|port: 0|" >runner.yaml
cat >feed.yaml <<'END'
group: feed
subscription: shop.events.feed
projections:
  - name: item
    table: feed.item
    key: {id: {attribute: aggregate_id}}
    version: version
    events:
      Set: {replace: {amount: {field: amount, type: int}}}
END
: >emulator.out
lockstep-emulator --port 0 >emulator.out 2>&1 &
emulator=$!
await() { for _ in $(seq 1200); do "$@" && return; sleep 0.05; done; fail "waited in vain: $*"; }
emulator_is_up() { grep -q 'listening on ' emulator.out; }
await emulator_is_up
PUBSUB_EMULATOR_HOST=$(sed -n 's/.*listening on //p' emulator.out)
export PUBSUB_EMULATOR_HOST
sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" "$@"; }
lockstepctl migrate up --set outbox >/dev/null
lockstepctl migrate up --set state --schema feed_state >/dev/null
lockstepctl outbox create shop.outbox >/dev/null
sql -c 'CREATE SCHEMA feed' -c 'CREATE TABLE feed.item (id text PRIMARY KEY, amount int, version bigint NOT NULL)'
cat >pubsub.yaml <<END
pubsub: {project: shop}
topics: [{name: shop.events}]
subscriptions: [{name: shop.events.feed, topic: shop.events, ordering: true}]
END
lockstepctl --config pubsub.yaml provision --yes >provision.out 2>&1 || fail 'provision'
lockstep-runner --config runner.yaml >runner.log 2>&1 &
runner=$!
runner_is_up() { grep -q 'url=http' runner.log; }
await runner_is_up
url=$(sed -n 's/.*url=\(http:[^ ]*\).*/\1/p' runner.log | head -1)
started() { [ "$(sql -c "SELECT count(*) FROM feed_state.consumer_groups WHERE follows_versions")" = 1 ]; }
await started
block sh | sed "s|http://127.0.0.1:9102|$url|" >ask.sh
block js | sed "s|http://127.0.0.1:9102|$url|" >ask.mjs
# Before anything has come: not reached, by all three.
[ "$(sql -c "SELECT feed_state.reached('feed', 'item', 'k1', 1)")" = f ] || fail 'reached before'
[ "$(bash -euo pipefail ask.sh)" = 408 ] || fail 'curl before'
if command -v node >/dev/null; then node ask.mjs | grep -q '^not yet' || fail 'node before'; fi
# Who waits is answered when the event comes.
sql -c "SELECT feed_state.await('feed', 'item', 'k1', 1, timeout => '1 minute'), (SELECT 1)" >waited.out &
waiter=$!
sql -c "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item', 'k1', 'Set', 1, convert_to('{\"amount\": 7}', 'UTF8'),
  content_type => 'application/json')" >/dev/null
cat >publisher.yaml <<END
database: $LOCKSTEP_DATABASE
pubsub: {project: shop}
relay: {tables: [shop.outbox]}
topics: {shop.item.set.v1: shop.events}
http: {enabled: false}
END
lockstep-publisher --config publisher.yaml --once >publisher.log 2>&1 || fail 'publisher'
wait "$waiter"
[ "$(cat waited.out)" = 't|1' ] || fail 'await in SQL'
[ "$(sql -c "SELECT amount FROM feed.item WHERE id = 'k1'")" = 7 ] || fail 'what is reached can be read'
block sql | sql >sql.out || fail 'the SQL of the page'
[ "$(paste -sd, sql.out)" = 't,t,f,1' ] || fail 'the answers in SQL'
[ "$(bash -euo pipefail ask.sh)" = 200 ] || fail 'curl'
grep -q '"reached":true,"version":1' answer.json || fail 'the body'
if command -v node >/dev/null; then node ask.mjs | grep -q '^reached 1$' || fail 'node'; fi
echo 'docs/await.md does what it says'
