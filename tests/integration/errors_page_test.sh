#!/usr/bin/env bash
# docs/errors.md has every outcome and error code of the sources, with a cure, and no other.
#   errors_page_test.sh SOURCE_DIR
set -euo pipefail
export LC_ALL=C
cd "$1"
codes='outbox_flush_[a-z_]+|EVENTBUS_[A-Z_]+|[A-Z]{2,}\.[A-Z][A-Z_]{3,}'
folders=(ctl emulator envelope idempotency offsets operations platform postgres projections publisher pubsub runner sagas sql state web)
sources=$(grep -rhoE --include='*.cc' --include='*.h' --include='*.sql' --include='*.js' \
  --exclude='*test.cc' --exclude-dir=testing "[\"']($codes)[\"']" "${folders[@]}" | tr -d "\"'" | sort -u)
# The first column of a table whose last one, the cure, is not empty.
page=$(sed -nE "s/^\| \`($codes)\` \|.*\| [^|]+ \|\$/\1/p" docs/errors.md | sort -u)
[ "$(wc -l <<<"$sources")" -ge 19 ] || { echo "FAILED: few codes were found in the sources: $sources"; exit 1; }
if ! diff <(echo "$sources") <(echo "$page"); then
  echo "FAILED: '<' stands in the sources and not in docs/errors.md, '>' the other way round"
  exit 1
fi
echo "$(wc -l <<<"$page") codes, each with its cure"
