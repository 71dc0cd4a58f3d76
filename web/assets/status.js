// Polls api/status and draws it. Reads only; the server keeps the history, so a page that was just
// opened shows the last minutes too.

import { h, command, patchChildren, table } from './dom.js';
import { age, duration } from './format.js';
import { outboxCard } from './publisher_view.js';
import { groupCard } from './runner_view.js';

const kPollMs = 2000;
let doc = null, paused = false, lostSince = null, told = '', timer = 0;

const kWords = { bad: 'Stopped', warning: 'Look at this', info: 'For your information' };

function attention() {
  const notes = doc.attention ?? [];
  return h('section', { class: 'card', 'data-key': 'attention', 'aria-label': 'What needs attention' },
    h('div', { class: 'head' }, h('h2', {}, 'What needs attention')),
    notes.length === 0 ? h('div', { class: 'note good', 'data-key': 'fine' }, h('p', {}, 'Nothing. Everything that arrives is being worked on.')) : null,
    notes.map((note) => h('article', { class: `note ${note.severity}`, 'data-key': note.title },
      h('h3', {}, h('span', { class: 'unseen' }, `${kWords[note.severity] ?? ''}: `), note.title),
      h('p', {}, note.detail),
      note.commands?.length ? h('p', { class: 'next' }, 'What to type next') : null,
      (note.commands ?? []).map(command))));
}

function configuration() {
  return h('section', { class: 'card', 'data-key': 'configuration', 'aria-label': 'Configuration' },
    h('details', { 'data-key': 'config', style: 'margin:0' }, h('summary', {}, 'Configuration'),
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
    : paused ? h('span', { class: 'pill', 'data-key': 'fresh' }, 'Paused') : null;
  return [
    h('div', { class: 'grow', 'data-key': 'title' }, h('h1', {}, `Lockstep ${doc.role}`),
      h('p', { class: 'quiet' }, `${doc.instance} · version ${doc.version} · started `, age(doc.started_at, doc.now)),
      ...(doc.reasons ?? []).map((reason) => h('p', { class: 'quiet' }, `Not ready: ${reason}`))),
    ready, fresh,
    h('button', { type: 'button', 'data-key': 'pause', 'aria-pressed': paused, onclick: togglePause }, paused ? 'Go on' : 'Pause'),
  ].filter(Boolean);
}

function draw() {
  if (!doc) return;
  document.title = `${doc.attention?.length ? `(${doc.attention.length}) ` : ''}Lockstep ${doc.role}`;
  document.body.classList.toggle('lost', lostSince !== null);
  patchChildren(document.getElementById('header'), header());
  patchChildren(document.getElementById('main'), [
    attention(),
    ...(doc.groups ?? []).map((group) => groupCard(group, doc, draw)),
    ...(doc.outboxes ?? []).map((outbox) => outboxCard(outbox, doc, draw)),
    configuration(),
  ]);
  announce();
}

// A screen reader hears of changes in what needs attention, not of every number.
function announce() {
  const notes = doc.attention ?? [];
  const text = lostSince ? 'The process does not answer.'
    : notes.length ? `${notes.length} need attention: ${notes.map((n) => n.title).join('; ')}` : 'Nothing needs attention.';
  if (text === told) return;
  told = text;
  document.getElementById('announcer').textContent = text;
}

function togglePause() {
  paused = !paused;
  if (!paused) poll();
  draw();
}

async function poll() {
  clearTimeout(timer);
  if (paused) return;
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
}

addEventListener('resize', draw);
document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
poll().then(draw);  // a second time: charts now know their width
