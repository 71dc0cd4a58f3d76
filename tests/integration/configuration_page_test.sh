#!/usr/bin/env bash
# docs/configuration.md has every key of every daemon, with its default and its name in the environment, once, and no other.
#   configuration_page_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
export LC_ALL=C
bin=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# From --help: "key = default", then its words, with the environment's name in brackets behind them.
for daemon in publisher runner orchestrator emulator; do
  "$bin/lockstep-$daemon" --help >"$dir/help" || { echo "FAILED: lockstep-$daemon --help" >&2; exit 1; }
  awk '
    function tell() { if (key != "") print key "|" value "|" env }
    /^Keys\./ { on = 1; next }
    !on { next }
    /^  [a-z]/ { tell(); key = $1; value = ""; env = ""; if ($2 == "=") { value = $0; sub(/^[^=]*= /, "", value) } next }
    match($0, /\[[A-Z_]+\]$/) { env = substr($0, RSTART + 1, RLENGTH - 2) }
    END { tell() }' "$dir/help" | sed "s/^/$daemon /"
done >"$dir/all"
# A row for a family of keys (`relay.tables.<name>.*`) stands for all of them.
sed -nE 's/^\| `([a-z][A-Za-z0-9_.<>-]*)\.\*` \|.*/\1./p' "$source/docs/configuration.md" >"$dir/families"
cut -d' ' -f2- "$dir/all" | grep -vFf "$dir/families" | sort -u >"$dir/keys"
sed -nE 's/^\| `([a-z][A-Za-z0-9_.<>-]*)` \| (`([^`]*)`)? ?\| (`([A-Z_]+)`)? ?\| [^ ].*\|$/\1|\3|\5/p' "$source/docs/configuration.md" | sort >"$dir/page"
if ! diff "$dir/keys" <(uniq "$dir/page"); then
  echo "FAILED: '<' is what --help says, '>' what docs/configuration.md says (key|default|environment)" >&2
  exit 1
fi
# Once: twice only where two daemons have a key of one name that means two things.
twice=$(cut -d'|' -f1 "$dir/page" | uniq -d | grep -vx 'metrics.backlog_interval' || true)
[ -z "$twice" ] || { echo "FAILED: more than once: $twice" >&2; exit 1; }
echo "$(wc -l <"$dir/keys") keys"
