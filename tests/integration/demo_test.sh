#!/usr/bin/env bash
# scripts/demo ends in an equal read model; and killed at any moment it leaves nothing behind.
# A column more needs no compiler.
#   demo_test.sh BIN_DIR whole | column | transport NAME | kill SIGNAL SECONDS
set -euo pipefail
bin=$1
shift
cd "$(dirname "$0")/../.."
export TMPDIR
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-demo-test.XXXXXX")
chmod 755 "$TMPDIR"
trap 'rm -rf "$TMPDIR"' EXIT

# By their environment; Postgres overwrites that, but its command line names the folder.
left_processes() {
  local file
  for file in $(grep -slza "^LOCKSTEP_DEMO_DIR=$TMPDIR/" /proc/[0-9]*/environ) \
    $(grep -slaF "$TMPDIR/lockstep-demo." /proc/[0-9]*/cmdline); do
    { tr '\0' ' ' <"${file%/*}/cmdline"; } 2>/dev/null || continue
    echo
  done
}

expect_nothing_left() {
  local left=
  for _ in $(seq 150); do
    left=$(left_processes; ls "$TMPDIR")
    [ -n "$left" ] || return 0
    sleep 0.1
  done
  echo "left behind:"
  echo "$left"
  exit 1
}

case $1 in
  whole)
    scripts/demo --bin "$bin" --changes 400 --rate 400 | tee "$TMPDIR.out"
    grep -q 'The read model equals the source' "$TMPDIR.out"
    rm -f "$TMPDIR.out"
    ;;
  transport)
    # Publisher, runner and lockstepctl on another client library, which says so in the daemons' logs.
    LOCKSTEP_PUBSUB_TRANSPORT=$2 scripts/demo --bin "$bin" --changes 400 --rate 400 --keep >"$TMPDIR.out"
    dir=$(sed -n 's/^  end it .*--stop //p' "$TMPDIR.out")
    said=$(grep -lF "Pub/Sub through $2" "$dir/publisher.log" "$dir/runner.log" | wc -l)
    scripts/demo --stop "$dir"
    equal=$(grep -c 'The read model equals the source' "$TMPDIR.out" || true)
    rm -f "$TMPDIR.out"
    [ "$equal" -eq 1 ] || { echo "the read model is not the source's"; exit 1; }
    [ "$said" -eq 2 ] || { echo "$said of 2 daemons ran on $2"; exit 1; }
    ;;
  column)
    # What a user does: a column in the table, a word in the file. The binaries are as they were.
    catalog=$(mktemp -d)
    cp "$(dirname "$bin")"/examples/catalog/* "$catalog"
    sed -i 's/\[uploader_id, title,/[{headline: title}, uploader_id, title,/; s/merge: \[title,/merge: [{headline: title}, title,/' \
      "$catalog/catalog.yaml"
    echo 'ALTER TABLE catalog_read.video_projection ADD COLUMN headline text;' >>"$catalog/read_model.sql"
    scripts/demo --bin "$bin" --catalog "$catalog" --changes 200 --rate 400 --keep >"$TMPDIR.out"
    feed=$(sed -n 's/^  the read model  psql \([^ ]*\) .*/\1/p' "$TMPDIR.out")
    filled=$(psql -XAt -d "$feed" -c "SELECT count(*) > 0 AND bool_and(headline IS NOT DISTINCT FROM title)
      FROM catalog_read.video_projection WHERE title IS NOT NULL")
    scripts/demo --stop "$(sed -n 's/^  end it .*--stop //p' "$TMPDIR.out")"
    rm -rf "$TMPDIR.out" "$catalog"
    [ "$filled" = t ] || { echo "the new column is not filled"; exit 1; }
    ;;
  kill)
    # A command started with & would ignore SIGINT; a user's does not.
    setsid env --default-signal=INT scripts/demo --bin "$bin" --changes 3000 --rate 300 >/dev/null 2>&1 &
    demo=$!
    sleep "$3"
    kill -"$2" "$demo" 2>/dev/null || { echo "the demo was over before it could be killed"; exit 1; }
    status=0
    wait "$demo" 2>/dev/null || status=$?
    [ "$status" -gt 128 ] || { echo "the demo ended with $status, not by the signal"; exit 1; }
    ;;
esac
expect_nothing_left
echo "nothing is left behind"
