// An outbox table: its backlog and rate, shards, topics out of reach and dead rows.

import { chart } from './chart.js';
import { h, none, shortened, table, tile } from './dom.js';
import { age, count, duration, rate } from './format.js';
import { traceLink } from './trace.js';

const kMood = { relaying: 'good', quiet: 'good', standby: '', starting: '', 'out of reach': 'warning', stuck: 'bad', off: 'warning' };
export const outboxMood = (outbox) => kMood[outbox.state] ?? '';

function drainedIn(outbox) {
  if (!outbox.pending) return ['empty', ''];
  if (outbox.eta_seconds === null || outbox.eta_seconds === undefined) return ['not yet', 'backlog is not shrinking'];
  return [duration(outbox.eta_seconds * 1000), 'at the present rate'];
}

function tiles(outbox) {
  const [drained, why] = drainedIn(outbox);
  return h('dl', { class: 'tiles' },
    tile('Pending', count(outbox.pending), `${count(outbox.locked)} in hand`),
    tile('Oldest pending', outbox.pending > 0 ? duration(outbox.oldest_ms) : none, '', outbox.oldest_ms > 60000 ? 'warning' : ''),
    tile('Rate', rate(outbox.rate), `${count(outbox.counters?.published)} rows published`),
    tile('Drained in', drained, why),
    tile('Dead rows', count(outbox.dead), `${count(outbox.quarantined)} quarantined`, outbox.dead > 0 ? 'warning' : ''),
    tile('Shards', `${count(outbox.shards_held)} of ${count(outbox.shards)}`, 'held by this instance'));
}

// Processes that began: a deploy.
function marks(doc) {
  const begun = (doc.instances ?? []).map((i) => ({ t: Date.parse(i.started_at), text: `${i.instance} began${i.version ? `, version ${i.version}` : ''}` }));
  if (!begun.length && doc.started_at) begun.push({ t: Date.parse(doc.started_at), text: 'this process began' });
  return begun.sort((a, b) => a.t - b.t);
}

// One that nothing was ever sent to is not known to be there.
function reached(outage, last) {
  const [word, mood] = outage ? ['out of reach', 'bad'] : last ? ['reached', 'good'] : ['nothing sent yet', ''];
  return h('span', { class: `pill ${mood}` }, word);
}

function charts(outbox, doc, redraw) {
  const history = doc.history?.outboxes?.[outbox.table] ?? {};
  const common = { at: doc.history?.at ?? [], longest: doc.history?.span_ms ?? 3600000, marks: marks(doc), redraw };
  return h('div', { class: 'charts' },
    chart({ ...common, id: `${outbox.table}-pending`, title: 'Rows pending', values: history.pending ?? [], show: count, least: 10 }),
    chart({ ...common, id: `${outbox.table}-rate`, title: 'Rows published per second', values: history.rate ?? [], show: rate, least: 1 }));
}

function topics(outbox, doc, redraw) {
  if (!outbox.topics?.length) return null;
  const [rows, more] = shortened(`topics-${outbox.table}`, outbox.topics, redraw, 16);
  return h('div', {}, h('h3', {}, 'Topics'), table('Topics', [
    { label: 'Topic', cell: (t) => h('span', { class: 'mono' }, t.topic) },
    { label: 'State', whole: true, cell: (t) => reached(t.outage, t.last_publish_at) },
    { label: 'Published', number: true, cell: (t) => count(t.published) },
    { label: 'Last publish', number: true, cell: (t) => age(t.last_publish_at, doc.now) },
    { label: 'Why', cell: (t) => t.outage || none },
  ], rows, (t) => t.topic), more, routes(outbox, doc));
}

