#!/usr/bin/env bash
# scripts/bench retention (needs: postgres lockstepctl): what it takes to clean an outbox of published rows, by rows and by dropping a
# partition, and what is left of its size; and what partitions cost an INSERT.
set -euo pipefail
usage() {
  cat <<'EOT'
usage: scripts/bench retention [--rows N] [--inserts N] [--json]

  --rows N     published rows of 300 bytes (default 2000000)
  --inserts N  rows inserted one by one, and again by hundreds, beside eight partitions that are full (default 20000)
  --json       one JSON object on stdout
EOT
}
rows=2000000 inserts=20000 json=no
while [ $# -gt 0 ]; do
  case $1 in
    --rows) rows=${2:?}; shift 2 ;;
    --inserts) inserts=${2:?}; shift 2 ;;
    --json) json=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
bin=${LOCKSTEP_BIN:?scripts/bench retention sets it}
sql() { psql -XqAt -v ON_ERROR_STOP=1 -d "$LOCKSTEP_TEST_PG" "$@"; }
now() { date +%s%N; }
took() { awk -v a="$1" -v b="$(now)" 'BEGIN {printf "%.2f", (b - a) / 1e9}'; }
size() { sql -c "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) / 1048576 FROM pg_class c WHERE relkind = 'r' AND relname LIKE '$1%'"; }

"$bin/lockstepctl" --yes --database "$LOCKSTEP_TEST_PG" migrate up --set outbox >/dev/null
"$bin/lockstepctl" --database "$LOCKSTEP_TEST_PG" outbox create bench.plain >/dev/null
"$bin/lockstepctl" --database "$LOCKSTEP_TEST_PG" outbox create bench.parts --partition day >/dev/null
# Ten days ago, so that all of it is over the retention.
sql >/dev/null -c "SELECT lockstep.make_partition('bench.parts', n), setval('bench.parts_sequence_seq', n << 36, false)
                   FROM (SELECT lockstep.current_partition('bench.parts') - 10 AS n) d"
fill() { # TABLE ROWS KEY
  sql >/dev/null <<SQL
ALTER TABLE bench.$1 DISABLE TRIGGER lockstep_inserted;
INSERT INTO bench.$1 (topic, aggregate_type, aggregate_id, event_type, version, payload)
SELECT 't', 'item', '$3' || i, 'T', 1, decode(repeat('ab', 300), 'hex') FROM generate_series(1, $2) i;
ALTER TABLE bench.$1 ENABLE TRIGGER lockstep_inserted;
INSERT INTO bench.$1_published (sequence, published_at, attempts) SELECT sequence, now() - interval '9 days', 0 FROM bench.$1
WHERE aggregate_id LIKE '$3%';
SQL
}
for table in plain parts; do fill $table "$rows" k; done
sql -c 'VACUUM ANALYZE' -c CHECKPOINT
before=$(size plain)

start=$(now)
# As the cleaner: a thousand rows to a DELETE.
sql >/dev/null <<'SQL'
SET synchronous_commit = off; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off;
DO $$
DECLARE
  gone bigint := 1;
BEGIN
  WHILE gone > 0 LOOP
    DELETE FROM bench.plain WHERE sequence = ANY (ARRAY(
      SELECT e.sequence FROM bench.plain_published b JOIN bench.plain e ON e.sequence = b.sequence
      WHERE b.published_at < now() - interval '7 days' ORDER BY b.published_at LIMIT 1000 FOR UPDATE OF e SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    COMMIT;
  END LOOP;
END $$;
SQL
by_rows=$(took "$start")
start=$(now)
sql -c 'VACUUM bench.plain, bench.plain_published'
vacuum=$(took "$start")
left_by_rows=$(size plain)
sql >/dev/null -c "SELECT lockstep.advance_partition('bench.parts')"
start=$(now)
sql >/dev/null -c "SELECT lockstep.drop_partition('bench.parts', '7 days')"
by_partition=$(took "$start")
left_by_partition=$(size parts)
[ "$(sql -c 'SELECT count(*) FROM bench.parts')" = 0 ] || { echo 'bench: the partition is not gone' >&2; exit 1; }

# Eight days of rows in each; then microseconds for a row that is inserted, in one session.
for day in 8 7 6 5 4 3 2 1; do
  sql >/dev/null -c "SELECT lockstep.make_partition('bench.parts', n), setval('bench.parts_sequence_seq', n << 36, false)
                     FROM (SELECT lockstep.partition_at('day', now()) - $day AS n) d"
  for table in plain parts; do fill $table 20000 "day$day-"; done
done
sql >/dev/null -c "SELECT setval('bench.parts_sequence_seq', lockstep.partition_at('day', now()) << 36)" -c 'VACUUM ANALYZE'
insert() { # TABLE ROWS-PER-STATEMENT KEY
  sql <<SQL
DO \$\$
DECLARE
  began timestamptz;
BEGIN
  FOR i IN 1 .. $inserts / $2 LOOP
    IF i = 20 OR began IS NULL THEN began := clock_timestamp(); END IF;
    INSERT INTO bench.$1 (topic, aggregate_type, aggregate_id, event_type, version, payload)
    SELECT 't', 'item', '$3' || n, 'T', i, '\\xabababababab' FROM generate_series(1, $2) n;
  END LOOP;
  PERFORM set_config('bench.us', round(extract(epoch FROM clock_timestamp() - began) * 1e6 / $inserts, 1)::text, false);
END \$\$;
SELECT current_setting('bench.us');
SQL
}
declare -A cost
for round in 1 2 3; do
  for table in plain parts; do
    for n in 1 100; do cost[$table$n]+=" $(insert $table $n "r$round-$n-")"; done
  done
done
median() { tr ' ' '\n' <<<"$1" | sed '/^$/d' | sort -n | sed -n 2p; }
if [ $json = yes ]; then
  printf '{"rows": %s, "before_mib": %s, "by_rows": {"seconds": %s, "vacuum_seconds": %s, "left_mib": %s}, "by_partition": {"seconds": %s, "left_mib": %s}, "insert_us": {"one": {"plain": %s, "partitioned": %s}, "by_hundreds": {"plain": %s, "partitioned": %s}}}\n' \
    "$rows" "${before%.*}" "$by_rows" "$vacuum" "${left_by_rows%.*}" "$by_partition" "${left_by_partition%.*}" "$(median "${cost[plain1]}")" \
    "$(median "${cost[parts1]}")" "$(median "${cost[plain100]}")" "$(median "${cost[parts100]}")"
else
  echo "cleaning $rows published rows (${before%.*} MiB): by rows $by_rows s and $vacuum s of VACUUM, ${left_by_rows%.*} MiB left; by partition $by_partition s, ${left_by_partition%.*} MiB left"
  echo "a row inserted, us: one by one $(median "${cost[plain1]}"), partitioned $(median "${cost[parts1]}"); by hundreds $(median "${cost[plain100]}"), partitioned $(median "${cost[parts100]}")"
fi
