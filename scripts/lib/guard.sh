#!/usr/bin/env bash
# Waits until the demo is gone, however it went (kill -9 too), then ends what it started and removes its
# folder. Started by scripts/demo in a session of its own: guard.sh DEMO_PID [DIR]
# Without DIR it makes the folder and says its own pid and DIR: so no folder is ever without a guard.
# What the demo started is known by LOCKSTEP_DEMO_DIR=DIR in its environment; Postgres, which overwrites
# that, by its own pid file.
set -u
demo=$1 dir=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/postgres.sh"

# A process that has ended but not been waited for still answers kill -0.
alive() { [ -d "/proc/$1" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }

ours() {
  local file pid
  for file in $(grep -slzxF "LOCKSTEP_DEMO_DIR=$dir" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    pid=${pid%/environ}
    [ "$pid" = "$$" ] || [ "$pid" = "$BASHPID" ] || ! alive "$pid" || echo "$pid"
  done
}

if [ -z "$dir" ]; then
  dir=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-demo.XXXXXX") || exit 1
  chmod 755 "$dir"
  touch "$dir/demo"
  trap '' PIPE  # the demo may be gone already
  echo "$$ $dir"
  exec >/dev/null
fi
while alive "$demo"; do sleep 0.1; done
unset LOCKSTEP_DEMO_DIR
# A package that is half installed would be left behind too: scripts/setup's apt-get may end its work.
while installing=$(cat "$dir/installing" 2>/dev/null) && alive "$installing"; do sleep 0.1; done
signal=TERM
for round in $(seq 60); do
  postmaster=$(head -n 1 "$dir/postgres/data/postmaster.pid" 2>/dev/null)
  if [ -n "$postmaster" ] && alive "$postmaster"; then kill -QUIT "$postmaster" 2>/dev/null; fi
  pids=$(ours)
  if [ -z "$pids" ] && { [ -z "$postmaster" ] || ! alive "$postmaster"; }; then
    # Twice nothing: also what was being started just then is gone.
    [ "${quiet:-}" = yes ] && break
    quiet=yes
  else
    quiet=no
    [ -z "$pids" ] || kill -"$signal" $pids 2>/dev/null
    [ "$round" -lt 20 ] || signal=KILL
  fi
  sleep 0.1
done
rm -rf "$dir"
