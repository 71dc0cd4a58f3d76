#!/usr/bin/env bash
# TLS to Postgres with sslmode=verify-full, and passwords that show nowhere. A private Postgres takes connections over TLS
# with a password only; its certificate, for the name "localhost", is signed by a CA made here.
#   secrets_test.sh BIN_DIR
set -euo pipefail
bin=$(cd "$1" && pwd) name=secrets cluster=none
if ! command -v openssl >/dev/null; then
  echo "SKIPPED: openssl is not installed (scripts/setup --ci does it)"
  exit 77
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/scripts/lib/postgres.sh"
. "$(dirname "$0")/lib.sh"
before_end() { postgres_stop; }
chmod 755 "$dir"
write_files
ctl=$bin/lockstepctl
secret=Qx7SecretMark

# Two CAs; the server's certificate is of the first.
mkdir "$dir/tls"
for ca in right wrong; do
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=$ca CA" -keyout "$dir/tls/$ca.key" -out "$dir/tls/$ca.crt" 2>/dev/null
done
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout "$dir/tls/server.key" -out "$dir/tls/server.csr" 2>/dev/null
echo 'subjectAltName = DNS:localhost' >"$dir/tls/names"
openssl x509 -req -days 2 -in "$dir/tls/server.csr" -CA "$dir/tls/right.crt" -CAkey "$dir/tls/right.key" -CAcreateserial \
  -extfile "$dir/tls/names" -out "$dir/tls/server.crt" 2>/dev/null
chmod 600 "$dir/tls/server.key"
[ "$(id -u)" -ne 0 ] || chown postgres "$dir/tls/server.key"
postgres_start "$dir/postgres" fsync=off log_min_messages=fatal ssl=on \
  ssl_cert_file="$dir/tls/server.crt" ssl_key_file="$dir/tls/server.key"
psql -q -d "$PG_URL" -c "ALTER ROLE lockstep PASSWORD '$secret'" -c 'CREATE DATABASE source' -c 'CREATE DATABASE feed'
echo 'hostssl all all 127.0.0.1/32 scram-sha-256' | pg_run tee "$dir/postgres/data/pg_hba.conf" >/dev/null
psql -q -d "$PG_URL" -c 'SELECT pg_reload_conf()' >/dev/null
for _ in $(seq 100); do psql -d "$PG_URL" -c '' >/dev/null 2>&1 || break; sleep 0.1; done

address() { # DATABASE [CA [HOST [PASSWORD]]]
  echo "postgresql://lockstep:${4:-$secret}@${3:-localhost}:$PG_PORT/$1?sslmode=verify-full&sslrootcert=$dir/tls/${2:-right}.crt"
}
source=$(address source) feed=$(address feed)
# What anybody could have read so far: outputs and logs, and the process list (of our processes).
no_secret() {
  local pid
  if grep -l "$secret" "$out" "$dir"/*.log 2>/dev/null; then fail "a password was shown: $1"; fi
  for pid in "${started[@]}"; do
    if tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q "$secret"; then fail "a password in the process list: $1"; fi
  done
  checks=$((checks + 1))
}

# The right CA and the right name: all three work. The address comes by flag, environment and file.
says 'applied 1' "$ctl" --database "$source" migrate up --set outbox
says 'shop.outbox' env LOCKSTEP_DATABASE="$source" "$ctl" outbox create shop.outbox
says 'applied 1' "$ctl" --database="$feed" migrate up --set state --schema feed_state
sql "$feed" "$read_model"
start_emulator
"$ctl" --config "$dir/pubsub.yaml" provision --yes >/dev/null 2>&1
sql "$source" "$(enqueue k1 1 '{"title": "over TLS", "amount": 1}')" >/dev/null
start publisher "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --log.level debug --database "$source"
publisher=$pid
echo "database: $feed" >>"$dir/runner.yaml"
start runner "$bin/lockstep-runner" --config "$dir/runner.yaml" --log.level debug
await 'over TLS' "$feed" 'SELECT title FROM feed.item'
is t "$source" "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 'lockstep%'"
no_secret 'working connections'
grep -q 'postgresql://lockstep:\*\*\*@' <(tr '\0' ' ' <"/proc/$publisher/cmdline") || fail 'the flag is not in the process list at all'

grep -q 'an emulator takes the place of Pub/Sub' "$dir/publisher.log" || fail 'the emulator in use is not in the log'
if grep -q 'verify-full' "$dir/publisher.log" "$dir/runner.log"; then fail 'a warning about a server that is checked'; fi

# The pages of both.
get() { # URL
  local at=${1#http://} host path
  host=${at%%/*} path=/${at#*/}
  exec 9<>"/dev/tcp/${host%:*}/${host#*:}"
  printf 'GET %s HTTP/1.0\r\nHost: %s\r\n\r\n' "$path" "$host" >&9
  cat <&9
  exec 9>&-
}
for program in publisher runner; do
  await_line 'url=http' "$dir/$program.log"
  url=$(sed -n 's/.*url=\(http:[^ ]*\).*/\1/p' "$dir/$program.log" | head -n 1)
  for path in / /api/status /metrics /readyz /healthz; do get "${url%/}$path" >>"$dir/$program.pages.log"; done
  grep -q '200 OK' "$dir/$program.pages.log" || fail "no page of the $program"
  grep -q '"database"' "$dir/$program.pages.log" || fail "the page of the $program does not show its configuration"
done
no_secret 'pages'

