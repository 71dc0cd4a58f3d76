# The story of scripts/demo --saga; sourced by it, in its folder $dir with its guard. Needs $bin, $keep, $guard.
#
# A shop (examples/order) on a private Postgres, a payment provider in Node that fails as it is told, an orchestrator and
# then another.

say() { printf '\n%s\n' "$*"; }
# Says a command, as one would type it, and runs it.
run() {
  local word words=
  for word in "$@"; do
    [[ $word == *[[:space:]\"]* ]] && words+=" '$word'" || words+=" $word"
  done
  printf '   $%s\n' "$words"
  "$@" 2>&1 | sed 's/^/     /'
}
sql() { command psql -XqAt -v ON_ERROR_STOP=1 -d "$shop_url" -c "$1"; }

# await WHAT SQL: for half a minute at most, until the question is answered with t.
await() {
  local try
  for try in $(seq 300); do
    [ "$(sql "$2")" != t ] || return 0
    sleep 0.1
  done
  fail "waited in vain until $1"
}
await_step() { await "$2 is $3" "SELECT state = '$3' FROM lockstep.saga_steps WHERE saga = '$1' AND name = '$2'"; }
await_state() { await "the saga is $2" "SELECT state = '$2' FROM lockstep.sagas WHERE id = '$1'"; }
# order ID CUSTOMER ITEM CARD: sets `saga`.
order() {
  local call="SELECT shop.place_order('$1', '$2', '$3', 1, 4900, '$4')"
  printf '   $ psql -c "%s"\n' "$call"
  saga=$(sql "$call")
  printf '     %s\n' "$saga"
}
# The steps as they stand.
steps() {
  sql "SELECT '     ' || rpad(name, 10) || rpad(state, 13) || CASE WHEN in_doubt THEN 'in doubt' ELSE coalesce(last_error, '') END
         FROM lockstep.saga_steps WHERE saga = '$saga' ORDER BY step"
}
# What was undone, in the order in which it was.
undone() {
  sql "SELECT '     undone: ' || string_agg(t.name, ', then ' ORDER BY a.id)
         FROM lockstep.saga_audit a JOIN lockstep.saga_steps t USING (saga, step)
        WHERE a.saga = '$saga' AND a.to_state = 'Compensated'"
}
lockstepctl() { "$bin/lockstepctl" --database "$shop_url" "$@"; }

saga_story() {
  command -v node >/dev/null || fail "node is not installed: run scripts/setup"
  echo "Starting Postgres, a payment provider and an orchestrator …"
  postgres_start "$dir/postgres" shared_buffers=128MB
  export PGOPTIONS='-c client_min_messages=warning'
  shop_url=postgresql://lockstep@127.0.0.1:$PG_PORT/shop
  command psql -Xq -v ON_ERROR_STOP=1 -d "$PG_URL" -c 'CREATE DATABASE shop'
  lockstepctl migrate up --set outbox >/dev/null
  lockstepctl migrate up --set saga >/dev/null
  lockstepctl outbox create shop.outbox >/dev/null
  command psql -Xq -v ON_ERROR_STOP=1 -d "$shop_url" -f examples/order/shop.sql

  : >"$dir/payments.out"
  node examples/order/payments.js "$dir/payments.ledger" >"$dir/payments.out" 2>"$dir/payments.log" &
  local try payments
  for try in $(seq 100); do
    payments=$(sed -n 's/^listening on //p' "$dir/payments.out")
    [ -z "$payments" ] || break
    sleep 0.1
  done
  [ -n "$payments" ] || fail "the payment provider did not start"
  sed "s|http://127.0.0.1:8080|$payments|" examples/order/order.yaml >"$dir/order.yaml"
  # The orchestrators have the rights of their job, and may call what the saga calls (docs/security.md).
  lockstepctl roles grant orchestrator shop_orchestrator --saga --create >/dev/null
  command psql -Xq -v ON_ERROR_STOP=1 -d "$shop_url" -c 'GRANT USAGE ON SCHEMA shop TO shop_orchestrator' \
    -c 'GRANT SELECT, INSERT, UPDATE ON shop.stock, shop.reservation, shop.orders TO shop_orchestrator'
  lockstepctl roles grant writer shop_orchestrator --outbox shop.outbox >/dev/null
  cat >"$dir/orchestrator.yaml" <<EOT
database: ${shop_url/lockstep@/shop_orchestrator@}
actions: {allow_private: true}
EOT
  "$bin/lockstep-orchestrator" --config "$dir/orchestrator.yaml" 2>"$dir/orchestrator1.log" &
  local first=$!

  say 'The saga `order`: reserve (sql:), charge (http:), announce (bus:), approve (a person), ship (sql:).'
  run lockstepctl saga register "$dir/order.yaml"

  say "1. Ann orders a lamp. The order and its saga begin in one transaction; then it runs by itself until it needs a person."
  order o-1 ann lamp visa
  await_step "$saga" approve InFlight
  steps
  echo "   The orchestrator is killed (kill -9) and another one started; somebody approves; it goes on where it was."
  kill -9 "$first"
  wait "$first" 2>/dev/null || true
  "$bin/lockstep-orchestrator" --config "$dir/orchestrator.yaml" 2>"$dir/orchestrator2.log" &
  run lockstepctl saga signal "$saga" approve succeeded
  await_state "$saga" Completed
  steps
  echo "   Completed: the lamp is on its way."

  say "2. Bob's card is declined. What was done is undone."
  order o-2 bob lamp declined
  await_state "$saga" Failed
  steps
  undone

  say "3. Cleo orders a piano, and only at the very end it turns out that nobody carries it."
  order o-3 cleo piano visa
  await_step "$saga" approve InFlight
  run lockstepctl saga signal "$saga" approve succeeded
  await_state "$saga" Failed
  steps
  undone

  say "4. The line to the payment provider breaks when Dan's money is taken. It would take it twice if it was asked twice, so
   nobody asks: the saga waits for a person, who looks into the provider's books and says what has happened."
  curl -sf -d '{"path": "/charge", "answers": ["cut"]}' "$payments/tell" >/dev/null
  order o-4 dan lamp visa
  await_state "$saga" Paused
  sql "SELECT '     ' || state || ': ' || reason FROM lockstep.sagas WHERE id = '$saga'"
  run grep '"order":"o-4"' "$dir/payments.ledger"
  run lockstepctl saga signal "$saga" charge succeeded --result '{"charge": "c-3"}'
  await_step "$saga" approve InFlight
  run lockstepctl saga signal "$saga" approve succeeded
  await_state "$saga" Completed
  steps

  say "5. Eve changes her mind while her order waits for its approval."
  order o-5 eve lamp visa
  await_step "$saga" approve InFlight
  run lockstepctl saga cancel "$saga" --reason "eve changed her mind" --yes
  await_state "$saga" Cancelled
  undone

  say "What the shop and the payment provider have, each in its own books:"
  sql "SELECT format('     %-4s %-5s %-10s %s', o.id, o.customer, s.state, o.state) FROM shop.orders o
         JOIN lockstep.sagas s ON s.id = o.saga ORDER BY o.id"
  saga_check
}

# The books must agree: for each order what its saga says, what the provider took and gave back, what is reserved, and the
# events.
saga_check() {
  local wrong id state taken
  while IFS='|' read -r id state; do
    taken=$(node -e '
      const [file, order] = process.argv.slice(1);
      let sum = 0;
      for (const line of require("fs").readFileSync(file, "utf8").split("\n").filter(Boolean)) {
        const {path, order: of, did} = JSON.parse(line);
        if (of === order && did) sum += path === "/charge" ? 1 : -1;
      }
      console.log(sum);' "$dir/payments.ledger" "$id")
    [ "$state" = Completed ] && expected=1 || expected=0
    [ "$taken" = "$expected" ] || fail "order $id is $state, and the provider has taken its money $taken times"
  done < <(sql 'SELECT o.id, s.state FROM shop.orders o JOIN lockstep.sagas s ON s.id = o.saga')
  wrong=$(sql "
    SELECT 'order ' || o.id || ' is ' || o.state || ', its saga ' || s.state FROM shop.orders o
      JOIN lockstep.sagas s ON s.id = o.saga WHERE (o.state = 'shipped') <> (s.state = 'Completed')
    UNION ALL
    SELECT 'the reservation of ' || r.order_id || ' is ' || r.state FROM shop.reservation r
      JOIN shop.orders o ON o.id = r.order_id
     WHERE r.state <> CASE o.state WHEN 'shipped' THEN 'shipped' ELSE 'released' END
    UNION ALL
    SELECT t.item || ': the count of the stock is wrong' FROM shop.stock t
     WHERE t.on_hand + (SELECT coalesce(sum(r.count), 0) FROM shop.reservation r WHERE r.item = t.item AND r.state <> 'released')
           <> CASE t.item WHEN 'lamp' THEN 100 WHEN 'piano' THEN 3 ELSE 1000 END
    UNION ALL
    SELECT 'an order was announced and not withdrawn' FROM shop.orders o WHERE o.state <> 'shipped'
       AND (SELECT count(*) FILTER (WHERE topic = 'order.placed.v1') - count(*) FILTER (WHERE topic = 'order.withdrawn.v1')
              FROM shop.outbox b WHERE convert_from(b.payload, 'UTF8')::jsonb->>'order' = o.id) <> 0
    UNION ALL
    SELECT 'saga ' || saga || ' is still in the queue' FROM lockstep.saga_work")
  [ -z "$wrong" ] || fail "$wrong"
  say "Stock, money, events and sagas agree: 2 orders were shipped and paid once, 3 have left nothing behind."
}

saga_kept() {
  kill "$guard"
  cat <<EOT

Everything is still running, in $dir:
  the shop        psql $shop_url
  one more order  psql $shop_url -c "SELECT shop.place_order('o-6', 'fay', 'book', 2, 3000, 'visa')"
  the sagas       $bin/lockstepctl --database $shop_url saga list
  the provider    $dir/payments.ledger
  status pages    $(sed -n 's/.*msg=listening url=//p' "$dir"/orchestrator*.log | tr '\n' ' ')
  logs            tail -f $dir/*.log
  end it          scripts/demo --stop $dir
EOT
}
