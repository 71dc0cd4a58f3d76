#!/usr/bin/env bash
# Runs docs/handlers.md: its group's file, its functions, its endpoint in Node and its commands.
#   handlers_test.sh BIN_DIR SOURCE_DIR     (needs LOCKSTEP_TEST_PG; without node, 77)
set -euo pipefail
bin=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
command -v node >/dev/null || { echo 'no node: the endpoint of the page was not run'; exit 77; }
dir=$(mktemp -d)
database=handlers_$$
emulator='' runner='' mails=''
cleanup() {
  for pid in $runner $mails $emulator; do kill "$pid" 2>/dev/null || true; done
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
block() { awk -v open="\`\`\`$1" '$0 == open { on = 1; next } /^```$/ { on = 0 } on' "$source/docs/handlers.md"; }
await() { for _ in $(seq 1200); do "$@" && return; sleep 0.05; done; fail "waited in vain: $*"; }
sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" "$@"; }

# A port of its own for the endpoint.
port=$(node -e "const s = require('net').createServer().listen(0, '127.0.0.1', () => { console.log(s.address().port); s.close(); })")
block 'js mails.mjs' | sed "s/8087/$port/" >mails.mjs
echo 'a secret of sixteen bytes and more' >mails.secret
node mails.mjs >mails.out 2>&1 &
mails=$!
mails_is_up() { grep -q '^listening' mails.out; }
await mails_is_up
block 'yaml feed.yaml' | sed "s/8087/$port/" >feed.yaml

: >emulator.out
lockstep-emulator --port 0 >emulator.out 2>&1 &
emulator=$!
emulator_is_up() { grep -q 'listening on ' emulator.out; }
await emulator_is_up
PUBSUB_EMULATOR_HOST=$(sed -n 's/.*listening on //p' emulator.out)
export PUBSUB_EMULATOR_HOST
lockstepctl migrate up --set outbox >/dev/null
lockstepctl migrate up --set state --schema feed_state >/dev/null
lockstepctl outbox create shop.outbox >/dev/null
lockstepctl outbox create feed.outbox >/dev/null
sql -c 'CREATE TABLE feed.item (id text PRIMARY KEY, amount int, version bigint NOT NULL)'
# What the check says before the functions are there, and after.
if lockstepctl projection check feed.yaml --database "$LOCKSTEP_DATABASE" --state-schema feed_state >check.out 2>&1; then
  fail 'the check misses no function'
fi
grep -q 'function feed.on_sold does not exist' check.out || fail 'what the check says'
block 'sql feed.sql' | sql >sql.out || fail 'the functions of the page'
lockstepctl projection check feed.yaml --database "$LOCKSTEP_DATABASE" --state-schema feed_state >check.out 2>&1 || fail 'the check'
cat >pubsub.yaml <<END
pubsub: {project: shop}
topics: [{name: shop.events}]
subscriptions: [{name: shop.events.feed, topic: shop.events, ordering: true}]
END
lockstepctl --config pubsub.yaml provision --yes >provision.out 2>&1 || fail 'provision'
cat >runner.yaml <<END
database: $LOCKSTEP_DATABASE
state_schema: feed_state
pubsub: {project: shop}
http: {enabled: false}
groups: [{file: feed.yaml}]
END
lockstep-runner --config runner.yaml >runner.log 2>&1 &
runner=$!
cat >publisher.yaml <<END
database: $LOCKSTEP_DATABASE
pubsub: {project: shop}
relay: {tables: [shop.outbox]}
topics: {shop.item.sold.v1: shop.events}
http: {enabled: false}
END
sold() { # id version amount
  sql -c "SELECT lockstep.enqueue('shop.outbox', 'shop.item.sold.v1', 'item', '$1', 'ItemSold', $2,
    convert_to('{\"amount\": $3}', 'UTF8'), content_type => 'application/json')" >/dev/null
}
for version in 1 2 3; do sold k1 "$version" 10; done
sold negative 1 -1
sold large 1 5000
lockstep-publisher --config publisher.yaml --once >publisher.log 2>&1 || fail 'publisher'
settled() { [ "$(sql -c 'SELECT count(*) FROM feed_state.inbox')" = 5 ]; }
await settled
[ "$(sql -c 'SELECT sold, last_version FROM feed.total')" = '30|3' ] || fail 'the totals'
[ "$(sql -c 'SELECT count(*) FROM feed.outbox')" = 3 ] || fail 'the receipts'
[ "$(sql -c "SELECT string_agg(code || ' ' || aggregate_key, ',' ORDER BY aggregate_key) FROM feed_state.dead_letters")" = \
  'HANDLER.REFUSED item/large,HANDLER.REFUSED item/negative' ] || fail 'who was refused'
[ "$(grep -c '^mail k1 10' mails.out)" = 3 ] || fail 'the mails'
[ "$(sql -c 'SELECT count(*) FROM feed.item')" = 1 ] || fail 'a refused event left a row'
block sh | bash -euo pipefail >commands.out 2>&1 || fail 'the commands of the page'
grep -q 'paused' commands.out || fail 'lag does not say that it is paused'
sold k1 4 5
lockstep-publisher --config publisher.yaml --once >publisher.log 2>&1 || fail 'publisher'
resumed() { [ "$(sql -c "SELECT sold FROM feed.total WHERE id = 'k1'")" = 35 ]; }
await resumed
echo 'docs/handlers.md does what it says'