# --print-config, --help, a broken file.
says ':\*\*\*@localhost' "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$source" --print-config
no_secret '--print-config'
says ':\*\*\*@localhost' env LOCKSTEP_DATABASE="$feed" "$bin/lockstep-runner" --config "$dir/runner.yaml" --print-config
no_secret '--print-config of the runner'
says '' env LOCKSTEP_DATABASE="$feed" "$bin/lockstep-runner" --help
no_secret '--help'
for line in "database: [$feed]" "database: {url: '$feed'}" "databse: $feed" "database: '$feed' x"; do
  echo "$line" >"$dir/broken.yaml"
  refuses 'broken.yaml|connect' "$bin/lockstep-publisher" --config "$dir/broken.yaml" --once --relay.tables a.b
  no_secret "the file: ${line%%:*}"
done

# Failing connections: each says what failed, to what, and no password. The daemons wait for a database
# that is not there, so that theirs is read from the log.
port=$PG_PORT PG_NOWHERE=1
expect_failure() { # REGEX ADDRESS WHAT
  refuses "$1" "$ctl" --database "$2" outbox list
  no_secret "lockstepctl, $3"
  refuses "$1" "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$2" --once
  no_secret "lockstep-publisher, $3"
  start failing "$bin/lockstep-runner" --config "$dir/runner.yaml" --database "$2"
  await_line "$1" "$dir/failing.log"
  no_secret "lockstep-runner, $3"
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null || true
}
expect_failure 'certificate verify failed' "$(address source wrong)" 'wrong CA'
expect_failure 'does not match host name' "$(address source right 127.0.0.1)" 'wrong host name'
expect_failure 'root certificate file .* does not exist' "$(address source missing)" 'no CA'
expect_failure 'no pg_hba.conf entry' "postgresql://lockstep:$secret@localhost:$port/source?sslmode=disable" 'no TLS'
expect_failure 'password authentication failed for user .*lockstep' "$(address source right localhost "wrong$secret")" 'wrong password'
expect_failure 'database .*nowhere.* does not exist' "$(address nowhere)" 'wrong database'
expect_failure 'Connection refused' "postgresql://lockstep:$secret@127.0.0.1:$PG_NOWHERE/source" 'nobody there'
expect_failure "can't connect" "host=127.0.0.1 port=$PG_NOWHERE user=lockstep password=$secret" 'key=value'
# Passwords that nobody encoded: libpq takes parts of them for something else, and quotes those. One
# program is enough for them, for all three connect by the same few lines.
refuses "can't connect" "$ctl" --database "host=127.0.0.1 port=$PG_NOWHERE user=lockstep password=my $secret" outbox list
no_secret 'a space in it'
for password in "$secret/$secret" "my/$secret" "my@$secret" "my:$secret" "my%zz$secret" "$secret?my@$secret" "my#$secret" "my $secret"; do
  refuses "can't connect" "$ctl" --database "postgresql://lockstep:$password@127.0.0.1:$PG_NOWHERE/source" outbox list
  no_secret "password $password"
done

stop "$publisher"
# A file with the password, of all three; it may change while they run, and is told nowhere.
plain=${source/:$secret@/@}
printf '%s\n' "$secret" >"$dir/password"
says 'shop.outbox' env LOCKSTEP_DATABASE_PASSWORD_FILE="$dir/password" "$ctl" --database "$plain" outbox list
printf 'database: %s\ndatabase_password_file: password\n' "$plain" | cat "$dir/publisher.yaml" - >"$dir/by_file.yaml"
says 'shop.outbox' "$ctl" --config "$dir/by_file.yaml" outbox list
says '' "$bin/lockstep-publisher" --config "$dir/by_file.yaml" --once
says 'database_password_file: ' "$bin/lockstep-publisher" --config "$dir/by_file.yaml" --print-config
no_secret 'a file with the password'
echo "wrong$secret" >"$dir/password"
refuses 'password authentication failed' "$bin/lockstep-publisher" --config "$dir/by_file.yaml" --once
no_secret 'a file with another password'
rm "$dir/password"
refuses "password file.*can't be read" "$ctl" --config "$dir/by_file.yaml" outbox list

# A server that is far and not checked by its certificate.
far="postgresql://lockstep:$secret@db.example.com:$PG_PORT/source?hostaddr=127.0.0.1&sslmode=require"
says 'another machine and sslmode is require' "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$far" --once
no_secret 'a server that is far'

# An emulator where credentials for the real service are configured: an oversight, unless it is forced.
# Workload Identity has no file: a metadata server gives them.
unset LOCKSTEP_PUBSUB_FORCE_EMULATOR
refuses 'emulator is named.*GCE_METADATA_HOST.*force_emulator' env GCE_METADATA_HOST=169.254.169.252:988 \
  "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$source" --once
export GOOGLE_APPLICATION_CREDENTIALS=$dir/key.json
refuses 'emulator is named.*force_emulator' "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$source" --once
refuses 'emulator is named.*force_emulator' "$bin/lockstep-runner" --config "$dir/runner.yaml" --once
refuses 'emulator is named.*force_emulator' "$ctl" --config "$dir/pubsub.yaml" provision --yes
refuses 'emulator is named.*force_emulator' "$ctl" --config "$dir/runner.yaml" offsets reset feed --to-latest --reason x
says '' "$bin/lockstep-publisher" --config "$dir/publisher.yaml" --database "$source" --once --pubsub.force_emulator true
says 'as the file wants' env LOCKSTEP_PUBSUB_FORCE_EMULATOR=true "$ctl" --config "$dir/pubsub.yaml" provision --yes
echo "$checks checks passed"
