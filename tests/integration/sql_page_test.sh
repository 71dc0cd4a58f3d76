#!/usr/bin/env bash
# docs/sql.md: every function of the database with its signature, every SQLSTATE that they raise, and examples that work,
# or fail as they say.
#   sql_page_test.sh BIN_DIR SOURCE_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
export LC_ALL=C
bin=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
page=$source/docs/sql.md
dir=$(mktemp -d)
database=sql_page_$$ role=sql_page_service_$$
cleanup() {
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" -c "DROP ROLE IF EXISTS $role" >/dev/null 2>&1 || true
  rm -rf "$dir"
}
trap cleanup EXIT
psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
for set in outbox idempotency saga; do "$bin/lockstepctl" migrate up --set "$set" >/dev/null; done
"$bin/lockstepctl" migrate up --set state --schema feed_state >/dev/null
sql() { psql -XqAt -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -d "$LOCKSTEP_DATABASE" "$@"; }
compare() { # WHAT SOURCES PAGE
  diff "$2" "$3" || { echo "FAILED: $1: '<' stands in the sources and not in docs/sql.md, '>' the other way round" >&2; exit 1; }
  echo "$1: $(wc -l <"$3")"
}

# Functions: whole signatures of those for callers, names of the rest.
sql -c "SELECT n.nspname || '.' || p.proname || '(' || pg_get_function_arguments(p.oid) || ') → ' || pg_get_function_result(p.oid)
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('lockstep', 'feed_state')" |
  sed -E 's/::(text|interval|uuid|jsonb|integer|regclass|timestamp with time zone)(\[\])?//g
          s/timestamp with time zone/timestamptz/g; s/character varying/varchar/g; s/integer/int/g' >"$dir/functions"
sed -n '/^```signature$/,/^```$/{/^```/d; p}' "$page" | sort >"$dir/signatures"
sed -n '/^## Not for callers/,$p' "$page" | grep -oE '`(lockstep|feed_state)\.[a-z_]+`' | tr -d '`' | sort >"$dir/internal"
grep -vFf <(sed 's/$/(/' "$dir/internal") "$dir/functions" | sort >"$dir/for_callers"
compare 'functions for callers' "$dir/for_callers" "$dir/signatures"
cut -d'(' -f1 "$dir/functions" | sort -u | comm -12 - "$dir/internal" | compare 'other functions' /dev/stdin "$dir/internal"

# Errors: conditions and SQLSTATEs of our own.
grep -rhoE "ERRCODE = '[A-Za-z0-9_]+'" "$source"/sql/*/*.up.sql | cut -d"'" -f2 | sort -u >"$dir/raised"
sed -nE 's/^\| `([A-Z0-9]{5})` \| (`([a-z_]+)`)? ?\|.*/\1 \3/p' "$page" | sed -E 's/^(LS[0-9]+) $/\1/; s/^[A-Z0-9]{5} ([a-z_]+)$/\1/' | sort >"$dir/told"
compare 'errors' "$dir/raised" "$dir/told"

# Examples, in order.
awk -v dir="$dir" '
  /^```sql/ { open = 1; file = sprintf("%s/example%03d", dir, ++n); print substr($0, 7) >(file ".wanted"); next }
  /^```$/   { open = 0; next }
  open      { print >(file ".sql") }' "$page"
for example in "$dir"/example*.sql; do
  sed -i "s/sql_page_service/$role/g" "$example"
  wanted=$(sed -n 's/^ *fails //p' "${example%.sql}.wanted")
  status=0
  sql -f "$example" >"$dir/out" 2>&1 || status=$?
  got=$(sed -nE 's/.*ERROR:  ([A-Z0-9]{5}):.*/\1/p' "$dir/out")
  [ "$wanted" = "$got" ] && { [ -n "$wanted" ] || [ $status = 0 ]; } || {
    echo "FAILED: wanted '${wanted:-success}', got '${got:-success}':" >&2
    cat "$example" "$dir/out" >&2
    exit 1
  }
done
echo "examples: $(ls "$dir"/example*.sql | wc -l)"
