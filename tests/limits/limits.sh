#!/usr/bin/env bash
# Tries the limits that docs/limits.md lists; each case prints a line with what it found.
set -euo pipefail
usage() {
  cat <<'EOT'
usage: tests/limits/limits.sh BIN_DIR CASE…      (inside scripts/with-postgres; outboxes and groups start their own)

  sizes     64 KB keys are refused, 10 MB payloads travel, larger ones are refused
  ages      a backlog of a year ago; a publisher and a runner whose clocks are an hour apart
  parked    N events parked behind one dead letter, then released (PARKED, default 100000)
  keys      N keys, one event each (KEYS, default 1000000)
  outboxes  N outboxes, one publisher (OUTBOXES, default 1000)
  groups    N consumer groups in one runner (GROUPS_, default 100)
EOT
}
[ $# -ge 2 ] || { usage >&2; exit 2; }
bin=$(cd "$1" && pwd) name=limits
shift
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/lib/postgres.sh"
private=
case " $* " in *" outboxes "* | *" groups "*) private=yes cluster=none ;; esac
. "$here/../security/lib.sh"
if [ -n "$private" ]; then
  before_end() { postgres_stop; }
  chmod 755 "$dir"
  postgres_start "$dir/postgres" fsync=off full_page_writes=off shared_buffers=256MB max_connections=2500 \
    max_locks_per_transaction=256 log_min_messages=fatal
  cluster=$PG_URL
fi
ctl=$bin/lockstepctl
patience=${PATIENCE:-1800}
await() { # as in lib.sh, for longer
  local found end=$((SECONDS + patience))
  while [ $SECONDS -lt $end ]; do
    found=$(sql "$2" "$3")
    [ "$found" != "$1" ] || { checks=$((checks + 1)); return 0; }
    sleep 0.2
  done
  fail "'$found' in the end, not '$1': $3"
}
began() { start_ms=$(date +%s%3N); }
took() { echo "$(($(date +%s%3N) - start_ms)) ms"; }
memory() { echo "$(($(awk '/VmHWM/ {print $2}' "/proc/$1/status") / 1024)) MiB at most, $(ls "/proc/$1/task" | wc -l) threads"; }
get() { # URL
  local at=${1#http://}
  exec 9<>"/dev/tcp/${at%%:*}/$(echo "$at" | sed 's/^[^:]*:\([0-9]*\).*/\1/')"
  printf 'GET /%s HTTP/1.0\r\n\r\n' "${at#*/}" >&9
  cat <&9
  exec 9>&-
}
url_of() { # LOG
  await_line 'url=http' "$dir/$1.log"
  sed -n 's/.*url=\(http:[^ ]*\).*/\1/p' "$dir/$1.log" | head -n 1
}

# One source, one feed; `prepare` again starts over.
prepare() {
  new_database "${name}_source_$RANDOM"; source=$made
  new_database "${name}_feed_$RANDOM"; feed=$made
  write_files
  start_emulator
  "$ctl" --config "$dir/pubsub.yaml" provision --yes >/dev/null 2>&1
  "$ctl" --database "$source" migrate up --set outbox >/dev/null
  "$ctl" --database "$source" outbox create shop.outbox >/dev/null
  "$ctl" --database "$feed" migrate up --set state --schema feed_state >/dev/null
  sql "$feed" "$read_model"
}
run_publisher() {
  start publisher "$@" "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$source"
  publisher=$pid
}
run_runner() {
  start runner "$@" "$bin/lockstep-runner" --config "$dir/runner.yaml" --database "$feed"
  runner=$pid
}
end_both() { stop "$publisher"; stop "$runner"; }

sizes() {
  prepare
  local bytes
  for bytes in 1025 65536; do
    refuses '1 to 1024 bytes' psql -v ON_ERROR_STOP=1 -d "$source" -c "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item',
      repeat('k', $bytes), 'Set', 1, '{}', content_type => 'application/json')"
  done
  may "$source" "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item', repeat('k', 1024), 'Set', 1,
    convert_to('{\"title\": \"a key of 1,024 bytes\"}', 'UTF8'), content_type => 'application/json')"
  refuses '10 MB' psql -v ON_ERROR_STOP=1 -d "$source" -c "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item', 'too large', 'Set', 1,
    convert_to(repeat('x', 10000000), 'UTF8'), content_type => 'application/json')"
  # 9,990,000 bytes leave room for the attributes.
  sql "$source" "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item', 'large' || i, 'Set', 1,
    convert_to('{\"title\": \"' || repeat('x', 9989980) || '\"}', 'UTF8'), content_type => 'application/json')
    FROM generate_series(1, 3) i" >/dev/null
  began
  run_publisher
  run_runner
  await 3 "$feed" 'SELECT count(*) FROM feed.item WHERE length(title) = 9989980'
  await 'a key of 1,024 bytes' "$feed" 'SELECT title FROM feed.item WHERE length(id) = 1024'
  echo "sizes: keys of 1,025 and 65,536 bytes refused at enqueue, 1,024 travel; payloads of 10,000,000 bytes refused," \
    "3 of 9,989,994 travel in $(took); publisher $(memory "$publisher"), runner $(memory "$runner")"
  end_both
}

