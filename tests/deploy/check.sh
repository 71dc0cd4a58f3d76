#!/usr/bin/env bash
# Manifests, alert policies, Dockerfile and compose file against what is published of their formats.
# usage: check.sh DIRECTORY
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
deploy=$here/../../deploy
directory=$1
skip() {
  echo "SKIPPED: $1"
  exit 77
}
command -v npm >/dev/null || skip "npm is not installed"
mkdir -p "$directory"
cd "$directory"
if ! cmp -s package.json "$here/package.json" || [ ! -d node_modules/kubernetes-models ]; then
  cp "$here/package.json" .
  rm -f package-lock.json
  npm install --no-audit --no-fund --ignore-scripts --fetch-retries 1 >npm.log 2>&1 ||
    { rm -f package.json; tail -n 3 npm.log; skip "npm could not install the schemas (is its registry reachable?)"; }
fi
cp "$here/check.mjs" .  # beside its modules
node check.mjs "$deploy"
words=$(node_modules/.bin/dockerfile-utils lint "$deploy/container/Dockerfile")
[ -z "$words" ] || { echo "$words"; exit 1; }
# Debian's docker-compose knows the format; no engine is asked.
if command -v docker-compose >/dev/null; then
  docker-compose -f "$deploy/compose/compose.yaml" config >/dev/null
else
  echo "docker-compose is not installed: the compose file was not looked at"
fi