// Where a topic goes, if that is not one Pub/Sub topic.
function routes(outbox, doc) {
  const all = outbox.topics.flatMap((t) => (t.routes ?? []).map((r) => ({ ...r, topic: t.topic, alone: t.routes.length === 1 })));
  if (all.every((r) => r.alone && r.route.startsWith('bus:'))) return null;
  return h('div', {}, h('h3', {}, 'Routes'), table('Routes', [
    { label: 'Topic', cell: (r) => h('span', { class: 'mono' }, r.topic) },
    { label: 'Route', cell: (r) => h('span', { class: 'mono' }, r.route) },
    { label: 'State', whole: true, cell: (r) => reached(r.outage, r.last_taken_at) },
    { label: 'Taken', number: true, cell: (r) => count(r.taken) },
    { label: 'Last taken', number: true, cell: (r) => age(r.last_taken_at, doc.now) },
    { label: 'Why', cell: (r) => r.outage || none },
  ], all, (r) => `${r.topic} ${r.route}`));
}

function deadRows(outbox, doc, redraw) {
  if (!outbox.dead_rows?.length) return null;
  const [rows, all] = shortened(`dead-${outbox.table}`, outbox.dead_rows, redraw);
  const more = outbox.dead - outbox.dead_rows.length;
  return h('div', {}, h('h3', {}, 'Dead rows'), table('Rows that could not be published', [
    { label: 'Sequence', whole: true, cell: (d) => d.sequence },
    { label: 'Event', cell: (d) => [d.event_type, ' ', traceLink(d.event_id)] },
    { label: 'Key, version', cell: (d) => h('span', { class: 'mono' }, `${d.aggregate_id} v${d.version}`) },
    { label: 'Reason', cell: (d) => [h('span', { class: 'mono' }, d.code), ' ', d.reason] },
    { label: 'Tries', number: true, cell: (d) => count(d.attempts) },
    { label: 'Held behind it', number: true, cell: (d) => count(d.held) },
    { label: 'Died', number: true, cell: (d) => age(d.dead_at, doc.now) },
  ], rows, (d) => `dead-${d.sequence}`), all,
    more > 0 ? h('p', { class: 'quiet' }, `and ${count(more)} more`) : null);
}

const kBackfillMood = { running: 'good', paused: '', failed: 'bad' };

function share(backfill) {
  if (!backfill.rows_expected) return `${count(backfill.rows_done)} rows`;
  const percent = Math.min(99, Math.floor((100 * backfill.rows_done) / backfill.rows_expected));
  return `${count(backfill.rows_done)} of about ${count(backfill.rows_expected)} (${percent}%)`;
}

function backfills(outbox, doc) {
  if (!outbox.backfills?.length) return null;
  return h('div', {}, h('h3', {}, 'Backfills'), table('Backfills that have not ended', [
    { label: 'Backfill', cell: (b) => [b.repair ? `${b.backfill} (repair)` : b.backfill, ' ', h('span', { class: 'mono quiet' }, b.id)] },
    { label: 'State', whole: true, cell: (b) => h('span', { class: `pill ${kBackfillMood[b.state] ?? ''}` }, b.state) },
    { label: 'Sent', number: true, cell: (b) => share(b) },
    { label: 'At it', cell: (b) => b.worker || none },
    { label: 'Last progress', number: true, cell: (b) => age(b.progress_at, doc.now) },
    { label: 'Why', cell: (b) => b.last_error || none },
  ], outbox.backfills, (b) => b.id));
}

export function outboxCard(outbox, doc, redraw) {
  return h('section', { class: 'card', id: `outbox-${outbox.table}`, 'data-key': `outbox-${outbox.table}`, 'aria-label': `Outbox ${outbox.table}` },
    h('div', { class: 'head' }, h('h2', {}, h('span', { class: 'kind' }, 'Outbox '), outbox.table),
      h('span', { class: `pill ${outboxMood(outbox)}` }, outbox.state),
      h('span', { class: 'quiet' }, outbox.last_publish_at ? ['last publish ', age(outbox.last_publish_at, doc.now)] : 'nothing published yet')),
    outbox.detail ? h('p', {}, outbox.detail) : null,
    tiles(outbox), charts(outbox, doc, redraw), topics(outbox, doc, redraw), backfills(outbox, doc), deadRows(outbox, doc, redraw));
}
