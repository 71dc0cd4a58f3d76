#!/usr/bin/env bash
# scripts/demo ends in an equal read model; and killed at any moment it leaves nothing behind.
# A column more needs no compiler.
#   demo_test.sh BIN_DIR whole | saga | column | transport NAME | kill SIGNAL MOMENT
set -euo pipefail
bin=$1
shift
cd "$(dirname "$0")/../.."
export TMPDIR
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-demo-test.XXXXXX")
chmod 755 "$TMPDIR"
aside=$TMPDIR.aside  # what is the test's own
mkdir "$aside"
trap 'rm -rf "$TMPDIR" "$aside"' EXIT

# All that comes of a demo, its guard too, has this in its environment; Postgres overwrites that, but its
# command line names the folder.
demo() { LOCKSTEP_DEMO_TEST=$TMPDIR scripts/demo "$@"; }
left_processes() {
  local file
  for file in $(grep -slzaxF "LOCKSTEP_DEMO_TEST=$TMPDIR" /proc/[0-9]*/environ) \
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

# Programs that stay at their work until they are ended, each with a child, in place of apt-get and cmake.
stand_ins() {
  mkdir "$aside/stand-ins"
  cat >"$aside/stand-ins/stand-in" <<EOT
#!/bin/sh
program=\$(basename "\$0")
[ "\$program" != sudo ] || exec "\$@"
case "\$program \$*" in
  "apt-get "*--download-only*) now=downloading ;;
  "apt-get "*" install "*) now=installing ;;
  "cmake --preset "*) now=configuring ;;
  "cmake --build "*) now=building ;;
  *) exit 0 ;;  # dpkg-query among them: nothing is installed
esac
[ \$now = $1 ] || exit 0
touch "$aside/come"
# dpkg must not be stopped half way; all others must be.
if [ \$now = installing ]; then sleep 1; touch "$aside/installed"; else sleep 300 & wait; fi
EOT
  chmod 755 "$aside/stand-ins/stand-in"
  local program programs=cmake
  case $1 in downloading | installing) programs="dpkg-query apt-get sudo" ;; esac
  for program in $programs; do ln -s stand-in "$aside/stand-ins/$program"; done
}

# has_come MOMENT: the demo is there.
has_come() {
  # shellcheck disable=SC2086,SC2125  # the star stands for what mktemp chose
  local dir=$TMPDIR/lockstep-demo.*
  case $1 in
    downloading | installing | configuring | building) [ -e "$aside/come" ] ;;
    folder) [ -d $dir ] ;;
    initdb) [ -e $dir/postgres/initdb.log ] ;;
    cluster) [ -e $dir/postgres/data/postmaster.pid ] ;;
    emulator) [ -e $dir/emulator.out ] ;;
    programs) [ -e $dir/runner.log ] ;;
    running) grep -q ' applied ' "$aside/out" ;;
    comparing) grep -q ' applied 2000 ' "$aside/out" ;;
    story) grep -q '^3. Cleo' "$aside/out" ;;
    *) echo "no moment $1"; exit 2 ;;
  esac
}

