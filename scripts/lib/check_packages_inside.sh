#!/usr/bin/env bash
# What scripts/check-packages does inside of the Debian that it boots.
set -euo pipefail
say() { echo "== $*"; }
fail() {
  echo "FAILED: $*"
  journalctl --no-pager -n 60
  exit 1
}
# Waits for what comes by itself; systemd ends a wait that has no end.
await() { until "$@" >/dev/null 2>&1; do sleep 0.1; done; }
pid_of() { systemctl show -p MainPID --value "$1"; }
sql() { runuser -u lockstep -- psql -qAt -d "$@"; }
daemons=(lockstep-publisher@catalog lockstep-runner@feed)
cd /root/old

say 'docs/install.md'
bash -euo pipefail /root/install.sh
systemctl is-active -q "${daemons[@]}" lockstep-emulator || fail 'not all units run'
[ "$(systemctl is-enabled "${daemons[@]}" | sort -u)" = enabled ] || fail 'not all units are enabled'
curl -sf http://127.0.0.1:9101/readyz >/dev/null && curl -sf http://127.0.0.1:9102/readyz >/dev/null || fail 'not ready'
[ "$(stat -c '%U:%G %a' /etc/lockstep/runner)" = 'root:lockstep 750' ] || fail 'the folder of the configuration is open to others'
[ "$(stat -c %U "/proc/$(pid_of lockstep-runner@feed)")" = lockstep ] || fail 'the runner does not run as lockstep'

say 'units: verify, security'
cd /usr/lib/systemd/system
for unit in lockstep-publisher@ lockstep-runner@ lockstep-orchestrator@ lockstep-emulator; do
  words=$(systemd-analyze verify --man=no "${unit/@/@x}.service" 2>&1 | grep -F lockstep || true)
  [ -z "$words" ] || fail "systemd-analyze verify $unit: $words"
  exposure=$(systemd-analyze security --no-pager "${unit/@/@x}.service" | sed -n 's/.*Overall exposure level for [^:]*: \([0-9.]*\).*/\1/p')
  say "$unit: exposure $exposure of 10"
  awk -v e="$exposure" 'BEGIN { exit !(e != "" && e < 2.5) }' || fail "$unit is exposed: $exposure"
done

say 'reload'
before=$(pid_of lockstep-runner@feed)
sed -i 's/^http:/log: {level: debug}\nhttp:/' /etc/lockstep/runner/feed.yaml
systemctl reload lockstep-runner@feed
await sh -c "journalctl -u lockstep-runner@feed | grep 'configuration changed' | grep log.level"
systemctl is-active -q lockstep-runner@feed || fail 'a reload ended the runner'
[ "$(pid_of lockstep-runner@feed)" = "$before" ] || fail 'a reload started the runner anew'

say 'upgrade'
emulator=$(pid_of lockstep-emulator)
apt install /root/new/lockstep-*.deb
for package in publisher runner orchestrator ctl emulator; do
  [ "$(dpkg-query -W -f '${Version}' lockstep-$package)" != 0.0.1-1 ] || fail "lockstep-$package is old"
done
systemctl is-active -q "${daemons[@]}" lockstep-emulator || fail 'not all units run after the upgrade'
[ "$(pid_of lockstep-runner@feed)" != "$before" ] || fail 'the runner still runs the old program'
[ "$(pid_of lockstep-emulator)" != "$emulator" ] || fail 'the emulator still runs the old program'
[ -z "$(systemctl list-units --plain --no-legend 'lockstep-orchestrator@*')" ] || fail 'the upgrade started what did not run'
PUBSUB_EMULATOR_HOST=127.0.0.1:8085 lockstepctl --config /etc/lockstep/pubsub.yaml provision --yes >/dev/null
sql catalog -c "SELECT lockstep.enqueue('catalog.video_outbox', topic => 'catalog.video.changed.v1', aggregate_type => 'video',
  aggregate_id => '7f8f2f0e-30a3-4c6e-8a41-0c6a0f0f3c11', event_type => 'video.events.VideoChanged', version => 2,
  payload => jsonb_build_object('video_id', '7f8f2f0e-30a3-4c6e-8a41-0c6a0f0f3c11', 'title', 'A newer title'))"
await sh -c "runuser -u lockstep -- psql -qAt -d feed -c 'SELECT title, version FROM catalog_read.videos' | grep 'A newer title|2'"

say 'the watchdog: a process that stands still is started anew, one without its database is not'
mkdir -p /run/systemd/system/lockstep-runner@feed.service.d /run/systemd/system/lockstep-publisher@catalog.service.d
printf '[Service]\nWatchdogSec=3s\n' | tee /run/systemd/system/lockstep-{runner@feed,publisher@catalog}.service.d/soon.conf >/dev/null
systemctl daemon-reload
systemctl restart "${daemons[@]}"
before=$(pid_of lockstep-runner@feed)
publisher=$(pid_of lockstep-publisher@catalog)
systemctl stop postgresql
kill -STOP "$before"
await sh -c '[ "$(systemctl show -p NRestarts --value lockstep-runner@feed)" -ge 1 ] && systemctl is-active -q lockstep-runner@feed'
[ "$(pid_of lockstep-runner@feed)" != "$before" ] || fail 'the runner was not started anew'
[ "$(pid_of lockstep-publisher@catalog)" = "$publisher" ] || fail 'the publisher was started anew for want of a database'
systemctl start postgresql
await curl -sf http://127.0.0.1:9102/readyz
await curl -sf http://127.0.0.1:9101/readyz

say 'a configuration that is wrong'
echo 'state_schema: [' >/etc/lockstep/runner/wrong.yaml
systemctl start lockstep-runner@wrong && fail 'it started'
journalctl -u lockstep-runner@wrong | grep -q wrong.yaml || fail 'the journal does not name the file'
systemctl start lockstep-runner@absent && fail 'it started without a file'
systemctl stop lockstep-runner@wrong
rm /etc/lockstep/runner/wrong.yaml

say 'remove, purge'
apt remove lockstep-publisher lockstep-runner lockstep-orchestrator lockstep-ctl lockstep-emulator
[ -z "$(systemctl list-units --plain --no-legend --state=active 'lockstep-*.service')" ] || fail 'units outlived their package'
[ -e /etc/lockstep/runner/feed.yaml ] || fail 'remove took the configuration'
apt purge lockstep-publisher lockstep-runner lockstep-orchestrator lockstep-ctl lockstep-emulator
[ -e /etc/lockstep/runner/feed.yaml ] || fail 'purge took what an administrator wrote'
[ ! -e /etc/lockstep/orchestrator ] || fail 'purge left an empty folder'
left=$(find /usr /lib /etc/systemd /var/lib -xdev -name '*lockstep*' ! -path '/var/lib/dpkg/*' ! -path '/var/lib/postgresql/*')
[ -z "$left" ] || fail "purge left $left"
say 'nothing is left'
