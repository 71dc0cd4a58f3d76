#!/usr/bin/env bash
# scripts/bench replica (needs: postgres lockstep-publisher lockstep-runner lockstep-emulator lockstepctl): a table that was there
# before, changed all the time, is backfilled into an empty replica while publishers and runners are killed; then compared. Tells how
# long writes to the source took meanwhile, beside writes without a backfill, and how much memory the processes took.
set -euo pipefail
usage() {
  cat <<'EOT'
usage: scripts/bench replica [--rows N] [--writes N] [--kill-every S] [--rebuild] [--json]

  --rows N        of the source's table (default 1000000)
  --writes N      changes a second: creates, updates, deletes, re-creates (default 200)
  --kill-every S  seconds between two kill -9 of a publisher or runner, in turn (default 5)
  --rebuild       then the same again as `lockstepctl rebuild --from backfill`, the topic keeping ten minutes
  --json          one JSON object on stdout
EOT
}
rows=1000000 writes=200 kill_every=5 rebuild=no json=no
while [ $# -gt 0 ]; do
  case $1 in
    --rows) rows=${2:?}; shift 2 ;;
    --writes) writes=${2:?}; shift 2 ;;
    --kill-every) kill_every=${2:?}; shift 2 ;;
    --rebuild) rebuild=yes; shift ;;
    --json) json=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
