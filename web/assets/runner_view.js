// A consumer group: its lag and rate, lanes, parked keys, dead letters and history.

import { chart } from './chart.js';
import { deadLetters } from './dead_letters.js';
import { h, none, shortened, table, tile } from './dom.js';
import { age, count, duration, rate } from './format.js';
import { traceLink } from './trace.js';

const kMood = { running: 'good', quiet: 'good', behind: 'warning', starting: '', seeking: 'warning', stopping: '', stuck: 'bad', halted: 'bad', paused: 'warning', retrying: 'warning', waiting: 'bad', 'no stream': 'bad', 'no heartbeat': 'warning' };
export const groupMood = (group) => kMood[group.state] ?? '';
const kLaneMood = { idle: '', working: 'good', retrying: 'warning', stuck: 'bad', halted: 'bad' };

function catchUp(group) {
  if (group.lag_ms === null || group.lag_ms === undefined) return [none, ''];
  if (group.lag_ms < 1000) return ['caught up', ''];
  if (group.eta_seconds === null || group.eta_seconds === undefined) return ['not yet', 'lag is not shrinking'];
  return [duration(group.eta_seconds * 1000), 'at the present rate'];
}

function tiles(group, doc) {
  const [eta, why] = catchUp(group);
  const late = group.lag_ms > (group.lag_alert_ms ?? Infinity);
  return h('dl', { class: 'tiles' },
    tile('Lag', duration(group.lag_ms), group.lag_basis ?? '', late ? 'bad' : ''),
    tile('Rate', rate(group.rate), `${count(group.counters?.applied)} events applied`),
    tile('Catch-up', eta, why),
    tile('Last commit', age(group.last_commit_at, doc.now), group.heartbeat_age_ms != null ? `heartbeat ${duration(group.heartbeat_age_ms)} ago` : ''),
    tile('Parked keys', count(group.parked_keys_total), `${count(group.parked_events)} ${group.parked_events === 1 ? 'event waits' : 'events wait'}`, group.parked_keys_total > 0 ? 'warning' : ''),
    tile('Dead letters', count(group.dead_letters_open), 'open', group.dead_letters_open > 0 ? 'warning' : ''));
}

// What may be why a line bends: operators' deeds, and processes that began (a deploy).
function marks(group, doc) {
  const deeds = (group.history ?? []).map((e) => ({ t: Date.parse(e.at), text: [`${e.action} by ${e.operator}`, e.reason].filter(Boolean).join(': ') }));
  const begun = (group.instances ?? []).map((i) => ({ t: Date.parse(i.started_at), text: `${i.instance} began${i.version ? `, version ${i.version}` : ''}` }));
  if (!begun.length && doc.started_at) begun.push({ t: Date.parse(doc.started_at), text: 'this process began' });
  return [...deeds, ...begun].sort((a, b) => a.t - b.t);
}

function charts(group, doc, redraw) {
  const history = doc.history?.groups?.[group.name] ?? {};
  const common = { at: doc.history?.at ?? [], longest: doc.history?.span_ms ?? 3600000, marks: marks(group, doc), redraw };
  return h('div', { class: 'charts' },
    chart({ ...common, id: `${group.name}-lag`, title: 'Lag', values: history.lag_ms ?? [], show: duration, least: 100 }),
    chart({ ...common, id: `${group.name}-rate`, title: 'Events applied per second', values: history.rate ?? [], show: rate, least: 1 }));
}

function stages(group) {
  if (!group.stages) return null;
  const names = [['occurred_published', 'occurred → published'], ['published_received', 'published → received'], ['received_committed', 'received → committed']];
  return h('div', {}, h('h3', {}, 'Where the time goes'),
    h('p', {}, names.map(([key, label]) => `${label} ${duration(group.stages[key])}`).join('  ·  '),
      h('span', { class: 'quiet' }, '  (last batch)')));
}

function lanes(group, doc, redraw) {
  if (!group.lanes?.length) return null;
  const [rows, more] = shortened(`lanes-${group.name}`, group.lanes, redraw, 16);
  return h('div', {}, h('h3', {}, 'Lanes'), table('Lanes', [
    { label: 'Lane', whole: true, cell: (l) => l.lane },
    { label: 'State', whole: true, cell: (l) => h('span', { class: `pill ${kLaneMood[l.state] ?? ''}` }, l.state) },
    { label: 'Queued', number: true, cell: (l) => count(l.queued) },
    { label: 'Oldest waits', number: true, cell: (l) => (l.oldest_ms ? duration(l.oldest_ms) : none) },
    { label: 'Last commit', number: true, cell: (l) => age(l.last_commit_at, doc.now) },
    { label: 'Last error', cell: (l) => (l.waits_for ? `waits: ${l.waits_for}` : l.last_error) || none },
  ], rows, (l) => `lane-${l.lane}`), more);
}

