#!/usr/bin/env bash
# Three runners, kills and database restarts throughout; see runner_chaos.cc.
#
#   LOCKSTEP_CHAOS_EVENTS   events (default 20000; the full size is 500000)
#   LOCKSTEP_CHAOS_KEYS     keys (default 1000; full: 10000)
set -euo pipefail
bin=$1   # with lockstep-runner and runner_chaos
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/scripts/lib/postgres.sh"
dir=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-chaos.XXXXXX")
chmod 755 "$dir"
cleanup() {
  postgres_stop
  rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
postgres_start "$dir/postgres" fsync=off full_page_writes=off shared_buffers=256MB log_min_messages=panic
# Immediate: as after a crash, with recovery.
cat >"$dir/restart" <<EOT
#!/usr/bin/env bash
. "$root/scripts/lib/postgres.sh"
pg_bin
pg_run "\$PG_BIN/pg_ctl" -D "$dir/postgres/data" -m immediate -w -t 60 stop >/dev/null 2>&1
pg_run "\$PG_BIN/pg_ctl" -D "$dir/postgres/data" -l "$dir/postgres/postgres.log" -o "-p $PG_PORT" -w -t 60 start >/dev/null 2>&1
EOT
chmod +x "$dir/restart"
status=0
"$bin/runner_chaos" --database "$PG_URL" --runner "$bin/lockstep-runner" --folder "$dir" \
  --restart "$dir/restart" --events "${LOCKSTEP_CHAOS_EVENTS:-20000}" \
  --keys "${LOCKSTEP_CHAOS_KEYS:-1000}" --patience "${LOCKSTEP_CHAOS_PATIENCE:-300}" || status=$?
if [ "$status" -ne 0 ]; then
  for log in "$dir"/runner*.log; do
    echo "--- the end of $(basename "$log")"
    tail -n 30 "$log"
  done
fi
exit "$status"
