# A private Postgres cluster in a folder of its own. Sourced by scripts/test, scripts/demo, scripts/bench
# and scripts/with-postgres.
#
#   postgres_start DIR [SETTING=VALUE …]   makes and starts it; sets PG_PORT, PG_URL, PG_PID
#   postgres_stop                          stops it (the folder is the caller's)
#
# A standby that follows a cluster by streaming replication, for failovers that really happen:
#   standby_start DIR PORT [NAME]  makes it in DIR out of the cluster at PORT, and waits until it has caught up;
#                                  sets STANDBY_PORT, STANDBY_PID. It is asynchronous; the primary waits for it after
#                                  ALTER SYSTEM SET synchronous_standby_names = NAME and pg_reload_conf()
#   standby_cut DIR PORT           takes the standby at PORT off its primary: what commits from now on, it lacks
#   standby_promote DIR            makes it a primary, on a timeline of its own
#   postgres_kill DIR              ends a cluster at once, as a machine that is gone; also how a standby is stopped
# Clients name both: postgresql://lockstep@127.0.0.1:PORT,127.0.0.1:STANDBY_PORT/db?target_session_attrs=read-write

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
  local dir=$1 setting
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
  pg_launch "$dir" || return 1
  PG_PID=$(head -n 1 "$dir/data/postmaster.pid")
  PG_DIR=$dir
  PG_URL="postgresql://lockstep@127.0.0.1:$PG_PORT/postgres"
}

# Starts the cluster that is in DIR/data; sets PG_PORT.
pg_launch() {
  local dir=$1 try
  # No port is fixed: take a free one, and another if somebody was faster.
  for try in 1 2 3 4 5 6 7 8; do
    PG_PORT=$(free_port)
    if pg_run "$PG_BIN/pg_ctl" -D "$dir/data" -l "$dir/postgres.log" -o "-p $PG_PORT" -w -t 60 start \
      >"$dir/pg_ctl.log" 2>&1; then
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

postgres_kill() {
  pg_run "$PG_BIN/pg_ctl" -D "$1/data" -m immediate -w -t 30 stop >/dev/null
}

standby_start() {
  local dir=$1 primary=$2 name=${3:-standby} port=${PG_PORT:-} lag
  pg_bin || return 1
  mkdir -p "$dir"
  if [ "$(id -u)" -eq 0 ]; then chown postgres "$dir"; fi
  pg_run "$PG_BIN/pg_basebackup" -D "$dir/data" -R -X stream -c fast \
    -d "host=127.0.0.1 port=$primary user=lockstep application_name=$name" || return 1
  pg_launch "$dir" || return 1
  STANDBY_PORT=$PG_PORT PG_PORT=$port
  STANDBY_PID=$(head -n 1 "$dir/data/postmaster.pid")
  lag="SELECT count(*) FROM pg_stat_replication
        WHERE application_name = '$name' AND state = 'streaming' AND replay_lsn = pg_current_wal_lsn()"
  pg_until 1 "$primary" "$lag"
}

# A reload ends the receiver of the old address; what it had taken is replayed.
standby_cut() {
  pg_ask "$2" "ALTER SYSTEM SET primary_conninfo = ''" >/dev/null && pg_ask "$2" 'SELECT pg_reload_conf()' >/dev/null &&
    pg_until 0 "$2" 'SELECT count(*) FROM pg_stat_wal_receiver'
}

standby_promote() {
  pg_run "$PG_BIN/pg_ctl" -D "$1/data" -w -t 60 promote >/dev/null
}

pg_ask() { "$PG_BIN/psql" -XqAt -v ON_ERROR_STOP=1 -c "$2" "postgresql://lockstep@127.0.0.1:$1/postgres"; }

# pg_until ANSWER PORT SQL: for half a minute at most.
pg_until() {
  local try
  for try in $(seq 300); do
    [ "$(pg_ask "$2" "$3")" != "$1" ] || return 0
    sleep 0.1
  done
  echo "not $1 in half a minute: $3" >&2
  return 1
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