ages() {
  prepare
  # A year ago: written then, and waiting ever since.
  sql "$source" "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item', 'old' || i, 'Set', 1,
    convert_to('{\"title\": \"old\"}', 'UTF8'), content_type => 'application/json', occurred_at => now() - interval '1 year')
    FROM generate_series(1, 500) i" >/dev/null
  sql "$source" "UPDATE shop.outbox SET created_at = now() - interval '1 year';
    UPDATE shop.outbox_pending SET available_at = now() - interval '1 year'"
  run_publisher
  run_runner
  await 500 "$feed" "SELECT count(*) FROM feed.item WHERE title = 'old'"
  await 0 "$source" 'SELECT count(*) FROM shop.outbox_status WHERE published_at IS NULL'
  is 500 "$source" 'SELECT count(*) FROM shop.outbox'  # the cleaner counts from the publishing
  get "$(url_of runner)/metrics" >"$dir/metrics"
  if grep -E '^[a-z_]+(\{.*\})? -' "$dir/metrics" | grep -v ' -1$'; then fail 'a negative metric'; fi
  echo "ages: 500 events of a year ago applied; no metric but \"never\" (-1) is negative"
  end_both
  # An hour apart, one way and the other: leases, retries, retention and epochs go by the database's clock. (One is
  # fast, none slow: a deadline that we give to gRPC would have passed by its own clock.)
  [ -f "$bin/../lib/libclock_shift.so" ] || { echo "ages: no clock_shift in this build"; return; }
  local shift=$bin/../lib/libclock_shift.so
  for hours in "3600 0" "0 3600"; do
    set -- $hours
    run_publisher env LD_PRELOAD="$shift" LOCKSTEP_CLOCK_SHIFT="$1"
    run_runner env LD_PRELOAD="$shift" LOCKSTEP_CLOCK_SHIFT="$2"
    sql "$source" "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item', 'shift$1' || i, 'Set', v,
      convert_to('{\"title\": \"t' || v || '\"}', 'UTF8'), content_type => 'application/json')
      FROM generate_series(1, 100) i, generate_series(1, 3) v ORDER BY v" >/dev/null
    await 100 "$feed" "SELECT count(*) FROM feed.item WHERE id LIKE 'shift$1%' AND version = 3"
    get "$(url_of runner)/metrics" >"$dir/metrics"
    grep '^offset_lag_ms' "$dir/metrics" >>"$dir/lag" || true
    # A reset to "now" by somebody whose clock is an hour fast must not drop the next hour.
    says 'epoch' env LD_PRELOAD="$shift" LOCKSTEP_CLOCK_SHIFT=3600 "$ctl" --database "$feed" --config "$dir/runner.yaml" \
      offsets reset feed --to-latest --reason clocks --yes
    await 'done' "$feed" 'SELECT seek_state FROM feed_state.consumer_groups'
    is t "$feed" 'SELECT skip_before <= now() FROM feed_state.consumer_groups'
    sql "$source" "$(enqueue "after$1" 1 '{"title": "after the reset"}')" >/dev/null
    await 1 "$feed" "SELECT count(*) FROM feed.item WHERE id = 'after$1'"
    end_both
  done
  echo "ages: the publisher an hour ahead of the runner, and the other way round: all applied, in order; a reset to" \
    "latest by a clock an hour fast drops nothing; the runner's lag read: $(awk '{print $2}' "$dir/lag" | tr '\n' ' ')"
}

parked() {
  local count=${PARKED:-100000}
  prepare
  sql "$source" "$(enqueue one 1 '{}' Unknown)" >/dev/null
  sql "$source" "INSERT INTO shop.outbox (event_id, topic, aggregate_type, aggregate_id, event_type, version, payload, content_type)
    SELECT lockstep.new_event_id(), 'shop.item.set.v1', 'item', 'one', 'Set', v,
           convert_to('{\"title\": \"t' || v || '\", \"amount\": 1}', 'UTF8'), 'application/json'
    FROM generate_series(2, $count + 1) v"
  began
  run_publisher
  run_runner
  await "$count" "$feed" 'SELECT count(*) FROM feed_state.parked'
  local parked_in=$(took)
  is 0 "$feed" 'SELECT count(*) FROM feed.item'
  began
  "$ctl" --database "$feed" --config "$dir/runner.yaml" dead-letters discard 1 --reason limits --yes >"$out" 2>&1 || fail discard
  await "$((count + 1))" "$feed" "SELECT version FROM feed.item WHERE id = 'one' UNION ALL SELECT 0 WHERE NOT EXISTS (TABLE feed.item)"
  await 0 "$feed" 'SELECT count(*) FROM feed_state.parked'
  echo "parked: $count events of one key parked in $parked_in, released and applied in order in $(took);" \
    "runner $(memory "$runner")"
  end_both
}

