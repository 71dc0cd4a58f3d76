#!/usr/bin/env bash
# A source whose standby lagged and was promoted: what was published and is gone is told and found, and the cure of
# docs/failover.md works. The programs as a user runs them; the source has two servers of its own.
#   failover_test.sh BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) name=failover
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../scripts/lib/postgres.sh"
. "$here/../security/lib.sh"
before_end() {
  postgres_kill "$dir/first" 2>/dev/null || true
  postgres_kill "$dir/second" 2>/dev/null || true
}
write_files
ctl=$bin/lockstepctl
chmod 755 "$dir"
postgres_start "$dir/first" fsync=off log_min_messages=fatal
pg_ask "$PG_PORT" 'CREATE DATABASE shop'
standby_start "$dir/second" "$PG_PORT"
first=postgresql://lockstep@127.0.0.1:$PG_PORT/shop second=postgresql://lockstep@127.0.0.1:$STANDBY_PORT/shop
either="postgresql://lockstep@127.0.0.1:$PG_PORT,127.0.0.1:$STANDBY_PORT/shop?target_session_attrs=read-write"
new_database "${name}_feed"; feed=$made
start_emulator
"$ctl" --config "$dir/pubsub.yaml" provision --yes >/dev/null 2>&1
"$ctl" --database "$first" migrate up --set outbox >/dev/null
"$ctl" --database "$first" outbox create shop.outbox >/dev/null
sql "$feed" "$read_model"
"$ctl" --database "$feed" migrate up --set state --schema feed_state >/dev/null
start publisher "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$either"
start runner "$bin/lockstep-runner" --config "$dir/runner.yaml" --database "$feed"

sql "$first" "$(enqueue a 1 '{"title": "one", "amount": 1}')" >/dev/null
sql "$first" "$(enqueue b 1 '{"title": "one", "amount": 1}')" >/dev/null
await 2 "$feed" 'SELECT count(*) FROM feed.item'
await 2 "$second" 'SELECT count(*) FROM shop.outbox_status WHERE published_at IS NOT NULL'
standby_cut "$dir/second" "$STANDBY_PORT"
# Published and applied, and the second server knows nothing of it.
sql "$first" "$(enqueue a 2 '{"title": "lost", "amount": 2}')" >/dev/null
sql "$first" "$(enqueue a 3 '{"title": "lost", "amount": 3}')" >/dev/null
await 'lost|3' "$feed" "SELECT title, version FROM feed.item WHERE id = 'a'"
await 0 "$first" 'SELECT count(*) FROM shop.outbox_status WHERE published_at IS NULL'
postgres_kill "$dir/first"
standby_promote "$dir/second"

# It is told, and the audit has what is needed: the aggregate and its last published version.
await_line 'level=error .*code=outbox_flush_gone.* rows=2' "$dir/publisher.log"
await 'item|a|3' "$either" "SELECT detail->>'aggregate_type', detail->>'aggregate_id', max((detail->>'version')::bigint)
  FROM lockstep.outbox_audit WHERE action = 'outbox_flush_gone' AND at > now() - interval '1 day' GROUP BY 1, 2"

# The source goes on as if nothing had been: an older version is passed over in silence, the same one is a conflict.
sql "$either" "$(enqueue a 2 '{"title": "other", "amount": 20}')" >/dev/null
sql "$either" "$(enqueue a 3 '{"title": "other", "amount": 30}')" >/dev/null
await 'EVENT.VERSION_CONFLICT|3' "$feed" 'SELECT code, version FROM feed_state.dead_letters'
is 'lost|3' "$feed" "SELECT title, version FROM feed.item WHERE id = 'a'"

# The comparison finds the events that the source does not know.
sql "$either" 'SELECT event_id FROM shop.outbox' | sort >"$dir/source.ids"
sql "$feed" "SELECT event_id FROM feed_state.inbox i JOIN feed_state.active_slots s USING (generation)
              WHERE s.group_name = 'feed'" | sort >"$dir/consumer.ids"
[ "$(comm -13 "$dir/source.ids" "$dir/consumer.ids" | wc -l)" = 2 ] || fail "not the two that were lost"

# The cure: past the last published version, with the whole state; then what conflicted is history.
sql "$either" "$(enqueue a 4 '{"title": "other", "amount": 30}')" >/dev/null
await 'other|30|4' "$feed" "SELECT title, amount, version FROM feed.item WHERE id = 'a'"
says 'EVENT.VERSION_CONFLICT' "$ctl" --config "$dir/runner.yaml" --database "$feed" dead-letters list \
  --group feed --code EVENT.VERSION_CONFLICT
says '' "$ctl" --config "$dir/runner.yaml" --database "$feed" --yes dead-letters discard --group feed \
  --code EVENT.VERSION_CONFLICT --reason 'the source went back; cured by a newer version'
is discarded "$feed" 'SELECT state FROM feed_state.dead_letters'
sql "$either" "$(enqueue a 5 '{"title": "on", "amount": 5}')" >/dev/null
await 'on|5' "$feed" "SELECT title, version FROM feed.item WHERE id = 'a'"
echo "$checks checks passed"
