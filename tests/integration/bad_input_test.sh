#!/usr/bin/env bash
# Bad input is met with a sentence: each program says what is wrong, with what, and ends with a status.
#   bad_input_test.sh BIN_DIR with|without     (google-cloud-cpp; needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$1
google_cloud=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"; [ -z "${held:-}" ] || kill "$held" 2>/dev/null || true' EXIT
passed=0 failed=0

# expect NAME 'REGEX' COMMAND…: it must fail, soon, and say so in words.
expect() {
  local name=$1 regex=$2 status=0
  shift 2
  timeout 30 "$@" >"$dir/out" 2>&1 </dev/null || status=$?
  if [ "$status" -eq 0 ] || [ "$status" -ge 124 ]; then
    echo "FAILED $name: status $status"
  elif ! grep -qE "$regex" "$dir/out"; then
    echo "FAILED $name: no /$regex/ in what it said"
  elif grep -qE 'terminate called|what\(\):|Aborted|Segmentation' "$dir/out"; then
    echo "FAILED $name: a crash, not a sentence"
  else
    passed=$((passed + 1))
    return
  fi
  failed=$((failed + 1))
  sed 's/^/    /' "$dir/out"
}

nowhere=postgresql://lockstep@127.0.0.1:1/nowhere
cat >"$dir/broken.yaml" <<'EOT'
relay:
  tables: [a.b
EOT
cat >"$dir/misspelt.yaml" <<'EOT'
databse: x
EOT
cat >"$dir/publisher.yaml" <<EOT
database: $LOCKSTEP_TEST_PG
pubsub: {project: test, emulator_host: "127.0.0.1:1"}
relay:
  tables: [no_such.outbox]
topics: {events: events}
EOT

for program in lockstep-publisher lockstep-runner lockstep-emulator; do
  expect "$program: missing file" "configuration file $dir/none.yaml can't be read: No such file" \
    "$bin/$program" --config "$dir/none.yaml"
  expect "$program: a folder" "configuration file $dir can't be read: it is a folder" "$bin/$program" --config "$dir"
  expect "$program: broken YAML" 'broken.yaml:3:1: not YAML' "$bin/$program" --config "$dir/broken.yaml"
done
for program in lockstep-publisher lockstep-runner; do
  expect "$program: unknown key" "misspelt.yaml:1:1: unknown key 'databse'; did you mean 'database'" \
    "$bin/$program" --config "$dir/misspelt.yaml"
  expect "$program: unknown flag" 'unknown key; did you mean --database' "$bin/$program" --databas x
  expect "$program: no value" '\-\-database needs a value' "$bin/$program" --database
done
# A database that can't be reached may come up later, so the daemons wait for it and say so; --once does not.
expect "publisher: unreachable database" "can't connect to Postgres.*127.0.0.1" \
  "$bin/lockstep-publisher" --once --database $nowhere --relay.tables a.b --pubsub.emulator_host 127.0.0.1:1
expect "publisher: no migrations" 'has no outboxes yet: run lockstepctl migrate up, then .* no_such.outbox' \
  "$bin/lockstep-publisher" --once --config "$dir/publisher.yaml"
expect "ctl: missing file" "configuration file $dir/none.yaml can't be read" "$bin/lockstepctl" --config "$dir/none.yaml" lag
expect "ctl: broken YAML" 'broken.yaml:3:1: not YAML' "$bin/lockstepctl" --config "$dir/broken.yaml" provision --yes
expect "ctl: unreachable database" "can't connect to Postgres.*127.0.0.1" \
  "$bin/lockstepctl" --database $nowhere migrate up
expect "ctl: no database" 'LOCKSTEP_DATABASE' env -u LOCKSTEP_DATABASE "$bin/lockstepctl" migrate up
expect "ctl: wrong emulator address" "Pub/Sub at 127.0.0.1:1 can't be reached" \
  env PUBSUB_EMULATOR_HOST=127.0.0.1:1 "$bin/lockstepctl" provision --yes --config examples/catalog/pubsub.yaml
expect "publisher: no such transport" "transport.*grpc.*google-cloud-cpp" \
  "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --pubsub.transport grcp
lacking='pubsub.transport is google-cloud-cpp, and this build has none: use grpc, or build with'
if [ "$google_cloud" = without ]; then
  expect "publisher: transport that is not built in" "$lacking" \
    "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --pubsub.transport google-cloud-cpp
  expect "ctl: transport that is not built in" "$lacking" \
    env LOCKSTEP_PUBSUB_TRANSPORT=google-cloud-cpp PUBSUB_EMULATOR_HOST=127.0.0.1:1 \
    "$bin/lockstepctl" provision --yes --config examples/catalog/pubsub.yaml
fi

# What is wrong with a projection is told before the first message: here there is no Pub/Sub to get one from.
database=bad_input_$$
url=${LOCKSTEP_TEST_PG%/*}/$database
psql -Xq -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
trap 'psql -Xq -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE $database WITH (FORCE)"; rm -rf "$dir"
  [ -z "${held:-}" ] || kill "$held" 2>/dev/null || true' EXIT
"$bin/lockstepctl" --database "$url" migrate up --set outbox >/dev/null
expect "publisher: missing table" 'no_such.outbox is not an outbox in database .*lockstepctl outbox create no_such.outbox' \
  "$bin/lockstep-publisher" --once --config "$dir/publisher.yaml" --database "$url"
psql -Xq -d "$url" -c 'CREATE SCHEMA source'
"$bin/lockstepctl" --database "$url" outbox create source.outbox >/dev/null
psql -Xq -o /dev/null -d "$url" -c "SELECT lockstep.enqueue('source.outbox', 'events', 'video', '1', 'Made', 1, '')"
expect "publisher: wrong emulator address" "source.outbox was not drained: .*Pub/Sub at 127.0.0.1:1 can't be reached" \
  "$bin/lockstep-publisher" --once --config "$dir/publisher.yaml" --database "$url" --relay.tables source.outbox \
  --relay.dispatch_timeout 1s
"$bin/lockstepctl" --database "$url" migrate up --set state --schema feed_state >/dev/null
catalog=$(dirname "$bin")/examples/catalog
psql -Xq -d "$url" -f "$catalog/read_model.sql"
cp "$catalog/video_events.pb" "$dir"
cat >"$dir/runner.yaml" <<EOT
database: $url
state_schema: feed_state
pubsub: {project: test, emulator_host: "127.0.0.1:1"}
groups:
  - file: $dir/group.yaml
EOT
# refused NAME 'REGEX' 'SED SCRIPT' [SQL]: the catalogue, spoilt; its table, spoilt.
refused() {
  sed "$3" "$catalog/catalog.yaml" >"$dir/group.yaml"
  [ -z "${4:-}" ] || psql -Xq -d "$url" -c "$4"
  expect "runner: $1" "$2" "$bin/lockstep-runner" --once --config "$dir/runner.yaml"
}
cp "$catalog/catalog.yaml" "$dir/group.yaml"
expect "runner: unreachable database" "^lockstep-runner: gave up after 1s: .*can't connect to Postgres.*127.0.0.1" \
  "$bin/lockstep-runner" --once --once_timeout 1s --config "$dir/runner.yaml" --database $nowhere
expect "runner: no state" "schema 'none' is not there .* lockstepctl migrate up" \
  "$bin/lockstep-runner" --once --config "$dir/runner.yaml" --state_schema none
for program in publisher runner; do
  expect "$program: emulator without a port" "emulator_host .* is 'localhost': write host:port" \
    "$bin/lockstep-$program" --config "$dir/$program.yaml" --pubsub.emulator_host localhost
done
# Longer than one look at the subscription takes, with its tries.
expect "runner: wrong emulator address" \
  "^lockstep-runner: gave up after 15s: .*subscription .*Pub/Sub at 127.0.0.1:1 can't be reached" \
  "$bin/lockstep-runner" --once --once_timeout 15s --config "$dir/runner.yaml"
refused "projection: bad YAML" 'group.yaml:[0-9]+:[0-9]+: not YAML' 's/^projections:/projections: [/'
refused "projection: unknown type" "group.yaml:[0-9]+:[0-9]+: .*video.events.VideoCreatd" 's/VideoCreated/VideoCreatd/'
refused "projection: unknown field" "group.yaml:[0-9]+:[0-9]+: .*no field 'titel'; did you mean 'title'" 's/, title,/, titel,/'
refused "projection: impossible cast" 'group.yaml:[0-9]+:[0-9]+: .*as: seconds is for Duration' \
  's/, title,/, {title: {field: title, as: seconds}},/'
refused "projection: unknown column" "group.yaml:[0-9]+:[0-9]+: .*no column 'headline'.*ADD COLUMN" \
  's/, title,/, {headline: title}, title,/'
refused "projection: value of no such type" 'group.yaml:[0-9]+:[0-9]+: value long is no bigint' \
  's/duration_seconds, published_at\]/{duration_seconds: {value: long}}]/'
if [ "$google_cloud" = without ]; then
  cp "$catalog/catalog.yaml" "$dir/group.yaml"
  expect "runner: transport that is not built in" "$lacking" \
    "$bin/lockstep-runner" --config "$dir/runner.yaml" --pubsub.transport google-cloud-cpp
fi
refused "projection: wrong type" 'group.yaml:[0-9]+:[0-9]+: .*make the column bigint' '' \
  'ALTER TABLE catalog_read.video_projection ALTER COLUMN duration_seconds TYPE int'
refused "projection: missing table" 'group.yaml:[0-9]+:[0-9]+: table .* does not exist; lockstepctl projection ddl' '' \
  'DROP TABLE catalog_read.video_projection'

"$bin/lockstep-emulator" --port 0 >"$dir/emulator" 2>&1 &
held=$!
for _ in $(seq 100); do grep -q 'listening on' "$dir/emulator" && break; sleep 0.1; done
port=$(sed -n 's/.*listening on .*:\([0-9]*\).*/\1/p' "$dir/emulator")
expect "emulator: port taken" "can't listen on 127.0.0.1:$port: the port is taken" "$bin/lockstep-emulator" --port "$port"
cp "$catalog/catalog.yaml" "$dir/group.yaml"
expect "runner: port taken" "can't listen on 127.0.0.1 port $port for HTTP .*the port is taken" \
  "$bin/lockstep-runner" --config "$dir/runner.yaml" --http.port "$port"
expect "publisher: port taken" "can't listen on 127.0.0.1 port $port for HTTP .*the port is taken" \
  "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$url" --relay.tables source.outbox --http.port "$port"
expect "emulator: not a port" 'port' "$bin/lockstep-emulator" --port many

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
