# shellcheck shell=bash
# For tests that run a program in Node: npm_has_pg FOLDER puts `pg` into FOLDER/node_modules, once for all that share
# the folder; fails where there is no Node, or npm can't install it.
npm_has_pg() {
  command -v node >/dev/null && command -v npm >/dev/null || return 1
  (
    flock 9
    cd "$1"
    [ ! -d node_modules/pg ] || exit 0
    echo '{"private": true, "dependencies": {"pg": "8.11.3"}}' >package.json
    npm install --no-audit --no-fund --ignore-scripts --fetch-retries 1 >npm.log 2>&1
  ) 9>"$1/lock"
}
