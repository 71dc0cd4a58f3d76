#!/usr/bin/env bash
# Installs Lockstep, builds examples/embedded_publisher, embedded_runner and embedded_orchestrator against it with
# find_package, and runs them: an order goes from one to the other through the installed emulator, a saga to its end.
#   embedding_test.sh BUILD_DIR SOURCE_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
build=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
dir=$(mktemp -d)
database=embedding_$$
emulator=
cleanup() {
  [ -z "$emulator" ] || kill "$emulator" || true
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
quietly() { "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }; }
fail() { echo "$1"; exit 1; }

quietly cmake --install "$build" --prefix "$dir/prefix"
flags=()
[ ! -f "$build/CMakeCache.txt" ] || while IFS= read -r line; do flags+=("-D${line}"); done < <(
  grep -E '^CMAKE_(CXX_COMPILER|CXX_COMPILER_LAUNCHER|BUILD_TYPE|CXX_FLAGS):' "$build/CMakeCache.txt")
for example in embedded_publisher embedded_runner embedded_orchestrator; do
  quietly cmake -G Ninja -S "$source/examples/$example" -B "$dir/$example" "-DCMAKE_PREFIX_PATH=$dir/prefix" "${flags[@]}"
  quietly cmake --build "$dir/$example"
done

# Every installed header stands on a page, or is included by one that does.
headers=$(cd "$dir/prefix/include/lockstep" && find . -name '*.h' -printf '%P\n')
for header in $headers; do
  grep -qF "\`$header\`" "$source/docs/embedding.md" || grep -rqF "#include \"$header\"" "$dir/prefix/include" ||
    fail "$header is installed; docs/embedding.md does not name it"
done
for header in $(sed -n 's/^| `\([a-z_/]*\.h\)`.*/\1/p' "$source/docs/embedding.md"); do
  grep -qxF "$header" <<<"$headers" || fail "docs/embedding.md names $header, which is not installed"
done

psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database PATH=$dir/prefix/bin:$PATH
sql() { psql -X -q -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" "$@"; }
quietly lockstepctl migrate up --set outbox
quietly lockstepctl outbox create shop.order_outbox
sql -f "$source/examples/embedded_publisher/orders.sql"

# The publisher, with its own bus.
"$dir/embedded_publisher/embedded_publisher" "$LOCKSTEP_DATABASE" | tee "$dir/out"
grep -q 'heard shop.OrderPlaced of order 1' "$dir/out"

# Sagas, with steps in C++: one that goes through, one that is undone.
quietly lockstepctl migrate up --set saga
for name in ann eve; do
  "$dir/embedded_orchestrator/embedded_orchestrator" "$LOCKSTEP_DATABASE" "$source/examples/embedded_orchestrator/trip.yaml" $name | tee "$dir/out"
  case $name in
    ann) grep -q 'the trip of ann is Completed' "$dir/out" && grep -q 'booked a bed' "$dir/out" ;;
    eve) grep -q 'the trip of eve is Failed' "$dir/out" && grep -q 'gave a booking back' "$dir/out" ;;
  esac || fail "the trip of $name"
done

# From publisher to runner.
lockstep-emulator --port 0 >"$dir/emulator" 2>/dev/null &
emulator=$!
for _ in $(seq 100); do
  PUBSUB_EMULATOR_HOST=$(sed -n 's/.*listening on //p' "$dir/emulator")
  [ -z "$PUBSUB_EMULATOR_HOST" ] || break
  sleep 0.1
done
[ -n "$PUBSUB_EMULATOR_HOST" ] || fail "the emulator did not start"
export PUBSUB_EMULATOR_HOST
example=$source/examples/embedded_runner
quietly lockstepctl migrate up --set state --schema orders_state
sql -f "$example/read_model.sql"
quietly lockstepctl --config "$example/pubsub.yaml" provision --yes
"$dir/embedded_publisher/embedded_publisher" "$LOCKSTEP_DATABASE" shop
for _ in 1 2; do  # the second finds nothing new
  "$dir/embedded_runner/embedded_runner" "$LOCKSTEP_DATABASE" "$example/runner.yaml"
  orders=$(sql -At -c "SELECT state, orders FROM shop_read.orders_by_state")
  [ "$orders" = 'placed|1' ] || fail "the read model has '$orders'"
done
[ "$(sql -At -c "SELECT count(*) FROM shop_read.offsets WHERE consumer_group = 'orders'")" -ge 1 ] ||
  fail "the example's offset provider kept nothing"
[ "$(sql -At -c "SELECT count(*) FROM orders_state.offsets")" = 0 ] || fail "the state schema has offsets, too"
