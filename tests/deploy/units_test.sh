#!/usr/bin/env bash
# The units of the packages: nothing that systemd does not know, and little that they may.
# usage: units_test.sh PACKAGES_DIR SOURCE_DIR
set -euo pipefail
command -v systemd-analyze >/dev/null || { echo 'SKIPPED: systemd-analyze is not installed'; exit 77; }
for unit in "$1"/*/lockstep-*@.service "$2"/deploy/systemd/lockstep-emulator.service; do
  grep '@[A-Z]*@' "$unit" && { echo "$unit has words that were not filled in"; exit 1; }
  # That the programs are not installed here is no fault of the units.
  words=$(systemd-analyze verify --man=no "$unit" 2>&1 | grep -F "$(basename "$unit")" | grep -v 'is not executable: No such file' || true)
  [ -z "$words" ] || { echo "$words"; exit 1; }
  systemd-analyze security --offline=true --no-pager --threshold=20 "$unit" >out.$$ 2>&1 || { cat out.$$; rm out.$$; exit 1; }
  tail -n 1 out.$$
  rm out.$$
done
