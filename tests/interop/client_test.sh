#!/usr/bin/env bash
# The official Node client against lockstep-emulator, on a free port of its own.
# usage: client_test.sh DIRECTORY EMULATOR_BINARY
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/setup.sh" "$1"
log=$(mktemp)
"$2" --host 127.0.0.1 --port 0 >"$log" 2>&1 &
emulator=$!
trap 'kill "$emulator" 2>/dev/null || true; wait "$emulator" 2>/dev/null || true; rm -f "$log"' EXIT
for _ in $(seq 100); do
  address=$(sed -n 's/.*listening on \([0-9.]*:[0-9]*\).*/\1/p' "$log" | head -n 1)
  [ -z "$address" ] || break
  kill -0 "$emulator" 2>/dev/null || break
  sleep 0.1
done
[ -n "$address" ] || { cat "$log" >&2; exit 1; }
# No application default credentials are wanted, and none looked for.
METADATA_SERVER_DETECTION=none PUBSUB_EMULATOR_HOST=$address PUBSUB_PROJECT_ID=interop node "$here/client_test.js"