bin=${LOCKSTEP_BIN:?scripts/bench replica sets it}
pgbench=$(command -v pgbench || find /usr/lib/postgresql -name pgbench 2>/dev/null | sort | tail -n 1)
[ -n "$pgbench" ] || { echo 'bench: pgbench was not found' >&2; exit 1; }
chunk_ms=200 # the declaration's default
dir=$(mktemp -d)
background=()
cleanup() {
  touch "$dir/stop"
  for pid in "${background[@]}" $(cat "$dir"/*.pid 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
say() { [ $json = yes ] || echo "$1"; }
fail() { echo "bench: $1" >&2; tail -n 20 "$dir"/*.out "$dir"/*.log >&2 2>/dev/null || true; exit 1; }
export PATH=$bin:$PATH
cd "$dir"
source_url=${LOCKSTEP_TEST_PG%/*}/replica_bench_source replica_url=${LOCKSTEP_TEST_PG%/*}/replica_bench_feed
for url in "$source_url" "$replica_url"; do
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS ${url##*/} WITH (FORCE)" -c "CREATE DATABASE ${url##*/}" >/dev/null 2>&1
done
source_sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$source_url" "$@"; }
replica_sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$replica_url" "$@"; }

# --- the world ---

make_source() {
  lockstepctl --database "$source_url" migrate up --set outbox >/dev/null
  lockstepctl --database "$source_url" outbox create catalog.outbox >/dev/null
  source_sql >/dev/null <<SQL
CREATE TABLE catalog.videos (
  tenant text NOT NULL, video_id bigint NOT NULL, version bigint NOT NULL, title text, length numeric, taken_at timestamptz,
  PRIMARY KEY (tenant, video_id));
-- Those of deleted rows too: what is made anew goes on from there.
CREATE TABLE catalog.versions (video_id bigint PRIMARY KEY, version bigint NOT NULL);
INSERT INTO catalog.videos
SELECT 't' || n % 3, n, 1 + n % 5, 'Title ' || n, n / 7.0, '2020-01-01Z'::timestamptz + n * interval '1 min'
FROM generate_series(1, $rows) n;
INSERT INTO catalog.versions SELECT video_id, version FROM catalog.videos;
CREATE FUNCTION catalog.change(n bigint) RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE t text := 't' || n % 3; v bigint; r catalog.videos;
BEGIN
  INSERT INTO catalog.versions AS k VALUES (n, 1)
  ON CONFLICT (video_id) DO UPDATE SET version = k.version + 1 RETURNING k.version INTO v;
  IF random() < 0.2 THEN
    DELETE FROM catalog.videos WHERE tenant = t AND video_id = n;
    PERFORM lockstep.enqueue('catalog.outbox', 'catalog.videos', 'video', n::text, 'VideoDeleted', v,
      convert_to(json_build_object('video_id', n)::text, 'UTF8'), tenant_id => t, content_type => 'application/json');
  ELSE
    INSERT INTO catalog.videos AS c VALUES (t, n, v, 'New ' || v, random() * 100, now())
    ON CONFLICT (tenant, video_id) DO UPDATE SET version = excluded.version, title = excluded.title,
      length = excluded.length, taken_at = excluded.taken_at
    RETURNING c.* INTO r;
    PERFORM lockstep.enqueue('catalog.outbox', 'catalog.videos', 'video', n::text, 'VideoSaved', v,
      convert_to(json_build_object('video_id', n, 'title', r.title, 'length', r.length, 'taken_at', r.taken_at)::text, 'UTF8'),
      tenant_id => t, content_type => 'application/json');
  END IF;
END \$\$;
ANALYZE;
SQL
  cat >videos.yaml <<END
backfill: videos
outbox: catalog.outbox
topic: catalog.videos
table: catalog.videos
key: [tenant, video_id]
aggregate_type: video
aggregate_id: video_id
version: version
tenant: tenant
event_type: VideoSaved
payload: {fields: [video_id, title, length, taken_at]}
rows_per_second: 0
chunk: ${chunk_ms}ms
END
  cat >publisher.yaml <<END
database: $source_url
pubsub: {project: shop}
relay: {tables: [catalog.outbox], shards: 4, single_active: false, session_timeout: 3s, lock_ttl: 3s, ping_interval: 500ms}
backfill: {lease: 5s}
topics: {catalog.videos: catalog.videos}
http: {enabled: false}
END
  cat >change.sql <<END
\set n random(1, $((rows + rows / 10)))
SELECT catalog.change(:n);
END
}

make_replica() {
  lockstepctl --database "$replica_url" migrate up --set state --schema feed_state >/dev/null
  replica_sql -c 'CREATE SCHEMA feed' -c 'CREATE TABLE feed.video (tenant text, video_id bigint, title text, length numeric,
    taken_at timestamptz, version bigint NOT NULL, PRIMARY KEY (tenant, video_id))'
  cat >feed.yaml <<'END'
group: feed
subscription: catalog.videos.feed
projections:
  - name: video
    table: feed.video
    key: {tenant: {attribute: tenant_id}, video_id: {field: video_id, type: bigint}}
    version: version
    events:
      VideoSaved: {replace: {title: title, length: {field: length, type: numeric}, taken_at: {field: taken_at, type: timestamptz}}}
      VideoDeleted: delete
END
  cat >runner.yaml <<END
database: $replica_url
state_schema: feed_state
pubsub: {project: shop}
http: {enabled: false}
groups: [{file: feed.yaml, ack_deadline: 10s}]
END
}

make_bus() {
  lockstep-emulator --port 0 >emulator.out 2>&1 &
  background+=($!)
  for _ in $(seq 100); do grep -q 'listening on ' emulator.out && break; sleep 0.1; done
  PUBSUB_EMULATOR_HOST=$(sed -n 's/.*listening on //p' emulator.out)
  export PUBSUB_EMULATOR_HOST
  cat >pubsub.yaml <<END
pubsub: {project: shop}
topics: [{name: catalog.videos, retention: 10m}]
subscriptions: [{name: catalog.videos.feed, topic: catalog.videos, ordering: true}]
END
  lockstepctl --config pubsub.yaml provision --yes >provision.out 2>&1 || fail 'provision'
}

# start publisher 1
start() {
  "lockstep-$1" --config "$1.yaml" >>"$1-$2.log" 2>&1 &
  echo $! >"$1-$2.pid"
  disown # its end is no news
}
peak() { # of the processes of one kind that are up, in KiB
  local file
  for file in "$1"-*.pid; do sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$(cat "$file")/status" 2>/dev/null || true; done
}

# --- what goes on beside it ---

# Its own short runs: a log is whole when its run is over.
write_on() { while [ ! -e stop ]; do "$pgbench" -n -c 4 -R "$writes" -T 5 -f change.sql -l --log-prefix="$1" "$source_url" >/dev/null 2>>pgbench.out || true; done; }
# Whoever is stopped by a lock of the backfill's session.
watch_locks() {
  while [ ! -e stop ]; do
    source_sql -c "SELECT count(*) FROM pg_stat_activity w, unnest(pg_blocking_pids(w.pid)) b JOIN pg_stat_activity a ON a.pid = b
      WHERE a.application_name = 'lockstep-publisher backfill'" >>blocked.out 2>/dev/null || true
    sleep 0.1
  done
}
watch_memory() {
  while [ ! -e stop ]; do
    peak publisher >>publisher.peaks
    peak runner >>runner.peaks
    [ ! -e rebuild-1.pid ] || peak rebuild >>rebuild.peaks
    sleep 0.2
  done
}
kill_on() {
  local each
  while :; do
    for each in 'publisher 1' 'runner 1' 'publisher 2' 'runner 2'; do
      sleep "$kill_every"
      [ ! -e stop-kills ] || return 0
      peak "${each% *}" >>"${each% *}.peaks"
      kill -9 "$(cat "${each/ /-}.pid")" || true
      # shellcheck disable=SC2086  # two words
      start $each
      echo 1 >>kills.out
    done
  done
}
most() { sort -n "$@" | tail -n 1; }
# "p50 p99 longest" in ms of what pgbench logged under a prefix: from the statement to its answer, whatever it was late by.
latencies() {
  cat "$1"* | awk '{ print ($3 - $NF) / 1000 }' | sort -n |
    awk '{ a[NR] = $1 } END { if (NR == 0) exit 1; printf "%.1f %.1f %.1f", a[int((NR + 1) / 2)], a[int(NR * 0.99 + 0.5)], a[NR] }'
}
seconds() { date +%s.%N; }
over() { awk "BEGIN { printf \"%.1f\", $1 - $2 }"; }
per_second() { awk "BEGIN { printf \"%.0f\", $1 / $2 }"; }
await() { # as long as it takes, while something moves
  local last='' now still=0
  while ! "$1"; do
    now=$(source_sql -c 'SELECT sum(rows_done) FROM lockstep.backfills')/$(replica_sql -c 'SELECT count(*) FROM feed.video')
    if [ "$now" = "$last" ]; then still=$((still + 1)); else still=0; fi
    [ $still -lt 240 ] || fail "nothing has moved for four minutes: $1"
    last=$now
    sleep 1
  done
}
verify() { lockstepctl --config runner.yaml verify --declaration videos.yaml --source "$source_url" --group feed --deep --grace 15s; }

# --- the journey ---

say "making a table of $rows rows"
make_source
make_replica
make_bus
for each in 1 2; do start publisher $each; start runner $each; done
sleep 2
say 'writing without a backfill, for 20 s'
write_on before. &
background+=($!)
sleep 20
touch stop
wait "${background[-1]}"
rm stop
write_on during. &
background+=($!)
watch_locks &
background+=($!)
watch_memory &
background+=($!)
kill_on &
background+=($!)

# A way to fill the replica: begins, and answers whether all is sent and whether the replica has it.
backfill_begin() { lockstepctl --database "$source_url" backfill start videos.yaml --yes --reason bench >start.out 2>&1 || fail 'backfill start'; }
backfill_is_sent() { [ "$(source_sql -c 'SELECT state FROM lockstep.backfills ORDER BY created_at DESC LIMIT 1')" = 'done' ]; }
# But for what is under way.
replica_has_it() {
  local missing
  missing=$(($(source_sql -c 'SELECT count(*) FROM catalog.videos') - $(replica_sql -c 'SELECT count(*) FROM feed.video')))
  [ $missing -lt $((2 * writes)) ]
}
say 'the backfill begins'
began=$(seconds)
backfill_begin
await backfill_is_sent
sent=$(over "$(seconds)" "$began")
say "sent after $sent s"
await replica_has_it
there=$(over "$(seconds)" "$began")
say "there after $there s; verify --deep, while writes and kills go on"
verify >verify1.out 2>&1 || fail "verify under load ended with $?"
rebuilt=null
if [ $rebuild = yes ]; then
  say 'equal; the rebuild begins, while writes and kills go on'
  began=$(seconds)
  lockstepctl --config runner.yaml rebuild feed --from backfill --declaration videos.yaml --source "$source_url" --yes \
    --reason bench >rebuild.out 2>&1 &
  echo $! >rebuild-1.pid
  wait $! || fail "rebuild ended with $?"
  rebuilt=$(over "$(seconds)" "$began")
  say "rebuilt after $rebuilt s; verify --deep, while writes and kills go on"
  verify >verify3.out 2>&1 || fail "verify of the rebuilt one under load ended with $?"
fi
touch stop-kills
sleep "$kill_every"
touch stop
wait "${background[@]:1}" 2>/dev/null || true
say 'verify --deep at rest'
verify >verify2.out 2>&1 || fail "verify at rest ended with $?"
content="SELECT md5(string_agg(md5(v::text), '' ORDER BY tenant, video_id)) FROM (SELECT tenant, video_id, title, length, taken_at, version FROM"
[ "$(source_sql -c "$content catalog.videos) v")" = "$(replica_sql -c "$content feed.video) v")" ] || fail 'verify says equal, and it is not'

