#!/usr/bin/env bash
# scripts/bench peers (builds: publisher_bench runner_bench lockstep-emulator): what is emptied and applied in a second by
# Lockstep and by others, on one Postgres of its own with wal_level = logical, in turn.
set -euo pipefail
usage() {
  cat <<'EOT'
usage: scripts/bench peers [--rows N] [--keys N] [--seconds S] [--rounds N] [--json]

Rows/s of two pairs, each on the same Postgres, in turn, medians of the rounds:
  an outbox that is full is emptied, to a handler that answers at once: Lockstep's relay beside
    pg-transactional-outbox (npm), by polling and by logical replication
  events are applied to a table: Lockstep's runner, from the emulator, beside a handler in Node with a
    transaction per message (1 connection, and 10), from memory

  --rows N     in the outbox, and events (default 10000)
  --keys N     aggregates of the outbox (default 1000)
  --seconds S  after which a peer is stopped; what it did until then counts (default 20)
  --rounds N   (default 3)
  --json       one JSON object on stdout

Needs Node and npm, which installs the two packages into a temporary folder.
EOT
}
rows=10000 keys=1000 seconds=20 rounds=3 json=no
while [ $# -gt 0 ]; do
  case $1 in
    --rows) rows=${2:?}; shift 2 ;;
    --keys) keys=${2:?}; shift 2 ;;
    --seconds) seconds=${2:?}; shift 2 ;;
    --rounds) rounds=${2:?}; shift 2 ;;
    --json) json=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
bin=${LOCKSTEP_BIN:?scripts/bench peers sets it}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../scripts/lib/postgres.sh"
dir=$(mktemp -d)
chmod 755 "$dir"
trap 'postgres_stop; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
cp "$here"/peers/* "$dir"
(cd "$dir" && npm install --no-audit --no-fund --ignore-scripts >npm.log 2>&1) || {
  cat "$dir/npm.log" >&2
  echo "bench: npm can't install the peers" >&2
  exit 1
}
postgres_start "$dir/pg" shared_buffers=512MB max_wal_size=4GB wal_level=logical log_min_messages=fatal
export LOCKSTEP_TEST_PG=$PG_URL LOCKSTEP_PUBSUB_FORCE_EMULATOR=true
peer() { node "$dir/$1.mjs" "${@:2}"; }
: >"$dir/results"
note() { echo "{\"what\": \"$1\", \"result\": $(tr '\n' ' ' <<<"$2")}" >>"$dir/results"; }
for _ in $(seq "$rounds"); do
  note 'Lockstep relay' "$("$bin/publisher_bench" --bus null --only empty --repeats 1 --rows "$rows" --keys "$keys" --json)"
  note 'pg-transactional-outbox, replication' "$(peer relay replication "$rows" "$keys" "$seconds")"
  note 'pg-transactional-outbox, polling' "$(peer relay polling "$rows" "$keys" "$seconds")"
  note 'Lockstep runner' "$("$bin/runner_bench" --rounds 1 --stream create-heavy --events "$rows" --handler-events 100 --inbox-rows 0 \
    --memory-events 0 --json)"
  note 'Node, a transaction per message, 1 connection' "$(peer handler "$rows" 1 "$seconds")"
  note 'Node, a transaction per message, 10 connections' "$(peer handler "$rows" 10 "$seconds")"
done
node - "$dir/results" "$json" <<'EOT'
const fs = require('fs');
const rates = new Map();
for (const line of fs.readFileSync(process.argv[2], 'utf8').trim().split('\n')) {
  const { what, result } = JSON.parse(line);
  const rate = what === 'Lockstep relay' ? result['empty table'].relay_rows_per_second
    : what === 'Lockstep runner' ? RUNNER(result) : result.rows / result.seconds;
  rates.set(what, [...(rates.get(what) ?? []), rate]);
}
function RUNNER(list) { return list.find((one) => one.runner_per_s).runner_per_s; }
const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
const report = { rows_per_second: {}, lockstep_times_peer: {} };
for (const [what, list] of rates) report.rows_per_second[what] = Math.round(median(list));
for (const [what, rate] of Object.entries(report.rows_per_second)) {
  if (what.startsWith('Lockstep')) continue;
  const ours = report.rows_per_second[what.startsWith('Node') ? 'Lockstep runner' : 'Lockstep relay'];
  report.lockstep_times_peer[what] = Math.round((ours / rate) * 10) / 10;
}
if (process.argv[3] === 'yes') console.log(JSON.stringify(report, null, 2));
else for (const [what, rate] of Object.entries(report.rows_per_second)) {
  const times = report.lockstep_times_peer[what];
  console.log(what.padEnd(50), String(rate).padStart(8), 'rows/s', times ? `  Lockstep is ${times} times as fast` : '');
}
EOT
