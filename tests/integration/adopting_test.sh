#!/usr/bin/env bash
# Runs docs/adopting.md as a reader would: every block of shell and SQL, in order.
# Its program in Node runs where npm can install `pg`.
#   adopting_test.sh BIN_DIR SOURCE_DIR NODE_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
. "$source/tests/integration/node_pg.sh"
mkdir -p "$3"
modules=$(cd "$3" && pwd)
dir=$(mktemp -d)
database=adopting_$$
cleanup() {
  [ -z "${emulator:-}" ] || kill "$emulator" 2>/dev/null || true
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
export PATH=$bin:$PATH
cd "$dir"
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
: >emulator.out  # it is looked into before the emulator has begun
lockstep-emulator --port 0 >emulator.out 2>&1 &
emulator=$!
for _ in $(seq 1200); do
  PUBSUB_EMULATOR_HOST=$(sed -n 's/.*listening on //p' emulator.out)
  [ -z "$PUBSUB_EMULATOR_HOST" ] || break
  sleep 0.05
done
[ -n "$PUBSUB_EMULATOR_HOST" ] || { cat emulator.out; exit 1; }
export PUBSUB_EMULATOR_HOST
run_node() {
  if npm_has_pg "$modules"; then
    ln -sfn "$modules/node_modules" node_modules
    node "$1"
  else
    echo 'npm could not install pg: the program in Node was not run, and psql does its part'
    psql -q -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" -c "INSERT INTO catalog.video_outbox (topic, aggregate_type, aggregate_id,
      event_type, version, payload) VALUES ('catalog.video.changed.v1', 'video', '7f8f2f0e-30a3-4c6e-8a41-0c6a0f0f3c11', 'x', 3, '')"
  fi
}
export -f run_node npm_has_pg
export modules
# ```sh blocks run as they are, ```sql blocks through psql, ```yaml FILE blocks become files, ```js FILE blocks run too.
awk '
  /^```sh$/   { print "set -x"; mode = "sh"; next }
  /^```sql$/  { print "psql -q -v ON_ERROR_STOP=1 -d \"$LOCKSTEP_DATABASE\" <<\"END_OF_SQL\""; mode = "sql"; next }
  /^```yaml [a-z.]+$/ { print "cat >" $2 " <<\"END_OF_FILE\""; mode = "yaml"; next }
  /^```js [a-z.]+$/   { file = $2; print "cat >" file " <<\"END_OF_FILE\""; mode = "js"; next }
  /^```$/     { if (mode == "sql") print "END_OF_SQL"; if (mode == "yaml" || mode == "js") print "END_OF_FILE"
                if (mode == "js") print "run_node " file; mode = ""; next }
  mode != ""  { print }
' "$source/docs/adopting.md" >steps.sh
bash -euo pipefail steps.sh >out 2>&1 || { cat out; exit 1; }
# What the page promises: the event was published, the roles are least, the outbox is gone again.
grep -q 'published' out || { cat out; exit 1; }
# By the three ways of the page, and each with its message id.
[ "$(grep -cE '^ +[0-9]+ \|.*\| [0-9]{4}-.* \| [0-9]+ ' out)" = 5 ] || { cat out; exit 1; }
grep -E '^npm could not' out || true
left=$(psql -qAt -d "$LOCKSTEP_DATABASE" -c "SELECT to_regclass('catalog.video_outbox') IS NULL")
[ "$left" = t ] || { cat out; exit 1; }
psql -q -d "$LOCKSTEP_DATABASE" -c 'DROP OWNED BY catalog_service, catalog_publisher' -c 'DROP ROLE catalog_service' \
  -c 'DROP ROLE catalog_publisher'