read -r before_p50 before_p99 before_most <<<"$(latencies before.)"
read -r p50 p99 most_ms <<<"$(latencies during.)"
kills=$(wc -l <kills.out)
blocked=$(most blocked.out)
publisher_mib=$(($(most publisher.peaks) / 1024)) runner_mib=$(($(most runner.peaks) / 1024))
rebuild_mib=null
[ $rebuild = no ] || rebuild_mib=$(($(most rebuild.peaks) / 1024))
if [ $json = yes ]; then
  cat <<END
{"rows": $rows, "writes_per_s": $writes, "kills": $kills, "sent_s": $sent, "there_s": $there, "rows_per_s": $(per_second "$rows" "$there"), "rebuilt_s": $rebuilt,
 "equal": true, "blocked_by_the_backfill": $blocked, "chunk_ms": $chunk_ms, "write_ms": {"p50": $p50, "p99": $p99, "longest": $most_ms},
 "write_ms_before": {"p50": $before_p50, "p99": $before_p99, "longest": $before_most}, "publisher_mib": $publisher_mib, "runner_mib": $runner_mib,
 "rebuild_mib": $rebuild_mib}
END
else
  cat <<END
$rows rows in $there s ($(per_second "$rows" "$there")/s; sent in $sent s) under $writes writes/s and $kills kills; verify --deep: equal, under load and at rest
$([ $rebuilt = null ] || echo "rebuilt from the source's rows in $rebuilt s, of a topic that keeps ten minutes: equal, under load and at rest")
writes that waited for the backfill's session: $blocked
a write took, p50 / p99 / longest: $p50 / $p99 / $most_ms ms; before the backfill $before_p50 / $before_p99 / $before_most ms; a chunk's budget is $chunk_ms ms
peak memory: publisher $publisher_mib MiB, runner $runner_mib MiB$([ $rebuild = no ] || echo ", lockstepctl rebuild $rebuild_mib MiB")
END
fi
