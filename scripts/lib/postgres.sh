# A private Postgres cluster in a folder of its own. Sourced by scripts/test, scripts/demo, scripts/bench
# and scripts/with-postgres.
#
#   postgres_start DIR [SETTING=VALUE …]   makes and starts it; sets PG_PORT, PG_URL, PG_PID
#   postgres_stop                          stops it (the folder is the caller's)

# Postgres refuses to run as root: then it runs as the user that its package made.
pg_run() {
  if [ "$(id -u)" -eq 0 ]; then
    runuser -u postgres -- "$@"
  else
    "$@"
  fi
}

# Debian keeps initdb and friends out of PATH.
pg_bin() {
  local dir
  for dir in /usr/lib/postgresql/*/bin; do
    [ -x "$dir/initdb" ] && PG_BIN=$dir
  done
  if [ -z "${PG_BIN:-}" ]; then
    local initdb
    initdb=$(command -v initdb) || { echo "Postgres is not installed: run scripts/setup" >&2; return 1; }
    PG_BIN=$(dirname "$initdb")
  fi
}

postgres_start() {
  local dir=$1 try setting
  shift
  pg_bin || return 1
  mkdir -p "$dir"
  if [ "$(id -u)" -eq 0 ]; then chown postgres "$dir"; fi
  if ! pg_run "$PG_BIN/initdb" -D "$dir/data" -U lockstep -A trust -E UTF8 --locale=C.UTF-8 --no-sync \
    >"$dir/initdb.log" 2>&1; then
    echo "initdb failed in $dir:" >&2
    cat "$dir/initdb.log" >&2
    return 1
  fi
  {
    echo "listen_addresses = '127.0.0.1'"
    echo "unix_socket_directories = ''"
    echo "max_connections = 300"
    for setting in "$@"; do echo "${setting%%=*} = '${setting#*=}'"; done
  } | pg_run tee -a "$dir/data/postgresql.conf" >/dev/null
  # No port is fixed: take a free one, and another if somebody was faster.
  for try in 1 2 3 4 5 6 7 8; do
    PG_PORT=$(free_port)
    if pg_run "$PG_BIN/pg_ctl" -D "$dir/data" -l "$dir/postgres.log" -o "-p $PG_PORT" -w -t 60 start \
      >"$dir/pg_ctl.log" 2>&1; then
      PG_PID=$(head -n 1 "$dir/data/postmaster.pid")
      PG_DIR=$dir
      PG_URL="postgresql://lockstep@127.0.0.1:$PG_PORT/postgres"
      return 0
    fi
    grep -q 'Address already in use' "$dir/postgres.log" || break
    [ "$try" -lt 8 ] || break
  done
  echo "Postgres did not start in $dir:" >&2
  cat "$dir/pg_ctl.log" "$dir/postgres.log" >&2
  return 1
}

postgres_stop() {
  [ -n "${PG_DIR:-}" ] || return 0
  pg_run "$PG_BIN/pg_ctl" -D "$PG_DIR/data" -m immediate -w -t 30 stop >/dev/null 2>&1 || true
  PG_DIR=
}

# A port of 127.0.0.1 that nobody listens on, outside the range that the kernel hands out itself.
free_port() {
  local port
  while :; do
    port=$((10000 + (RANDOM * 32768 + RANDOM) % 22000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
}