keys() {
  local count=${KEYS:-1000000}
  prepare
  began
  sql "$source" "INSERT INTO shop.outbox (event_id, topic, aggregate_type, aggregate_id, event_type, version, payload, content_type)
    SELECT lockstep.new_event_id(), 'shop.item.set.v1', 'item', 'key' || i, 'Set', 1, convert_to('{\"title\": \"t\"}', 'UTF8'),
           'application/json' FROM generate_series(1, $count) i"
  sql "$source" 'ANALYZE shop.outbox'
  echo "keys: $count rows written in $(took)"
  began
  run_publisher
  run_runner
  await "$count" "$feed" "SELECT coalesce(max(n_tup_ins), 0) FROM pg_stat_user_tables WHERE relname = 'item'"
  await "$count" "$feed" 'SELECT count(*) FROM feed.item'
  await 0 "$source" 'SELECT count(*) FROM shop.outbox_status WHERE published_at IS NULL'
  echo "keys: $count keys published and applied in $(took); publisher $(memory "$publisher"), runner $(memory "$runner")"
  end_both
}

outboxes() {
  local count=${OUTBOXES:-1000}
  prepare
  began
  for first in $(seq 1 100 "$count"); do  # a transaction holds a lock per table
    sql "$source" "SELECT lockstep.create_outbox('shop.outbox' || i) FROM generate_series($first, least($first + 99, $count)) i" >/dev/null
  done
  echo "outboxes: $count made in $(took)"
  {
    echo 'pubsub: {project: lab}'
    echo 'topics: {shop.item.set.v1: shop.events}'
    echo 'http: {port: 0}'
    echo 'relay:'
    echo '  tables:'
    for i in $(seq "$count"); do echo "    - shop.outbox$i"; done
  } >"$dir/publisher.yaml"
  began
  run_publisher
  sql "$source" "SELECT lockstep.enqueue(('shop.outbox' || i)::regclass, 'shop.item.set.v1', 'item', 'key' || i, 'Set', 1,
    convert_to('{\"title\": \"t\"}', 'UTF8'), content_type => 'application/json') FROM generate_series(1, $count) i" >/dev/null
  run_runner
  await "$count" "$feed" 'SELECT count(*) FROM feed.item'
  echo "outboxes: an event of each of $count through one publisher in $(took) from its start; publisher" \
    "$(memory "$publisher"), $(sql "$source" "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'lockstep-publisher%'") connections"
  began
  sql "$source" "SELECT lockstep.enqueue(('shop.outbox' || i)::regclass, 'shop.item.set.v1', 'item', 'again' || i, 'Set', 1,
    convert_to('{\"title\": \"t\"}', 'UTF8'), content_type => 'application/json') FROM generate_series(1, $count) i" >/dev/null
  await "$((2 * count))" "$feed" 'SELECT count(*) FROM feed.item'
  echo "outboxes: another of each, once it runs, in $(took)"
  local before=$(awk '{print $14 + $15}' "/proc/$publisher/stat")
  sleep 10
  echo "outboxes: idle, it uses $(($(awk '{print $14 + $15}' "/proc/$publisher/stat") - before)) hundredths of a second of CPU in 10 s"
  end_both
}

groups() {
  local count=${GROUPS_:-100} i
  prepare
  {
    echo 'pubsub: {project: lab}'
    echo 'topics: [{name: shop.events, retention: 1d}]'
    echo 'subscriptions:'
    for i in $(seq "$count"); do echo "  - {name: shop.events.feed$i, topic: shop.events, ordering: true}"; done
  } >"$dir/pubsub.yaml"
  "$ctl" --config "$dir/pubsub.yaml" provision --yes >/dev/null 2>&1
  {
    printf 'state_schema: feed_state\npubsub: {project: lab}\nhttp: {port: 0}\ngroups:\n'
    for i in $(seq "$count"); do
      sed "s/^group: .*/group: feed$i/; s/^subscription: .*/subscription: shop.events.feed$i/; s/feed\.item/feed.item$i/" "$dir/group.yaml" >"$dir/group$i.yaml"
      echo "  - {file: group$i.yaml, lanes: 2}"
    done
  } >"$dir/runner.yaml"
  sql "$feed" "DO \$\$ BEGIN FOR i IN 1..$count LOOP EXECUTE format('CREATE TABLE feed.item%s (LIKE feed.item INCLUDING ALL)', i); END LOOP; END \$\$"
  began
  run_runner
  run_publisher
  sql "$source" "SELECT lockstep.enqueue('shop.outbox', 'shop.item.set.v1', 'item', 'key' || i, 'Set', 1,
    convert_to('{\"title\": \"t\"}', 'UTF8'), content_type => 'application/json') FROM generate_series(1, 1000) i" >/dev/null
  await "$((1000 * count))" "$feed" "SELECT coalesce(sum(n_live_tup), 0) FROM pg_stat_user_tables WHERE relname ~ '^item[0-9]+\$'"
  echo "groups: 1,000 events in each of $count groups of one runner in $(took) from its start; runner $(memory "$runner")," \
    "$(sql "$feed" "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'lockstep%'") connections"
  end_both
}

for case in "$@"; do
  case $case in
    sizes | ages | parked | keys | outboxes | groups) $case ;;
    *) usage >&2; exit 2 ;;
  esac
done
