#!/usr/bin/env bash
# Runs docs/idempotency.md: its SQL, its service in Node (where npm can install `pg`), its commands; the C++ of the page
# is that of idempotency/example_pgtest.cc, which is compiled. Then lockstepctl idempotency, as an operator types it.
#   idempotency_test.sh BIN_DIR SOURCE_DIR NODE_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
. "$source/tests/integration/node_pg.sh"
mkdir -p "$3"
modules=$(cd "$3" && pwd)
dir=$(mktemp -d)
database=idempotency_$$ role=idempotency_caller_$$
cleanup() {
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" -c "DROP ROLE IF EXISTS $role" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "FAILED: $1"; cat "$dir"/*.out 2>/dev/null; exit 1; }
export PATH=$bin:$PATH
cd "$dir"
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
sql() { psql -XqAt -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" "$@"; }
block() { awk -v open="\`\`\`$1" '$0 == open { on = 1; next } /^```$/ { on = 0 } on' "$source/docs/idempotency.md"; }
says() { # REGEX COMMAND…: succeeds and says so
  local regex=$1; shift
  "$@" >said.out 2>&1 </dev/null || fail "$*"
  grep -qE "$regex" said.out || fail "no /$regex/: $*"
}
refuses() { # REGEX COMMAND…: fails and says why
  local regex=$1; shift
  if "$@" >said.out 2>&1 </dev/null; then fail "not refused: $*"; fi
  grep -qE "$regex" said.out || fail "no /$regex/: $*"
}
refuses 'migrate up --set idempotency' lockstepctl idempotency list
refuses 'migrate up --set idempotency' lockstepctl idempotency clean

# The page. Its first block of shell sets up, its last looks and mends.
block sh | awk '/^lockstepctl (migrate|roles)/' | sed "s/shop_service/$role/" >setup.sh
[ "$(wc -l <setup.sh)" = 2 ] || fail 'the page sets up in two commands'
bash -euo pipefail setup.sh >setup.out 2>&1 || fail 'setting up'
block 'sql charge.sql' | sql >charge.out || fail 'the table of the page'
block 'sql in_one_transaction.sql' | sql >one.out || fail 'the transaction of the page'
[ "$(head -n 1 one.out)" = 'go|||' ] || fail 'the first to come goes'
[ "$(sql -c 'SELECT customer, cents FROM shop.charge')" = 'ann|1200' ] || fail 'the charge'
block 'sql declined.sql' | sql >declined.out || fail 'the savepoint of the page'
put() { sql -c "SELECT outcome, code, digest, error FROM lockstep.idempotency_check_and_put('acme', '$1', '$2'$3)"; }
[ "$(put charge-1 'sha256 of the request' '')" = 'done||{"charge": 1}|' ] || fail 'what is done'
[ "$(put charge-1 'another' '')" = 'conflict|STORAGE.CONFLICT||' ] || fail 'another hash'
[ "$(put charge-2 'another hash' '')" = 'failed|TX.IDEMPOTENT_LAST_FAILED||card declined' ] || fail 'what failed'
[ "$(sql -c "SELECT count(*) FROM shop.charge WHERE customer = 'bob'")" = 0 ] || fail 'the savepoint was not undone'
put charge-3 h '' >/dev/null
[ "$(put charge-3 h '')" = 'busy|TX.IDEMPOTENT_BUSY||' ] || fail 'what is busy'

# The C++ of the page is compiled elsewhere, line for line.
block cpp | sed 's/^ *//; /^$/d' >page.cpp
sed 's/^ *//' "$source/idempotency/example_pgtest.cc" | tr '\n' ' ' >compiled.cpp
[ "$(wc -l <page.cpp)" -ge 8 ] || fail 'the page has C++'
while IFS= read -r line; do
  code=${line%%  //*}
  tr -d ' ' <compiled.cpp | grep -qF "$(tr -d ' ' <<<"$code")" || fail "no test compiles: $line"
done <page.cpp

# Its commands, the operator's.
block sh | awk '/^lockstepctl idempotency/' >commands.sh
[ "$(wc -l <commands.sh)" = 4 ] || fail 'the page looks and mends in four commands'
bash -euo pipefail commands.sh >commands.out 2>&1 || fail 'the commands of the page'
grep -q 'card declined' commands.out || fail 'list and show have no error'
grep -q 'charge-2 is free; it was Failed' commands.out || fail 'release'
grep -q '0 expired keys are gone' commands.out || fail 'clean'
[ "$(put charge-2 'yet another' '')" = 'go|||' ] || fail 'a released key'
says '"actor": ".*lockstepctl' lockstepctl idempotency show charge-2 --tenant acme --json
says 'the card is good again' lockstepctl idempotency show charge-2 --tenant acme
says '"state": "InFlight"' lockstepctl idempotency list --tenant acme --prefix charge-3 --json
says 'No such keys' lockstepctl idempotency list --tenant nobody
refuses "tenant 'acme' has no idempotency key 'x'" lockstepctl idempotency release x --tenant acme --yes
refuses 'without a tenant' lockstepctl idempotency show charge-3
refuses 'Repeat with --yes' lockstepctl idempotency release charge-3 --tenant acme
refuses 'in flight until' lockstepctl idempotency release charge-3 --tenant acme --yes
says '"was": "InFlight"' lockstepctl idempotency release charge-3 --tenant acme --yes --force --json
sql -c "UPDATE lockstep.idempotency_keys SET expires_at = now() - interval '1 second', lease_until = CASE WHEN state = 'InFlight' THEN now() - interval '2 seconds' END"
says '2 expired keys are gone' lockstepctl idempotency clean --batch 1
refuses 'caller, reader and operator' lockstepctl roles grant writer "$role" --idempotency
refuses 'caller, reader and operator' lockstepctl roles grant caller "$role" --outbox shop.outbox
says 'rights of a reader on idempotency keys' lockstepctl roles grant reader "$role" --idempotency
says 'no rights on idempotency keys' lockstepctl roles revoke "$role" --idempotency --yes

# The service in Node.
if ! npm_has_pg "$modules"; then
  echo 'npm could not install pg: the service in Node was not run'
  exit 77
fi
ln -s "$modules/node_modules" node_modules
block 'js charge.mjs' >charge.mjs
cat >try.mjs <<'END'
import { charge } from './charge.mjs';
import assert from 'node:assert';
let paid = 0;
const pay = async (request, { idempotencyKey }) => {
  assert.equal(idempotencyKey[0], 'n');
  if (request.card === 'declined') throw Object.assign(new Error('card declined'), { declined: true });
  if (request.card === 'lost') throw new Error('the line is dead');
  paid += 1;
  await new Promise((done) => setTimeout(done, 200));
  return { id: paid };
};
const all = await Promise.all(Array.from({ length: 10 }, () => charge('acme', 'n1', { cents: 5 }, pay)));
assert.equal(paid, 1);
assert.equal(all.filter((one) => one.status === 200).length + all.filter((one) => one.status === 409).length, 10);
assert.deepEqual(await charge('acme', 'n1', { cents: 5 }, pay), { status: 200, body: { charge: 1 } });
assert.equal((await charge('acme', 'n1', { cents: 6 }, pay)).status, 422);
assert.equal((await charge('acme', 'n2', { card: 'declined' }, pay)).status, 402);
assert.deepEqual(await charge('acme', 'n2', { card: 'declined' }, pay), { status: 402, body: 'card declined' });
await assert.rejects(charge('acme', 'n3', { card: 'lost' }, pay));
assert.equal((await charge('acme', 'n3', { card: 'lost' }, pay)).status, 409);
assert.equal(paid, 1);
console.log('paid once');
process.exit(0);
END
DATABASE=$LOCKSTEP_DATABASE node try.mjs >node.out 2>&1 || fail 'the service in Node'
grep -q 'paid once' node.out || fail 'the service in Node'
echo 'docs/idempotency.md does what it says'
