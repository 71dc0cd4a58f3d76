#!/usr/bin/env bash
# Google's emulator for one run of ctest: started before the cases that need it, ended after them.
# usage: google_emulator.sh start|stop DIRECTORY
# start writes the address into DIRECTORY/address, or an empty file where the package
# google-cloud-cli-pubsub-emulator or java is missing: the cases then skip themselves and say why.
set -euo pipefail
action=$1
directory=$2
mkdir -p "$directory"

stop() {
  [ -f "$directory/pid" ] || return 0
  local pid
  pid=$(cat "$directory/pid")
  # The number may belong to somebody else by now.
  if tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q 'pubsub.testing.v1.Main'; then
    kill "$pid" 2>/dev/null || true
  fi
  rm -f "$directory/pid" "$directory/address"
}

start() {
  local jar port pid
  : >"$directory/address"
  jar=${LOCKSTEP_GOOGLE_EMULATOR_JAR:-$(ls /usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib/cloud-pubsub-emulator*.jar 2>/dev/null | head -n 1 || true)}
  if [ -z "$jar" ] || ! command -v java >/dev/null; then
    echo "Google's emulator not found: its cases will be skipped"
    return 0
  fi
  for _ in 1 2 3 4 5; do
    port=$((20000 + RANDOM % 30000))
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then continue; fi
    setsid java -cp "$jar" com.google.cloud.pubsub.testing.v1.Main --host=127.0.0.1 "--port=$port" \
      >"$directory/log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$directory/pid"
    for _ in $(seq 600); do
      if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        echo "127.0.0.1:$port" >"$directory/address"
        return 0
      fi
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
  done
  cat "$directory/log" >&2
  return 1
}

stop
case "$action" in
  start) start ;;
  stop) ;;
  *) echo "usage: google_emulator.sh start|stop DIRECTORY" >&2; exit 2 ;;
esac
