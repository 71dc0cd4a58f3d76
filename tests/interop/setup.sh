# Sourced by the interop tests: installs the official Node client into $1, once. Exits with 77, which
# ctest shows as skipped, where that can't be done.
directory=$1
skip() {
  echo "SKIPPED: $1"
  exit 77
}
command -v node >/dev/null || skip "node is not installed"
command -v npm >/dev/null || skip "npm is not installed"
mkdir -p "$directory"
(
  flock 9  # the tests of this folder may run side by side
  cd "$directory"
  if [ -d node_modules/@google-cloud/pubsub ] && cmp -s package.json "$here/package.json"; then exit 0; fi
  cp "$here/package.json" .
  rm -f package-lock.json
  npm install --no-audit --no-fund --ignore-scripts --fetch-retries 1 >npm.log 2>&1 || { rm -f package.json; exit 1; }
) 9>"$directory/lock" || { tail -n 3 "$directory/npm.log"; skip "npm could not install @google-cloud/pubsub (is its registry reachable?)"; }
export NODE_PATH=$directory/node_modules
