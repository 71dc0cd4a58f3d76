#!/usr/bin/env bash
# The programs say what they are built of, and are built so that a fault of memory is hard to use: read from their ELF headers.
#   hardening_test.sh BIN_DIR
set -euo pipefail
bin=$(cd "$1" && pwd)
command -v readelf >/dev/null || { echo "readelf is missing (binutils)"; exit 77; }
failed=0 checked=
fail() { echo "FAILED: $1"; failed=1; }
for program in lockstep-publisher lockstep-runner lockstepctl lockstep-emulator; do
  file=$bin/$program
  "$file" --version | grep -qE "^$program [0-9.]+ \(commit [0-9a-z-]+, transports grpc.*\)$" || fail "$program --version: $("$file" --version)"
  header=$(readelf -hldW "$file")
  grep -qE 'Type: +DYN' <<<"$header" || fail "$program is not position independent"
  grep -q 'GNU_RELRO' <<<"$header" || fail "$program has no RELRO"
  grep -qE '\(FLAGS(_1)?\).*NOW' <<<"$header" || fail "$program binds lazily: RELRO is not full"
  grep -E 'GNU_STACK' <<<"$header" | grep -q 'E ' && fail "$program has an executable stack"
  symbols=$(readelf --dyn-syms -W "$file")
  grep -q '__stack_chk_fail' <<<"$symbols" || fail "$program has no stack protector"
  checked+=$(grep -v __stack_chk_fail <<<"$symbols" | grep -oE '__[a-z]+_chk\b' || true)
  if [ "$(uname -m)" = x86_64 ] && command -v objdump >/dev/null; then
    objdump -d --no-show-raw-insn --disassemble=main "$file" | grep -c 'endbr64' >/dev/null || fail "$program has no -fcf-protection"
  fi
done
# A call that is checked is one whose buffer the compiler knows: not every program has one. Sanitizers check more, and do without.
case $bin in
  */asan/* | */tsan/*) ;;
  *) [ -n "$checked" ] || fail "nothing is fortified" ;;
esac
[ "$failed" -eq 0 ] && echo "all as promised"
exit "$failed"
