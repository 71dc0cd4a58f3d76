#!/usr/bin/env bash
# Every deliberate defect still fits the code that it is to spoil (tests/chaos/defects/README.md).
set -euo pipefail
cd "$(dirname "$0")/../.."
status=0
for patch in tests/chaos/defects/*.patch; do
  git apply --check "$patch" || { echo "$patch does not apply: tests/chaos/defects/README.md says how to refresh it"; status=1; }
done
exit "$status"
