#!/usr/bin/env bash
# Installs the library, builds examples/embedded_publisher against it with find_package, runs it.
#   embedding_test.sh BUILD_DIR SOURCE_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
build=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
dir=$(mktemp -d)
database=embedding_$$
cleanup() {
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
cmake --install "$build" --component library --prefix "$dir/prefix" >"$dir/log" || { cat "$dir/log"; exit 1; }
flags=()
[ ! -f "$build/CMakeCache.txt" ] || while IFS= read -r line; do flags+=("-D${line}"); done < <(
  grep -E '^CMAKE_(CXX_COMPILER|CXX_COMPILER_LAUNCHER|BUILD_TYPE|CXX_FLAGS):' "$build/CMakeCache.txt")
cmake -G Ninja -S "$source/examples/embedded_publisher" -B "$dir/build" "-DCMAKE_PREFIX_PATH=$dir/prefix" \
  "${flags[@]}" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
cmake --build "$dir/build" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
"$dir/build/embedded_publisher" "${LOCKSTEP_TEST_PG%/*}/$database" | tee "$dir/out"
grep -q 'heard shop.OrderPlaced of order 1' "$dir/out"
