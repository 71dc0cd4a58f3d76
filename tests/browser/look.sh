#!/usr/bin/env bash
# Runs a script of this folder in node with playwright-core from npm, which is installed into DIRECTORY
# once, and Debian's Chromium. Exits with 77, which ctest shows as skipped, where one of them is missing.
# usage: look.sh DIRECTORY SCRIPT [ARG …]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=$1 script=$2
shift 2
skip() {
  echo "SKIPPED: $1"
  exit 77
}
for program in node npm chromium; do
  command -v "$program" >/dev/null || skip "$program is not installed (scripts/setup --browser)"
done
mkdir -p "$directory"
(
  flock 9  # tests may run side by side
  cd "$directory"
  if [ -d node_modules/playwright-core ] && cmp -s package.json "$here/package.json"; then exit 0; fi
  cp "$here/package.json" .
  rm -f package-lock.json
  npm install --no-audit --no-fund --ignore-scripts --fetch-retries 1 >npm.log 2>&1 || { rm -f package.json; exit 1; }
) 9>"$directory/lock" || { tail -n 3 "$directory/npm.log"; skip "npm could not install playwright-core (is its registry reachable?)"; }
export NODE_PATH=$directory/node_modules CHROMIUM=$(command -v chromium)
exec node "$here/$script" "$@"
