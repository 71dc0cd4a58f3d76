#!/usr/bin/env bash
# scripts/release in a repository of its own: what it refuses, and what it does.
# usage: release_test.sh SOURCE_DIR
set -euo pipefail
dir=$(mktemp -d) out=$(mktemp)
trap 'rm -rf "$dir" "$out"' EXIT
mkdir "$dir/scripts"
cp "$1/scripts/release" "$dir/scripts/"
cd "$dir"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com GIT_CONFIG_GLOBAL=/dev/null
echo 'project(lockstep VERSION 0.2.0 LANGUAGES CXX)' >CMakeLists.txt
printf '# Changelog\n\n## [Unreleased]\n\n### Added\n- A thing.\n\n## [0.1.0] - 2026-01-01\n- Old.\n' >CHANGELOG.md
git init -q
git add .
git commit -q -m begin
refused() {
  local words=$1
  shift
  if scripts/release "$@" --no-ci --no-packages >"$out" 2>&1; then echo "not refused: $*"; exit 1; fi
  grep -qF "$words" "$out" || { echo "without '$words':"; cat "$out"; exit 1; }
}
refused 'usage' 0.2
refused 'CMakeLists.txt says version 0.2.0' 0.3.0
touch left
refused 'the tree has changes' 0.2.0
rm left
scripts/release 0.2.0 --dry-run | grep -qF 'v0.2.0: 1 entries'
[ -z "$(git tag)" ]
scripts/release 0.2.0 --no-ci --no-packages | grep -q 'git push origin HEAD v0.2.0'
[ "$(git tag)" = v0.2.0 ] && [ "$(git rev-parse 'v0.2.0^{commit}')" = "$(git rev-parse HEAD)" ]
awk '/^## /' CHANGELOG.md | diff - <(printf '## [Unreleased]\n## [0.2.0] - %s\n## [0.1.0] - 2026-01-01\n' "$(date -u +%Y-%m-%d)")
refused 'v0.2.0 is there already' 0.2.0
echo 'project(lockstep VERSION 0.3.0 LANGUAGES CXX)' >CMakeLists.txt
git commit -q -a -m next
refused 'nothing under [Unreleased]' 0.3.0
