#!/usr/bin/env bash
# The journey of docs/replicas.md, docs/verify.md and docs/rebuild.md: a source with rows that never were events, changed all the time,
# publishers, runners and the command itself killed; replicated in one command, proved equal, spoilt, found, repaired, equal again; spoilt
# once more, and rebuilt from the source's rows, of a topic that keeps nothing.
#   replicas_test.sh BIN_DIR     (needs LOCKSTEP_TEST_PG; LOCKSTEP_REPLICA_ROWS, default 20000)
set -euo pipefail
bin=$(cd "$1" && pwd)
rows=${LOCKSTEP_REPLICA_ROWS:-20000}
dir=$(mktemp -d)
catalog=replicas_catalog_$$ feed=replicas_feed_$$
emulator='' publisher='' runner='' load='' command=''
cleanup() {
  for pid in $command $load $publisher $runner $emulator; do kill "$pid" 2>/dev/null || true; done
  wait || true
  for database in $catalog $feed; do
    psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  done
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "FAILED: $1"; tail -n 30 "$dir"/*.out "$dir"/*.log 2>/dev/null; exit 1; }
await() { for _ in $(seq 2400); do "$@" && return; sleep 0.05; done; fail "waited in vain: $*"; }
export PATH=$bin:$PATH
cd "$dir"
for database in $catalog $feed; do psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"; done
source_url=${LOCKSTEP_TEST_PG%/*}/$catalog replica_url=${LOCKSTEP_TEST_PG%/*}/$feed
source_sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$source_url" "$@"; }
replica_sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$replica_url" "$@"; }

# The source: rows that were there before; every change from now on raises the version and enqueues, in one transaction.
lockstepctl --database "$source_url" migrate up --set outbox >/dev/null
lockstepctl --database "$source_url" outbox create catalog.outbox >/dev/null
source_sql >/dev/null <<END
CREATE TABLE catalog.videos (
  tenant text NOT NULL, video_id bigint NOT NULL, version bigint NOT NULL, title text, length numeric, taken_at timestamptz,
  PRIMARY KEY (tenant, video_id));
CREATE TABLE catalog.versions (tenant text, video_id bigint, version bigint NOT NULL, PRIMARY KEY (tenant, video_id));
INSERT INTO catalog.videos
SELECT 't' || n % 3, n, 1 + n % 5, CASE WHEN n % 11 > 0 THEN 'Title ' || n || ' "ü"' END, n / 7.0, '2020-01-01Z'::timestamptz + n * interval '1 min'
FROM generate_series(1, $rows) n;
INSERT INTO catalog.versions SELECT tenant, video_id, version FROM catalog.videos;
-- Creates, changes, deletes and makes anew.
CREATE FUNCTION catalog.change(n bigint) RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE t text := 't' || n % 3; v bigint; gone boolean := random() < 0.2; r catalog.videos;
BEGIN
  INSERT INTO catalog.versions AS k VALUES (t, n, 1)
  ON CONFLICT (tenant, video_id) DO UPDATE SET version = k.version + 1 RETURNING k.version INTO v;
  IF gone THEN
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
END
cat >videos.yaml <<'END'
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
payload:
  fields: [video_id, title, length, taken_at]
rows_per_second: 0
END

# The consumer: an empty table.
lockstepctl --database "$replica_url" migrate up --set state --schema feed_state >/dev/null
replica_sql -c 'CREATE SCHEMA feed' -c 'CREATE TABLE feed.video (tenant text, video_id bigint, title text, length numeric, taken_at timestamptz,
  version bigint NOT NULL, PRIMARY KEY (tenant, video_id))'
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
cat >publisher.yaml <<END
database: $source_url
pubsub: {project: shop}
relay: {tables: [catalog.outbox], session_timeout: 3s, lock_ttl: 3s, ping_interval: 500ms}
topics: {catalog.videos: catalog.videos}
http: {enabled: false}
END
cat >pubsub.yaml <<END
pubsub: {project: shop}
topics: [{name: catalog.videos}]
subscriptions: [{name: catalog.videos.feed, topic: catalog.videos, ordering: true}]
END
: >emulator.out
lockstep-emulator --port 0 >emulator.out 2>&1 &
emulator=$!
emulator_is_up() { grep -q 'listening on ' emulator.out; }
await emulator_is_up
PUBSUB_EMULATOR_HOST=$(sed -n 's/.*listening on //p' emulator.out)
export PUBSUB_EMULATOR_HOST
lockstepctl --config pubsub.yaml provision --yes >provision.out 2>&1 || fail 'provision'
start_publisher() { lockstep-publisher --config publisher.yaml >>publisher.log 2>&1 & publisher=$!; }
start_runner() { lockstep-runner --config runner.yaml >>runner.log 2>&1 & runner=$!; }
start_publisher
start_runner
start_load() {
  while :; do source_sql -c "SELECT catalog.change((random() * $rows * 1.1)::bigint) FROM generate_series(1, 5)" >/dev/null || exit 0; sleep 0.05; done &
  load=$!
}
stop_load() {
  kill "$load"
  wait "$load" 2>/dev/null || true
  load=''
}
kill_both() {
  kill -9 "$publisher" "$runner"
  wait "$publisher" "$runner" 2>/dev/null || true
  start_publisher
  start_runner
}
some_sent() { # NUMBER: of the backfills so far
  [ "$(source_sql -c 'SELECT count(*) FROM lockstep.backfills WHERE rows_done > 0')" = "$1" ]
}
start_load

# Adopt, in one command that is killed once.
replicate() {
  lockstepctl --config runner.yaml replicate feed --declaration videos.yaml --source "$source_url" --grace 12s --deep --yes \
    --reason 'feed adopts the catalogue'
}
replicate >replicate1.out 2>&1 &
command=$!
await some_sent 1
for _ in 1 2; do
  kill_both
  sleep 1
done
kill -9 "$command" 2>/dev/null || true
wait "$command" 2>/dev/null || true
command=''
replicate >replicate2.out 2>&1 || fail 'equal under load'
grep -q 'Group feed is a replica of catalog.videos' replicate2.out || fail 'no word of it'
[ "$(source_sql -c "SELECT string_agg(state, ' ') FROM lockstep.backfills")" = 'done' ] || fail 'not one backfill that is done'
lockstepctl --database "$source_url" backfill status videos >status.out 2>&1 || fail 'backfill status'

# Prove: when it stands still, too.
compare() {
  lockstepctl --config runner.yaml verify --declaration videos.yaml --source "$source_url" --group feed --grace 12s "$@"
}
stop_load
compare --deep >verify2.out 2>&1 || fail 'equal at rest'
is_equal() {
  local columns='tenant, video_id, title, length, taken_at, version'
  local hash="SELECT md5(string_agg(md5(v::text), '' ORDER BY tenant, video_id)) FROM (SELECT $columns FROM"
  [ "$(source_sql -c "$hash catalog.videos) v")" = "$(replica_sql -c "$hash feed.video) v")" ]
}
is_equal || fail 'verify says equal, and it is not'

# Spoil it: each in its own way, on rows that are there.
replica_sql >/dev/null <<'END'
CREATE TABLE feed.spoilt AS SELECT tenant, video_id, row_number() OVER (ORDER BY video_id) AS n FROM feed.video ORDER BY video_id LIMIT 40;
DELETE FROM feed.video v USING feed.spoilt s WHERE (v.tenant, v.video_id) = (s.tenant, s.video_id) AND n <= 10;
UPDATE feed.video v SET title = 'spoilt' FROM feed.spoilt s WHERE (v.tenant, v.video_id) = (s.tenant, s.video_id) AND n BETWEEN 11 AND 20;
UPDATE feed.video v SET version = 0, length = -1 FROM feed.spoilt s WHERE (v.tenant, v.video_id) = (s.tenant, s.video_id) AND n BETWEEN 21 AND 30;
INSERT INTO feed.video SELECT 'ghost', n, 'boo', 1, now(), 1 FROM generate_series(1, 10) n;
END
status=0
compare --deep --json >verify3.json 2>verify3.out || status=$?
[ "$status" = 1 ] || fail "a spoilt replica ends with $status"
for class in missing content behind ghost; do
  grep -Eq "\"$class\": ?10\b" verify3.json || fail "not 10 $class"
done

# Repair it.
lockstepctl --config runner.yaml repair --declaration videos.yaml --source "$source_url" --group feed --grace 12s --deep \
  --delete-ghosts --whole-table --yes --reason 'spoilt on purpose' >repair.out 2>&1 || fail 'repair'
compare --deep >verify4.out 2>&1 || fail 'equal after the repair'
[ "$(replica_sql -c "SELECT count(*) FROM feed.video WHERE tenant = 'ghost' OR title IN ('spoilt', 'boo') OR length < 0")" = 0 ] ||
  fail 'verify says equal, and what was spoilt is there'

# Rebuild it from the source's rows: the topic keeps nothing.
replica_sql -c "UPDATE feed.video SET title = 'spoilt' WHERE (tenant, video_id) IN (SELECT tenant, video_id FROM feed.spoilt WHERE n > 30)" \
  -c "INSERT INTO feed.video SELECT 'ghost', n, 'boo', 1, now(), 1 FROM generate_series(1, 10) n"
start_load
lockstepctl --config runner.yaml rebuild feed --from backfill --declaration videos.yaml --source "$source_url" --yes \
  --reason 'spoilt on purpose' >rebuild1.out 2>&1 &
command=$!
await some_sent 3
kill_both
kill -9 "$command" 2>/dev/null || true
wait "$command" 2>/dev/null || true
command=''
if lockstepctl --config runner.yaml rebuild resume feed --source "$source_url" >rebuild2.out 2>&1; then fail 'differences were not seen'; fi
grep -q '(ghost,1) is missing in the new table' rebuild2.out || fail 'no ghost among the differences'
lockstepctl --config runner.yaml rebuild resume feed --source "$source_url" --accept-differences >rebuild3.out 2>&1 || fail 'rebuild'
[ "$(source_sql -c "SELECT string_agg(state, ' ') FROM lockstep.backfills WHERE NOT repair")" = 'done done' ] || fail 'a second backfill of the rebuild'
stop_load
compare --deep >verify5.out 2>&1 || fail 'equal after the rebuild'
is_equal || fail 'verify says that the rebuilt one is equal, and it is not'
lockstepctl --config runner.yaml rebuild finish feed --now --yes >finish.out 2>&1 || fail 'rebuild finish'
echo "a replica of $rows rows: backfilled under load and kills, equal, spoilt, found, repaired, equal, spoilt, rebuilt, equal"