case $1 in
  whole)
    demo --bin "$bin" --changes 400 --rate 400 | tee "$aside/out"
    grep -q 'The read model equals the source' "$aside/out"
    ;;
  saga)
    command -v node >/dev/null || { echo "SKIPPED: node is not installed"; exit 77; }
    demo --bin "$bin" --saga | tee "$aside/out"
    grep -q 'Stock, money, events and sagas agree' "$aside/out"
    [ "$(grep -c 'undone: announce, then charge, then reserve' "$aside/out")" -eq 2 ]
    ;;
  transport)
    # Publisher, runner and lockstepctl on another client library, which says so in the daemons' logs.
    LOCKSTEP_PUBSUB_TRANSPORT=$2 demo --bin "$bin" --changes 400 --rate 400 --keep >"$aside/out"
    dir=$(sed -n 's/^  end it .*--stop //p' "$aside/out")
    said=$(grep -lF "Pub/Sub through $2" "$dir/publisher.log" "$dir/runner.log" | wc -l)
    scripts/demo --stop "$dir"
    grep -q 'The read model equals the source' "$aside/out"
    [ "$said" -eq 2 ] || { echo "$said of 2 daemons ran on $2"; exit 1; }
    ;;
  column)
    # What a user does: a column in the table, a word in the file. The binaries are as they were.
    catalog=$aside/catalog
    mkdir "$catalog"
    cp "$(dirname "$bin")"/examples/catalog/* "$catalog"
    sed -i 's/\[uploader_id, title,/[{headline: title}, uploader_id, title,/; s/merge: \[title,/merge: [{headline: title}, title,/' \
      "$catalog/catalog.yaml"
    echo 'ALTER TABLE catalog_read.video_projection ADD COLUMN headline text;' >>"$catalog/read_model.sql"
    demo --bin "$bin" --catalog "$catalog" --changes 200 --rate 400 --keep >"$aside/out"
    feed=$(sed -n 's/^  the read model  psql \([^ ]*\) .*/\1/p' "$aside/out")
    filled=$(psql -XAt -d "$feed" -c "SELECT count(*) > 0 AND bool_and(headline IS NOT DISTINCT FROM title)
      FROM catalog_read.video_projection WHERE title IS NOT NULL")
    # Which page is whose, and three commands that work as they stand.
    [ "$(grep -cE "the (publisher|runner)'s: " "$aside/out")" -eq 2 ] || { echo "it does not say which page is whose"; cat "$aside/out"; exit 1; }
    tried=0
    while read -r command; do
      $command >"$aside/answer" 2>&1 </dev/null || { echo "$command"; cat "$aside/answer"; exit 1; }
      tried=$((tried + 1))
    done < <(sed -n '/^Three commands to try/,$s/^  \(.*lockstepctl .*\)/\1/p' "$aside/out")
    [ "$tried" -eq 3 ] || { echo "$tried of 3 commands were found"; cat "$aside/out"; exit 1; }
    scripts/demo --stop "$(sed -n 's/^  end it .*--stop //p' "$aside/out")"
    if scripts/demo --kep 2>"$aside/answer" || ! grep -q "'--kep'" "$aside/answer"; then echo "an unknown flag is not named"; exit 1; fi
    [ "$filled" = t ] || { echo "the new column is not filled"; exit 1; }
    ;;
  kill)
    signal=$2 moment=$3
    arguments=(--bin "$bin" --changes 3000 --rate 300)
    case $moment in
      downloading | installing | configuring | building)
        command -v apt-get >/dev/null || { echo "SKIPPED: no Debian, so scripts/setup does nothing"; exit 77; }
        stand_ins "$moment"
        arguments=(--preset none) PATH=$aside/stand-ins:$PATH ;;
      comparing) arguments=(--bin "$bin" --changes 2000 --rate 4000) ;;
      story)
        command -v node >/dev/null || { echo "SKIPPED: node is not installed"; exit 77; }
        arguments=(--bin "$bin" --saga) ;;
    esac
    # A command started with & would ignore SIGINT; a user's does not.
    setsid env --default-signal=INT LOCKSTEP_DEMO_TEST="$TMPDIR" scripts/demo "${arguments[@]}" >"$aside/out" 2>"$aside/err" &
    demo=$!
    for _ in $(seq 6000); do
      has_come "$moment" && break
      [ -d "/proc/$demo" ] || break
      sleep 0.01
    done
    has_come "$moment" || { echo "the demo never came to $moment"; cat "$aside/out" "$aside/err"; exit 1; }
    status=0
    kill -"$signal" "$demo" 2>/dev/null || true
    wait "$demo" 2>/dev/null || status=$?
    # The comparison takes milliseconds: it may be over before the signal.
    [ "$status" -gt 128 ] || { [ "$moment" = comparing ] && [ "$status" -eq 0 ]; } ||
      { echo "the demo ended with $status, not by the signal"; exit 1; }
    ;;
esac
expect_nothing_left
if [ "${moment:-}" = installing ]; then
  [ -e "$aside/installed" ] || { echo "apt-get was stopped while it installed"; exit 1; }
fi
echo "nothing is left behind"
