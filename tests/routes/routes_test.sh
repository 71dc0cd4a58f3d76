#!/usr/bin/env bash
# lockstep-publisher with HTTP routes to real servers: Node's, which misbehaves, and an nginx with TLS.
# usage: routes_test.sh BIN_DIR SOURCE_DIR flaky|kills|tls|signed|page     (needs LOCKSTEP_TEST_PG)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$1 source=$2 what=$3
skip() { echo "SKIPPED: $1"; exit 77; }
command -v node >/dev/null || skip "node is not installed"
dir=$(mktemp -d)
database=routes_$$
children=()
cleanup() {
  for pid in "${children[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  psql -q -d "$LOCKSTEP_TEST_PG" -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" >/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
fail() { echo "FAILED: $1" >&2; [ ! -f "$dir/publisher.log" ] || tail -n 15 "$dir/publisher.log" >&2; exit 1; }

if [ "$what" = page ]; then
  # The example of the page is a configuration that the publisher understands.
  sed -n '/^```yaml/,/^```/p' "$source/docs/routes.md" | sed '/^```/d' >"$dir/publisher.yaml"
  printf '%064d\n' 7 >"$dir/stats.secret"
  "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database postgresql://nobody@127.0.0.1/none --pubsub.project p \
    --print-config >"$dir/effective" || fail "the example is refused"
  grep -q 'custom:audit' "$dir/effective" || fail "the example's routes are not there"
  for mistake in 'topics: {a: "ftp://example.com/"}' 'topics: {a: [b, c]}' 'topics: {a: "custom:"}' 'topics: {a: http//example.com}' \
    'topics: {a: "https://u:geheim@example.com/"}' 'topics: {a: "https://example.com/"}
routes: {endpoints: [{url: "https://example.com/other"}]}' 'topics: {a: "https://example.com/"}
routes: {tiemout: 5s}'; do
    printf 'database: postgresql://nobody@127.0.0.1/none\n%s\n' "$mistake" >"$dir/bad.yaml"
    if "$bin/lockstep-publisher" --config "$dir/bad.yaml" --print-config >"$dir/out" 2>&1; then fail "taken: $mistake"; fi
    grep -q 'bad.yaml:[23]:' "$dir/out" || fail "no place is named for: $mistake: $(cat "$dir/out")"
    ! grep -q geheim "$dir/out" || fail "a password is shown"
  done
  exit 0
fi

psql -q -d "$LOCKSTEP_TEST_PG" -c "CREATE DATABASE $database"
export LOCKSTEP_DATABASE=${LOCKSTEP_TEST_PG%/*}/$database
sql() { psql -qtA -v ON_ERROR_STOP=1 -d "$LOCKSTEP_DATABASE" "$@"; }
"$bin/lockstepctl" migrate up >/dev/null
"$bin/lockstepctl" outbox create shop.outbox >/dev/null

node "$here/server.js" "$dir/port" "$dir/ledger" "$dir/receivers.secret" "$source/docs/routes.md" 2>"$dir/server.log" &
children+=($!)
for _ in $(seq 200); do [ ! -s "$dir/port" ] || break; sleep 0.05; done
[ -s "$dir/port" ] || { cat "$dir/server.log" >&2; fail "the server did not start"; }
base=http://127.0.0.1:$(cat "$dir/port")

enqueue() { # topic keys versions
  sql -c "SELECT count(lockstep.enqueue('shop.outbox', '$1', '$1', '$1-' || k, 'T', v, convert_to('{\"secret\": \"4711081547110815\"}', 'UTF8'),
            content_type => 'application/json', attributes => '{\"note\": \"grün\"}'))
          FROM generate_series(1, $2) k, generate_series(1, $3) v" >/dev/null
}
publisher() {
  "$bin/lockstep-publisher" --relay.tables shop.outbox --relay.retry.base 100ms --relay.retry.cap 500ms --relay.lock_ttl 2s \
    --relay.session_timeout 1s --relay.ping_interval 200ms --relay.poll_interval 1s --http.enabled false "$@" >>"$dir/publisher.log" 2>&1 &
  publisher=$!
  children+=("$publisher")
}
await() { # condition count
  for _ in $(seq 600); do
    [ "$(sql -c "SELECT count(*) FROM shop.outbox_status WHERE $1")" != "$2" ] || return 0
    sleep 0.1
  done
  sql -c "SELECT topic, count(*), min(last_error) FROM shop.outbox_status WHERE published_at IS NULL GROUP BY 1" >&2
  fail "there were never $2 rows with $1"
}

case $what in
  flaky)
    paths=(hang truncate busy down close large ok)
    topics=
    for path in "${paths[@]}"; do
      enqueue "$path" 4 6
      topics+="$path=$base/$path,"
    done
    enqueue refuse 1 3
    enqueue moved 1 1
    # A machine that is busy answers late too, and what is sent again comes twice: only who hangs has little time.
    printf 'routes: {allow_private: true, timeout: 30s, endpoints: [{url: "%s/hang", timeout: 500ms}]}\n' "$base" >"$dir/publisher.yaml"
    publisher --config "$dir/publisher.yaml" --topics "${topics}refuse=$base/refuse,moved=$base/moved"
    await "published_at IS NOT NULL AND topic NOT IN ('refuse', 'moved') AND attempts = 0" $((${#paths[@]} * 24))
    for path in "${paths[@]}"; do
      [ "$path" = hang ] && repeats=repeats || repeats=
      node "$here/check_ledger.js" "$dir/ledger" "/$path" 4 6 $repeats
    done
    await "topic = 'refuse' AND version = 2 AND dead_at IS NOT NULL AND error_code = 'HTTP.REFUSED'" 1
    await "topic = 'refuse' AND version = 3 AND published_at IS NULL AND dead_at IS NULL" 1
    await "topic = 'moved' AND dead_at IS NULL AND attempts = 0 AND last_error LIKE '%redirect%'" 1
    [ "$(sql -c "SELECT count(*) FROM shop.outbox_status WHERE last_error LIKE '%47110815%' OR octet_length(last_error) > 600")" = 0 ] ||
      fail "an error quotes a payload, or is long"
    ! grep -q 47110815 "$dir/publisher.log" || fail "the log quotes a payload"
    grep -q 'note":"gr%C3%BCn"' "$dir/ledger" || fail "an attribute did not come as the page says"
    ;;
  kills)
    keys=20 versions=100
    enqueue slow $keys $versions
    for _ in $(seq 8); do
      publisher --topics "slow=$base/slow" --routes.allow_private true --routes.concurrency 8
      before=$(wc -l <"$dir/ledger")
      for _ in $(seq 200); do [ "$(wc -l <"$dir/ledger")" -lt $((before + 120)) ] || break; sleep 0.02; done
      kill -9 "$publisher"
      wait "$publisher" 2>/dev/null || true
    done
    publisher --topics "slow=$base/slow" --routes.allow_private true
    await "published_at IS NOT NULL" $((keys * versions))
    node "$here/check_ledger.js" "$dir/ledger" /slow $keys $versions repeats
    # What a kill explains: a request per key and kill was under way, and marks of a moment.
    [ "$(wc -l <"$dir/ledger")" -le $((keys * versions + 8 * keys * 60)) ] || fail "far too many repeats: $(wc -l <"$dir/ledger")"
    ;;
  tls)
    command -v nginx >/dev/null || skip "nginx is not installed"
    command -v openssl >/dev/null || skip "openssl is not installed"
    certificate() { # name subject-alternative-name ca
      openssl req -newkey rsa:2048 -nodes -keyout "$dir/$1.key" -out "$dir/$1.csr" -subj "/CN=$1" 2>/dev/null
      openssl x509 -req -in "$dir/$1.csr" -CA "$dir/$3.pem" -CAkey "$dir/$3.key" -days 2 -out "$dir/$1.pem" \
        -extfile <(echo "subjectAltName=$2") 2>/dev/null
    }
    for ca in ca stranger; do
      openssl req -x509 -newkey rsa:2048 -nodes -keyout "$dir/$ca.key" -out "$dir/$ca.pem" -days 2 -subj "/CN=$ca" 2>/dev/null
    done
    certificate good DNS:localhost,IP:127.0.0.1 ca
    certificate wrong DNS:localhost,IP:127.0.0.1 stranger
    certificate other DNS:other.example ca
    ports=()
    while [ ${#ports[@]} -lt 3 ]; do
      port=$((20000 + RANDOM % 20000))
      (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || ports+=("$port")
    done
    { # One process: a worker would outlive its master, and whoever reads our output would wait for it.
      echo "daemon off; master_process off; pid $dir/nginx.pid; error_log $dir/nginx.log; events {}"
      echo "http { access_log off; client_body_temp_path $dir/body; proxy_temp_path $dir/proxy; fastcgi_temp_path $dir/f;"
      echo "uwsgi_temp_path $dir/u; scgi_temp_path $dir/s;"
      n=0
      for name in good wrong other; do
        echo "server { listen 127.0.0.1:${ports[$n]} ssl; ssl_certificate $dir/$name.pem; ssl_certificate_key $dir/$name.key;"
        echo "location / { proxy_pass $base; } }"
        n=$((n + 1))
      done
      echo "}"
    } >"$dir/nginx.conf"
    nginx -e "$dir/nginx.log" -c "$dir/nginx.conf" -p "$dir" &
    children+=($!)
    for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/${ports[0]}") 2>/dev/null && break; sleep 0.05; done
    for topic in good wrong other system; do enqueue "$topic" 2 3; done
    cat >"$dir/publisher.yaml" <<YAML
topics:
  good: https://localhost:${ports[0]}/tls
  wrong: https://localhost:${ports[1]}/tls-wrong
  other: https://localhost:${ports[2]}/tls-other
  system: https://127.0.0.1:${ports[0]}/tls-system
routes:
  allow_private: true
  ca_file: ca.pem
  endpoints:
    - {url: "https://127.0.0.1:${ports[0]}/tls-system", ca_file: ""}
YAML
    publisher --config "$dir/publisher.yaml"
    await "topic = 'good' AND published_at IS NOT NULL" 6
    node "$here/check_ledger.js" "$dir/ledger" /tls 2 3
    for topic in wrong other system; do
      await "topic = '$topic' AND version = 1 AND attempts = 0 AND dead_at IS NULL AND last_error LIKE '%certificate%ca_file%'" 2
    done
    ! grep -qE 'tls-(wrong|other|system)' "$dir/ledger" || fail "an event went to a server that was not verified"
    ;;
  signed)
    old=$(printf '%032d' 1) new=$(printf '%032d' 2)
    echo "$old" >"$dir/receivers.secret"
    echo "$old" >"$dir/secret"
    publisher --topics "signed=$base/signed" --routes.allow_private true --routes.secret_file "$dir/secret"
    enqueue signed 2 2
    await "published_at IS NOT NULL" 4
    printf '%s\n%s\n' "$new" "$old" >"$dir/secret.next" && mv "$dir/secret.next" "$dir/secret"  # both sign
    sql -c "SELECT lockstep.enqueue('shop.outbox', 'signed', 'signed', 'signed-1', 'T', 3, 'x')" >/dev/null
    await "published_at IS NOT NULL" 5
    echo "$new" >"$dir/receivers.secret"  # the receiver moves on
    sql -c "SELECT lockstep.enqueue('shop.outbox', 'signed', 'signed', 'signed-1', 'T', 4, 'x')" >/dev/null
    await "published_at IS NOT NULL AND attempts = 0" 6
    echo "$old" >"$dir/secret.next" && mv "$dir/secret.next" "$dir/secret"  # and who signs with the old one alone is refused
    sql -c "SELECT lockstep.enqueue('shop.outbox', 'signed', 'signed', 'signed-1', 'T', 5, 'x')" >/dev/null
    await "version = 5 AND published_at IS NULL AND last_error LIKE '%signature is wrong%'" 1
    ;;
esac
