#!/usr/bin/env bash
# What stands in events can't act on the terminal of whoever looks at them: no escape sequence, no line of its own, no turned
# direction, in any output for people. --json has the very characters, escaped as JSON can.
#   terminal_test.sh BIN_DIR     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
bin=$(cd "$1" && pwd) name=terminal
. "$(dirname "$0")/lib.sh"
ctl=$bin/lockstepctl
new_database "${name}_db"; export LOCKSTEP_DATABASE=$made
"$ctl" migrate up >/dev/null
"$ctl" migrate up --set state --schema st >/dev/null
"$ctl" outbox create shop.outbox >/dev/null
# Clears the screen, sets the title, the one-character CSI, turns the rest of the line around, forges a line.
evil="'k' || U&'\\001B[2J\\001B]0;owned\\0007\\009B31m\\202E\\2066\\000Aforged line'"
sql "$LOCKSTEP_DATABASE" "
  SELECT lockstep.enqueue('shop.outbox', 't', $evil, $evil, 'T', 1, '{}', tenant_id => $evil,
                          attributes => jsonb_build_object($evil, $evil));
  UPDATE shop.outbox_pending SET dead_at = now(), available_at = 'infinity', last_error = $evil;
  INSERT INTO st.consumer_groups (group_name) VALUES ('g');
  INSERT INTO st.slots (group_name, slot, subscription) VALUES ('g', 1, 's');
  INSERT INTO st.dead_letters (group_name, generation, message_id, aggregate_key, version, event_type, ordering_key,
                               publish_time, attributes, payload, code, reason, blocks, note)
  VALUES ('g', (SELECT generation FROM st.slots), $evil, $evil, 1, $evil, $evil, now(), jsonb_build_object($evil, $evil),
          convert_to(jsonb_build_object($evil, $evil)::text, 'UTF8'), 'C', $evil, false, $evil);" >/dev/null
event=$(sql "$LOCKSTEP_DATABASE" "SELECT event_id FROM shop.outbox")

shows() { # COMMAND…: prints what is printable only, and all of it
  "$@" >"$dir/shown" 2>&1 </dev/null || true
  if LC_ALL=C grep -qP '[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae\x8e\x8f]|\xe2\x81[\xa6-\xa9]' "$dir/shown"; then
    fail "a terminal would act on: $*: $(head -c 400 "$dir/shown" | cat -v)"
  fi
  if grep -q '^forged' "$dir/shown"; then fail "a line was forged: $*: $(head -c 400 "$dir/shown" | cat -v)"; fi
  grep -qF '\u001b[2J' "$dir/shown" || fail "it is not shown: $*: $(head -c 400 "$dir/shown" | cat -v)"
}
shows "$ctl" outbox list shop.outbox --state dead
shows "$ctl" outbox show shop.outbox "$event"
shows "$ctl" outbox replay shop.outbox "$event"
shows "$ctl" dead-letters list --schema st --group g
shows "$ctl" dead-letters show 1 --schema st --group g --payload
shows "$ctl" dead-letters quarantine 1 --schema st --group g
shows "$ctl" --json dead-letters show 1 --schema st --group g
# Sagas: whatever their callers and participants say.
"$ctl" migrate up --set saga >/dev/null
echo '{saga: s, version: 1, steps: [{name: a, action: wait}]}' >"$dir/saga.yaml"
"$ctl" saga register "$dir/saga.yaml" >/dev/null
saga=$(sql "$LOCKSTEP_DATABASE" "SELECT lockstep.saga_start('s', jsonb_build_object('a', $evil, $evil, 1), $evil, NULL, $evil)")
sql "$LOCKSTEP_DATABASE" "SELECT lockstep.saga_save_step('$saga', 0, 'Ready', 'Failed', false, 1, 0, NULL, NULL, false, false, $evil, 'C', to_jsonb($evil));
  SELECT lockstep.saga_save('$saga', 'Failed', $evil, $evil, 'C', 0, true)" >/dev/null
shows "$ctl" saga list
shows "$ctl" saga show "$saga"
shows "$ctl" saga show "$saga" --payloads --history
shows "$ctl" saga show "$saga" --json --payloads
shows "$ctl" saga dead list
shows "$ctl" saga dead inspect "$saga" --payloads
shows "$ctl" saga dead quarantine "$saga"
shows "$ctl" saga dead quarantine "$saga" --yes --reason "$(printf 'k\033[2J')"
shows "$ctl" saga show "$saga" --history
"$ctl" --json outbox list shop.outbox --state dead | python3 -c '
import json, sys
assert json.load(sys.stdin)[0]["aggregate_id"].endswith("\u202e\u2066\nforged line")' || fail "--json has another text"
echo "all as promised"