function parked(group, doc, redraw) {
  if (!group.parked_keys?.length) return null;
  const [rows, all] = shortened(`parked-${group.name}`, group.parked_keys, redraw);
  const more = group.parked_keys_total - group.parked_keys.length;
  return h('div', { id: `parked-${group.name}` }, h('h3', {}, 'Parked keys'), table('Keys whose events wait, and why', [
    { label: 'Key', cell: (k) => h('span', { class: 'mono' }, k.key) },
    { label: 'Waits for', whole: true, cell: (k) => (k.waits_for != null ? `version ${k.waits_for}` : none) },
    { label: 'Events waiting', number: true, cell: (k) => [count(k.events), k.first_event ? [', from ', traceLink(k.first_event, `v${k.first_parked}`)] : null] },
    { label: 'Since', number: true, cell: (k) => age(k.since, doc.now) },
    { label: 'Why', cell: (k) => k.why },
  ], rows, (k) => k.key), all,
    more > 0 ? h('p', { class: 'quiet' }, `and ${count(more)} more`) : null);
}

function verified(group, doc) {
  if (!group.verify?.length) return null;
  const differ = (t) => Object.entries(t.differences ?? {}).filter(([, n]) => n > 0).map(([kind, n]) => `${count(n)} ${kind}`).join(', ');
  return h('div', {}, h('h3', {}, 'Compared with the source'), table('Tables that are compared with their source', [
    { label: 'Projection', whole: true, cell: (t) => t.projection },
    { label: 'Rows', number: true, cell: (t) => count(t.rows) },
    { label: 'Differ', cell: (t) => (differ(t) ? h('span', { class: 'pill warning' }, differ(t)) : 'none known') },
    { label: 'All compared', number: true, cell: (t) => (t.passed_at ? age(t.passed_at, doc.now) : 'not yet') },
    { label: 'Under way', number: true, cell: (t) => (t.began_at ? `${count(t.pass_rows)} rows` : none) },
    { label: 'Last error', cell: (t) => t.last_error || none },
  ], group.verify, (t) => `verify-${t.backfill}-${t.projection}`));
}

function offset(group, doc) {
  const o = group.offset;
  if (!o) return h('p', { class: 'quiet' }, 'No offset has been saved yet.');
  return h('p', {}, 'Offset: message ', h('span', { class: 'mono' }, o.message_id), ', published ', age(o.publish_time, doc.now),
    ', saved ', age(o.updated_at, doc.now), o.updated_by ? ` by ${o.updated_by}` : '',
    `. Epoch ${group.epoch}, generation ${group.generation}, slot ${group.slot}.`);
}

function history(group, doc) {
  const epochs = group.history ?? [], checkpoints = group.checkpoints ?? [];
  return h('details', { 'data-key': `${group.name}-history` },
    h('summary', {}, `Epochs and checkpoints (${epochs.length + checkpoints.length})`),
    offset(group, doc),
    epochs.length ? table('What operators did', [
      { label: 'When', whole: true, cell: (e) => age(e.at, doc.now) },
      { label: 'What', cell: (e) => e.action },
      { label: 'Who', cell: (e) => (e.role ? `${e.operator} (${e.role})` : e.operator) },
      { label: 'Why', cell: (e) => e.reason || none },
      { label: 'Change', cell: (e) => e.change || none },
    ], epochs, (e) => `audit-${e.id}`) : h('p', { class: 'quiet' }, 'No reset, no rebuild so far.'),
    checkpoints.length ? table('Checkpoints', [
      { label: 'Checkpoint', cell: (c) => c.number },
      { label: 'Snapshot', cell: (c) => h('span', { class: 'mono' }, c.snapshot) },
      { label: 'Taken', whole: true, cell: (c) => age(c.taken_at, doc.now) },
      { label: 'Epoch', number: true, cell: (c) => c.epoch },
    ], checkpoints, (c) => `checkpoint-${c.number}`) : h('p', { class: 'quiet' }, 'No checkpoint so far.'));
}

export function groupCard(group, doc, redraw) {
  return h('section', { class: 'card', id: `group-${group.name}`, 'data-key': `group-${group.name}`, 'aria-label': `Group ${group.name}` },
    h('div', { class: 'head' }, h('h2', {}, h('span', { class: 'kind' }, 'Group '), group.name),
      h('span', { class: `pill ${groupMood(group)}` }, group.state),
      h('span', { class: 'quiet' }, group.subscription)),
    group.detail ? h('p', {}, group.detail) : null,
    tiles(group, doc), charts(group, doc, redraw), parked(group, doc, redraw), deadLetters(group, doc, redraw),
    verified(group, doc), lanes(group, doc, redraw), stages(group), history(group, doc));
}
