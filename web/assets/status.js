// Polls api/status and draws it. Reads only; the server keeps the history, so a page that was just
// opened shows the last hour too.

import { h, none, patchChildren, say, table } from './dom.js';
import { age, count, duration, rate } from './format.js';
import { attention } from './notes.js';
import { outboxCard, outboxMood } from './publisher_view.js';
import { groupCard, groupMood } from './runner_view.js';
import { followSaga, sagaCard, sagasCard } from './saga_view.js';
import { findBox, follow, traceCard } from './trace.js';

const kPollMs = 2000;
let doc = null, frozen = false, lostSince = null, told = '', timer = 0;

// Each group and outbox in a word and its numbers, above all else: they stay on the first screen however much
// there is to tell, and lead to the rest.
function overview() {
  const parts = [
    ...(doc.groups ?? []).map((g) => ({ id: `group-${g.name}`, name: g.name, state: g.state, mood: groupMood(g), numbers: [
      g.lag_ms ? `${duration(g.lag_ms)} behind` : 'caught up', rate(g.rate), g.parked_keys_total > 0 ? `${count(g.parked_keys_total)} parked` : '', g.dead_letters_open > 0 ? `${count(g.dead_letters_open)} dead` : ''] })),
    ...(doc.outboxes ?? []).map((o) => ({ id: `outbox-${o.table}`, name: o.table, state: o.state, mood: outboxMood(o), numbers: [
      `${count(o.pending)} pending`, o.pending > 0 ? `oldest ${duration(o.oldest_ms)}` : '', rate(o.rate), o.dead > 0 ? `${count(o.dead)} dead` : ''] }))];
  if (!parts.length) return null;
  return h('nav', { class: 'overview', 'data-key': 'overview', 'aria-label': 'Groups and outboxes' }, h('ul', {}, parts.map((part) =>
    h('li', { 'data-key': part.id }, h('a', { href: `#${part.id}` }, part.name), ' ',
      h('span', { class: `pill ${part.mood}` }, part.state), ' ', h('span', { class: 'quiet' }, part.numbers.filter((n) => n && n !== none).join(' · '))))));
}

function configuration() {
  return h('section', { class: 'card', 'data-key': 'configuration', 'aria-label': 'Configuration' },
    h('details', { 'data-key': 'config' }, h('summary', {}, 'Configuration'),
      h('p', { class: 'quiet' }, 'What this process runs with now; secrets are masked.'),
      table('Configuration', [
        { label: 'Key', cell: (c) => h('span', { class: 'mono' }, c.key) },
        { label: 'Value', cell: (c) => [h('span', { class: 'mono' }, c.value),
          c.after_restart == null ? null : h('span', { class: 'pill warning' }, `after a restart: ${c.after_restart || 'gone'}`)] },
        { label: 'Default', cell: (c) => h('span', { class: 'mono quiet' }, c.value === c.default ? 'the default' : c.default || 'none') },
      ], doc.config ?? [], (c) => c.key)));
}

function header() {
  const ready = doc.ready
    ? h('span', { class: 'pill good live', 'data-key': 'ready' }, 'Ready')
    : h('span', { class: 'pill bad', 'data-key': 'ready' }, 'Not ready');
  const fresh = lostSince ? h('span', { class: 'pill bad', 'data-key': 'fresh' }, `No answer for ${duration(Date.now() - lostSince)}`)
    : frozen ? h('span', { class: 'pill', 'data-key': 'fresh' }, 'Frozen') : null;
  return [
    h('div', { class: 'grow', 'data-key': 'title' }, h('h1', {}, `Lockstep ${doc.role}`),
      h('p', { class: 'quiet' }, `${doc.instance} · version ${doc.version} · started `, age(doc.started_at, doc.now)),
      ...(doc.reasons ?? []).map((reason) => h('p', { class: 'reason' }, `Not ready: ${reason}`))),
    ready, fresh,
    h('button', { type: 'button', 'data-key': 'freeze', onclick: toggleFrozen }, frozen ? 'Follow again' : 'Freeze this page'),
  ].filter(Boolean);
}

function draw() {
  if (!doc) return;
  document.title = `${doc.attention?.length ? `(${doc.attention.length}) ` : ''}Lockstep ${doc.role}`;
  document.body.classList.toggle('lost', lostSince !== null);
  document.body.dataset.role = doc.role;
  patchChildren(document.getElementById('header'), header());
  patchChildren(document.getElementById('main'), [
    overview(),
    attention(doc),
    findBox(doc),
    traceCard(doc, draw),
    sagaCard(doc),
    sagasCard(doc),
    ...(doc.groups ?? []).map((group) => groupCard(group, doc, draw)),
    ...(doc.outboxes ?? []).map((outbox) => outboxCard(outbox, doc, draw)),
    configuration(),
  ].filter(Boolean));
  announce();
}

// A screen reader hears of changes in what needs attention, not of every number.
function announce() {
  const notes = doc.attention ?? [];
  const text = lostSince ? 'The process does not answer.'
    : notes.length ? `${notes.length === 1 ? 'One thing needs' : `${notes.length} things need`} attention: ${notes.map((n) => n.title).join('; ')}` : 'Nothing needs attention.';
  if (text === told) return;
  told = text;
  say(text);
}

// The page alone: the process goes on.
function toggleFrozen() {
  frozen = !frozen;
  if (!frozen) poll();
  draw();
}

async function poll() {
  clearTimeout(timer);
  if (frozen) return;
  try {
    const answer = await fetch('api/status', { cache: 'no-store', signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    doc = await answer.json();
    lostSince = null;
  } catch {
    lostSince ??= Date.now();
    if (!doc) document.getElementById('main').textContent = 'This process does not answer yet. Trying again …';
  }
  draw();
  timer = setTimeout(poll, kPollMs);
  if (!lostSince) followSaga(doc, draw);
}

addEventListener('resize', draw);
addEventListener('hashchange', () => { follow(doc, draw); followSaga(doc, draw); });
document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
poll().then(draw).then(() => follow(doc, draw));  // a second time: charts now know their width
