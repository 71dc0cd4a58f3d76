#!/usr/bin/env bash
# Runs docs/tutorial.md as a newcomer would: every block in order, in one shell, in an empty folder. What the page shows
# as an answer has to be the answer.
#   tutorial_test.sh BIN_DIR SOURCE_DIR NODE_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
. "$source/tests/integration/node_pg.sh"
mkdir -p "$3"
modules=$(cd "$3" && pwd)
dir=$(mktemp -d)
shop=tutorial_shop_$$ dashboard=tutorial_dashboard_$$
cleanup() {
  for pid in $(cat "$dir/pids" 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done
  for database in "$shop" "$dashboard"; do
    psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  done
  rm -rf "$dir"
}
trap cleanup EXIT
export PATH=$bin:$PATH
cd "$dir"
# The callers where their drivers are; where not, psql does their part, and the test says so.
run_node() {
  if npm_has_pg "$modules"; then ln -sfn "$modules/node_modules" node_modules && command node "$@"; return; fi
  echo 'NOT RUN: npm could not install pg; psql does the part of place.mjs'
  local order
  for order in 'o-1 ann 4900' 'o-2 ann 1200' 'o-3 bob 800'; do
    set -- $order
    psql -qAt -v ON_ERROR_STOP=1 -d "$SHOP" -c "BEGIN" \
      -c "INSERT INTO shop.orders (id, customer, cents) VALUES ('$1', '$2', $3)" \
      -c "SELECT lockstep.enqueue('shop.outbox', topic => 'shop.orders', aggregate_type => 'order', aggregate_id => '$1',
            event_type => 'OrderPlaced', version => 1, payload => '{\"customer\": \"$2\", \"cents\": $3}'::jsonb)" -c "COMMIT"
  done
}
run_python() { # Debian's, whose packages scripts/setup installs
  /usr/bin/python3 "$@"
}
answers() { # SQL: its answer, as psql's without the count of rows
  psql -X -P footer=off -P pager=off -v ON_ERROR_STOP=1 -d "$1" | sed 's/ *$//' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
}
same() { # what the page shows, what there was
  diff <(sed 's/ *$//' "$1") "$2" || { echo "FAILED: the page shows '<', the answer was '>'" >&2; exit 1; }
}
export -f run_node run_python npm_has_pg answers same
export modules
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# ```sh blocks run as they are, ```sql NAME blocks in the database of that name, ```LANGUAGE FILE blocks become files, and a
# bare block is what the SQL before it answers. The addresses are this test's.
awk '
  /^```sh$/            { mode = "sh"; next }
  /^```sql (shop|dashboard)$/ { print "answers \"$" toupper($2) "\" >answer <<\"END_OF_SQL\""; mode = "sql"; next }
  /^```[a-z]+ [a-z.-]+$/ { print "cat >" $2 " <<\"END_OF_FILE\""; mode = "file"; next }
  /^```$/ && mode == "" { print "cat >shown <<\"END_OF_ANSWER\""; mode = "answer"; next }
  /^```$/              { if (mode == "sql") print "END_OF_SQL\ncat answer"; if (mode == "file") print "END_OF_FILE"
                         if (mode == "answer") print "END_OF_ANSWER\nsame shown answer"; mode = ""; next }
  mode != ""           { print; if (mode == "sh" && / &$/) print "echo $! >>pids" }
' "$source/docs/tutorial.md" |
  sed -e "s|postgresql://postgres@127.0.0.1/shop|${LOCKSTEP_TEST_PG%/*}/$shop|" \
    -e "s|postgresql://postgres@127.0.0.1/dashboard|${LOCKSTEP_TEST_PG%/*}/$dashboard|" \
    -e "/^createdb\|^dropdb/s| shop\$| $shop|; /^createdb\|^dropdb/s| dashboard\$| $dashboard|" \
    -e "s/8085/$port/; s/port: 910[12]/port: 0/" -e 's/^node /run_node /; s/^python3 /run_python /' >steps.sh
[ "$(grep -c 'same shown' steps.sh)" = 3 ] || { echo "the page's answers were not found" >&2; exit 1; }
# With job control, as a person's shell has it (kill %?runner).
if ! bash -euo pipefail -m steps.sh >out 2>&1; then
  cat out
  tail -n 20 ./*.log
  exit 1
fi
grep '^NOT RUN' out || true
[ ! -e pubsub-state ] || { echo 'the page leaves pubsub-state behind' >&2; exit 1; }
