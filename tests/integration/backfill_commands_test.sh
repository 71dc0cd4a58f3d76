#!/usr/bin/env bash
# lockstepctl backfill …, as an operator types it; no publisher runs.
#   backfill_commands_test.sh BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
ctl=$1/lockstepctl
database=backfill_commands_$$
out=$(mktemp)
cleanup() {
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -f "$out" "$out.yaml" "$out.bad.yaml"
}
trap cleanup EXIT
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database LOCKSTEP_OPERATOR=ann
sql() { psql -qAt -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" -c "$1"; }
says() { # REGEX COMMAND…: succeeds and says so
  local regex=$1; shift
  "$@" >"$out" 2>&1 </dev/null || { echo "FAILED: $*"; cat "$out"; exit 1; }
  grep -qE "$regex" "$out" || { echo "FAILED: no /$regex/: $*"; cat "$out"; exit 1; }
}
refuses() { # REGEX COMMAND…: fails and says why
  local regex=$1; shift
  if "$@" >"$out" 2>&1 </dev/null; then echo "FAILED: not refused: $*"; exit 1; fi
  grep -qE "$regex" "$out" || { echo "FAILED: no /$regex/: $*"; cat "$out"; exit 1; }
}
cat >"$out.yaml" <<'EOT'
backfill: videos
outbox: catalog.video_outbox
topic: catalog.events
table: catalog.videos
key: [video_id]
aggregate_type: video
version: version
event_type: video.events.VideoCreated
payload:
  fields: [video_id, title]
rows_per_second: 2000
EOT
refuses 'lockstepctl migrate up' "$ctl" backfill check "$out.yaml"
"$ctl" migrate up >/dev/null
refuses 'outbox create catalog.video_outbox' "$ctl" backfill check "$out.yaml"
"$ctl" outbox create catalog.video_outbox >/dev/null
refuses 'catalog.videos can.t be read' "$ctl" backfill check "$out.yaml"
sql "CREATE TABLE catalog.videos (video_id uuid PRIMARY KEY, title text, version bigint);
     INSERT INTO catalog.videos SELECT gen_random_uuid(), 'a title', 1 FROM generate_series(1, 4000)"
says '4000 rows of catalog.videos; 2s' "$ctl" backfill check "$out.yaml"
says '"counted": true' "$ctl" backfill check "$out.yaml" --json
says '"counted": false' "$ctl" backfill check "$out.yaml" --json --quick
sql "INSERT INTO catalog.videos VALUES (gen_random_uuid(), 'no version', NULL)"
refuses '1 rows of catalog.videos have NULL, 0 or less in version' "$ctl" backfill check "$out.yaml"
refuses 'was not started' "$ctl" backfill start "$out.yaml" --yes
sql "DELETE FROM catalog.videos WHERE version IS NULL"
sed 's/topic:/topik:/' "$out.yaml" >"$out.bad.yaml"
refuses "did you mean 'topic'" "$ctl" backfill check "$out.bad.yaml"

refuses 'Repeat with --yes' "$ctl" backfill start "$out.yaml"
says 'There is no backfill' "$ctl" backfill list
says 'status videos --watch' "$ctl" backfill start "$out.yaml" --yes --reason 'new consumer'
refuses 'has not ended' "$ctl" backfill start "$out.yaml" --yes
says 'videos +waits for a publisher +0 +0 +4000 ' "$ctl" backfill list
says '"percent": 0' "$ctl" backfill status videos --json
says 'backfill start +ann@.* new consumer' "$ctl" backfill status videos
# As a publisher would leave it half way, ten seconds after it began.
sql "UPDATE lockstep.backfills SET begun_at = now() - interval '10 s', progress_at = now(), rows_done = 2000, cursor = '{x}'"
says 'videos +waits for a publisher +50 +2000 +4000 +10s ' "$ctl" backfill list --outbox catalog.video_outbox
says 'is paused' "$ctl" backfill pause videos --reason 'peak hours'
refuses 'is paused: pause is for one that is running' "$ctl" backfill pause videos
says 'is running' "$ctl" backfill resume videos
refuses 'Repeat with --yes' "$ctl" backfill cancel videos
says 'is cancelled' "$ctl" backfill cancel videos --yes --reason enough
says 'cancelled' "$ctl" backfill status videos --watch
refuses 'is cancelled' "$ctl" backfill resume videos
refuses 'there is no backfill nothing' "$ctl" backfill status nothing
[ "$(sql "SELECT string_agg(action, ',' ORDER BY id) FROM lockstep.outbox_audit")" = \
  "backfill start,backfill pause,backfill resume,backfill cancel" ]
says 'is [0-9a-f-]{36}' "$ctl" backfill start "$out.yaml" --yes --quick # the name is free again
echo "backfill commands: ok"
