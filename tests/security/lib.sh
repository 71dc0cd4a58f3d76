# For the tests of this folder: a source's and a consumer's database, the emulator between them, and
# words to say what must happen. Sourced with $bin set; needs LOCKSTEP_TEST_PG, or $cluster.
cluster=${cluster:-${LOCKSTEP_TEST_PG:?run me with scripts/with-postgres}}
name=${name:-security}_$$
dir=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-$name.XXXXXX")
out=$dir/out
started=() databases=() roles=() checks=0 failed=0
export PSQLRC=/dev/null
unset GOOGLE_APPLICATION_CREDENTIALS PUBSUB_EMULATOR_HOST LOCKSTEP_DATABASE

end_lab() {
  local status=$? pid
  set +e
  [ "$failed" -eq 0 ] || status=1
  for pid in "${started[@]}"; do kill -KILL "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  if [ "$status" -ne 0 ]; then tail -n 15 "$dir"/*.log 2>/dev/null; fi
  if declare -F before_end >/dev/null; then before_end; fi
  for pid in "${databases[@]}"; do
    psql -q -d "$cluster" -c "DROP DATABASE IF EXISTS $pid WITH (FORCE)" >/dev/null || true
  done
  for pid in "${roles[@]}"; do psql -q -d "$cluster" -c "DROP ROLE IF EXISTS \"$pid\"" >/dev/null || true; done
  rm -rf "$dir"
  exit "$status"
}
trap end_lab EXIT
trap 'exit 130' INT TERM HUP

# The first failure ends the test; with KEEP_GOING=1 all of them are shown.
fail() {
  echo "FAILED: $1"
  [ ! -s "$out" ] || sed 's/^/    /' "$out" | head -n 30
  failed=$((failed + 1))
  [ -n "${KEEP_GOING:-}" ] || exit 1
}
# says REGEX COMMAND…: it succeeds and says so. refuses REGEX COMMAND…: it fails and says why.
says() {
  local regex=$1; shift
  if ! timeout 60 "$@" >"$out" 2>&1 </dev/null; then
    fail "it did not work: $*"
  elif ! grep -qE -- "$regex" "$out" && [ -n "$regex" ]; then
    fail "no /$regex/: $*"
  fi
  checks=$((checks + 1))
}
refuses() {
  local regex=$1 status=0; shift
  timeout 60 "$@" >"$out" 2>&1 </dev/null || status=$?
  if [ "$status" -eq 0 ] || [ "$status" -ge 124 ]; then
    fail "not refused, status $status: $*"
  elif ! grep -qE -- "$regex" "$out"; then
    fail "no /$regex/: $*"
  fi
  checks=$((checks + 1))
}
# sql URL TEXT: its answer. may URL TEXT: it works. may_not URL TEXT: Postgres refuses the right.
sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$1" -c "$2"; }
may() { says '' psql -qAt -v ON_ERROR_STOP=1 -d "$1" -c "$2"; }
may_not() { refuses 'permission denied|must be owner' psql -qAt -v ON_ERROR_STOP=1 -d "$1" -c "$2"; }
is() { # EXPECTED URL TEXT
  local found
  found=$(sql "$2" "$3")
  [ "$found" = "$1" ] || fail "'$found', not '$1': $3"
  checks=$((checks + 1))
}
# await EXPECTED URL TEXT: other processes bring it about. The wait is for them, not for a time.
await() {
  local found try
  for try in $(seq ${TRIES:-600}); do
    found=$(sql "$2" "$3")
    [ "$found" != "$1" ] || { checks=$((checks + 1)); return 0; }
    sleep 0.1
  done
  fail "'$found' in the end, not '$1': $3"
}
# await_line REGEX FILE: a line of a log.
await_line() {
  local try
  for try in $(seq ${TRIES:-600}); do
    ! grep -qE -- "$1" "$2" || { checks=$((checks + 1)); return 0; }
    sleep 0.1
  done
  cp "$2" "$out"
  fail "no /$1/ in $2"
}
new_database() { # NAME: its address in `made`, as the cluster's superuser
  psql -q -d "$cluster" -c "CREATE DATABASE $1" && databases+=("$1")
  made=${cluster%/*}/$1
}
as() { # ROLE URL: the same database as another role
  echo "postgresql://$1@${2#*@}"
}
start() { # LOG COMMAND…: in the background; its pid in `pid`
  local log=$dir/$1.log; shift
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  started+=("$pid")
}
stop() { # PID: SIGTERM, and it ends well
  kill -TERM "$1"
  wait "$1" || fail "process $1 ended with status $?"
}
start_emulator() {
  start emulator "$bin/lockstep-emulator" --port 0 "$@"
  await_line 'listening on' "$dir/emulator.log"
  export PUBSUB_EMULATOR_HOST
  PUBSUB_EMULATOR_HOST=$(sed -n 's/.*listening on \([^ ]*\).*/\1/p' "$dir/emulator.log")
}
# A group whose events are plain JSON: files in $dir. $1 = the read model's table (default feed.item).
write_files() {
  cat >"$dir/pubsub.yaml" <<EOT
pubsub: {project: lab}
topics: [{name: shop.events, retention: 1d}]
subscriptions: [{name: shop.events.feed, topic: shop.events, ordering: true, retain_acked: true}]
EOT
  cat >"$dir/group.yaml" <<EOT
group: feed
subscription: shop.events.feed
settings: {max_attempts: 1, ack_fence: 200ms}
projections:
  - name: item
    table: feed.item
    key: {id: {attribute: aggregate_id}}
    version: version
    events:
      Set: {replace: {title: {field: title, type: text}, amount: {field: amount, type: int}}}
EOT
  cat >"$dir/publisher.yaml" <<EOT
pubsub: {project: lab}
relay: {tables: [shop.outbox], poll_interval: 200ms}
topics: {shop.item.set.v1: shop.events}
http: {port: 0}
EOT
  cat >"$dir/runner.yaml" <<EOT
state_schema: feed_state
pubsub: {project: lab}
http: {port: 0}
groups: [{file: group.yaml}]
EOT
}
read_model='CREATE SCHEMA feed; CREATE TABLE feed.item (id text PRIMARY KEY, title text, amount int, version bigint NOT NULL)'
# enqueue KEY VERSION JSON [TYPE]: the text of a statement. The group knows no type but Set: any other is poison.
enqueue() {
  echo "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item', '$1', '${4:-Set}', $2, convert_to('$3', 'UTF8'), content_type => 'application/json')"
}
