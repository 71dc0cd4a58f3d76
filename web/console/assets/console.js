// The whole as one picture: what each instance says, put together by lockstepctl console. Polls
// api/console and draws it. Reads only.

import { h, none, patchChildren, say, table } from './dom.js';
import { age, count, duration, rate } from './format.js';

const kPollMs = 2000;
const kMood = { running: 'good', quiet: 'good', relaying: 'good', standby: '', starting: '', behind: 'warning', seeking: 'warning', paused: 'warning', retrying: 'warning', 'no heartbeat': 'warning', 'out of reach': 'bad', off: 'warning', stuck: 'bad', halted: 'bad', waiting: 'bad', 'no stream': 'bad' };
const mood = (part) => kMood[part.state] ?? '';
let doc = null, lostSince = null, told = '', timer = 0;

const join = (...words) => words.filter((word) => word && !word.startsWith(none)).join(' · ');
const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

function sourceBox(s) {
  return h('li', { class: `box ${mood(s)}`, 'data-key': s.key, 'data-source': s.key }, h('b', {}, s.table), ' ', h('span', { class: `pill ${mood(s)}` }, s.state ?? 'not known'),
    h('span', { class: 'numbers' }, join(`${count(s.pending)} pending`, s.pending > 0 ? `oldest ${duration(s.oldest_ms)}` : '', rate(s.rate), s.dead > 0 ? `${count(s.dead)} dead` : '')),
    h('span', { class: 'quiet' }, `${s.database} · ${plural(s.publishers, 'publisher')}`),
    h('span', { class: 'quiet link' }, s.to.length ? `to ${s.to.map((to) => nameOf(to)).join(', ')}` : 'to no topic yet'));
}

const nameOf = (key) => doc.topics.find((t) => t.key === key)?.name ?? key;

function topicBox(t) {
  const readers = doc.groups.filter((g) => g.topic === t.key), writers = doc.sources.filter((s) => s.to.includes(t.key));
  return h('li', { class: `box ${t.outage ? 'bad' : t.published > 0 ? 'good' : ''}`, 'data-key': t.key, 'data-topic': t.key }, h('b', {}, t.name), ' ',
    t.outage ? h('span', { class: 'pill bad' }, 'out of reach') : null,
    h('span', { class: 'numbers' }, t.published != null ? `${count(t.published)} published since the publishers began` : 'no publisher here'),
    t.kind === 'pubsub' && t.name !== t.key ? h('span', { class: 'quiet' }, t.key) : null,
    t.outage ? h('span', { class: 'reason' }, t.outage) : null,
    t.kind === 'pubsub' && !readers.length ? h('span', { class: 'quiet' }, 'no group here reads it') : null,
    h('span', { class: 'quiet link' }, join(writers.length ? `from ${writers.map((s) => s.table).join(', ')}` : '', readers.length ? `to ${readers.map((g) => g.name).join(', ')}` : '')));
}

function groupBox(g) {
  return h('li', { class: `box ${g.late ? 'bad' : mood(g)}`, 'data-key': g.key, 'data-group': g.key }, h('b', {}, g.name), ' ', h('span', { class: `pill ${mood(g)}` }, g.state ?? 'not known'),
    h('span', { class: 'numbers' }, join(g.lag_ms == null ? '' : g.lag_ms < 1000 ? 'caught up' : `${duration(g.lag_ms)} behind`, rate(g.rate), g.parked > 0 ? `${count(g.parked)} parked` : '', g.dead > 0 ? `${count(g.dead)} dead` : '')),
    h('span', { class: 'quiet' }, `${g.database} · ${plural(g.runners, 'runner')}`),
    h('span', { class: 'quiet link' }, g.topic ? `from ${nameOf(g.topic)}` : 'from a topic that its runner does not know'));
}

function picture() {
  if (!doc.sources.length && !doc.groups.length) return null;
  const column = (name, boxes, empty) => h('div', { 'data-key': name }, h('h3', {}, name), boxes.length ? h('ul', { 'aria-label': name }, boxes) : h('p', { class: 'quiet' }, empty));
  return h('section', { class: 'card', 'data-key': 'picture', 'aria-label': 'From source to group' }, h('div', { class: 'head' }, h('h2', {}, 'From source to group')),
    h('div', { class: 'picture', id: 'picture', 'data-key': 'boxes' },
      column('Sources', doc.sources.map(sourceBox), 'No publisher answers.'), column('Topics', doc.topics.map(topicBox), 'None is known.'), column('Groups', doc.groups.map(groupBox), 'No runner answers.')));
}

// Lines between the boxes, where they stand after the browser has laid them out.
function drawLines() {
  const at = document.getElementById('picture');
  if (!at) return;
  const frame = at.getBoundingClientRect();
  const end = (selector, key, side) => {
    const box = at.querySelector(`[data-${selector}="${CSS.escape(key)}"]`)?.getBoundingClientRect();
    return box ? [(side === 'right' ? box.right : box.left) - frame.left, box.top + Math.min(box.height / 2, 40) - frame.top] : null;
  };
  const line = (from, to, bad) => {
    if (!from || !to) return null;
    const middle = (from[0] + to[0]) / 2;
    return h('path', { class: bad ? 'flow bad' : 'flow', d: `M${from.join(' ')}C${middle} ${from[1]} ${middle} ${to[1]} ${to.join(' ')}` });
  };
  const out = new Set(doc.topics.filter((t) => t.outage).map((t) => t.key));
  const lines = [
    ...doc.sources.flatMap((s) => s.to.map((to) => line(end('source', s.key, 'right'), end('topic', to, 'left'), out.has(to)))),
    ...doc.groups.filter((g) => g.topic).map((g) => line(end('topic', g.topic, 'right'), end('group', g.key, 'left'), mood(g) === 'bad'))];
  at.querySelector('svg')?.remove();
  at.append(h('svg', { 'aria-hidden': 'true', viewBox: `0 0 ${frame.width} ${frame.height}` }, lines));
}

function attention() {
  const notes = doc.attention;
  const silent = doc.instances.filter((i) => !i.answers && i.since);
  if (!notes.length && !silent.length) return h('section', { class: 'card', 'data-key': 'attention', 'aria-label': 'What needs attention' }, h('div', { class: 'note good' }, h('p', {}, 'Nothing. Everything that arrives is being worked on.')));
  return h('section', { class: 'card', 'data-key': 'attention', 'aria-label': 'What needs attention' }, h('div', { class: 'head' }, h('h2', {}, 'What needs attention')),
    silent.length ? h('article', { class: 'note bad', 'data-key': 'silent' }, h('h3', {}, silent.length === 1 ? `${called(silent[0])} does not answer` : `${silent.length} instances do not answer`),
      h('p', {}, silent.length === 1 ? silent[0].fault : 'They are below, with since when and why.')) : null,
    notes.slice(0, 8).map((n) => h('article', { class: `note ${n.severity}`, 'data-key': n.title }, h('h3', {}, n.title), ' ', link(n.address, 'its page'))),
    notes.length > 8 ? h('details', { 'data-key': 'rest' }, h('summary', {}, `and ${notes.length - 8} more`), notes.slice(8).map((n) => h('article', { class: `note ${n.severity}`, 'data-key': n.title }, h('h3', {}, n.title), ' ', link(n.address, 'its page')))) : null);
}

const called = (i) => i.instance || i.address;

// An address comes from a database: only what the server has read as http(s) becomes a link.
function link(address, text = address) {
  const known = doc.instances.find((i) => i.address === address);
  return known?.reachable_address && /^https?:\/\//.test(address) ? h('a', { href: address, rel: 'noreferrer' }, text) : h('span', { class: 'mono' }, text);
}

function instances() {
  return h('section', { class: 'card', 'data-key': 'instances', 'aria-label': 'Instances' }, h('div', { class: 'head' }, h('h2', {}, 'Instances')),
    doc.instances.length ? table('Instances', [
      { label: 'What', whole: true, cell: (i) => i.role || none },
      { label: 'Instance', cell: (i) => i.instance || none },
      { label: 'Page', whole: true, cell: (i) => (i.address ? link(i.address) : none) },
      { label: 'State', cell: (i) => (i.answers ? h('span', { class: `pill ${i.ready ? 'good' : 'bad'}` }, i.ready ? 'ready' : 'not ready')
        : i.since ? [h('span', { class: 'pill bad' }, 'does not answer'), ' since ', age(i.since, doc.now), i.answered_at ? '' : ', never did', i.seen_at ? [', last seen in its database ', age(i.seen_at, doc.now)] : '', h('span', { class: 'reason' }, ` ${i.fault}`)]
          : h('span', { class: 'pill' }, 'not asked yet')) },
      { label: 'Version', whole: true, cell: (i) => i.version || none },
      { label: 'Began', number: true, cell: (i) => age(i.started_at, doc.now) },
      { label: 'Found in', cell: (i) => i.found_in || 'named' },
    ], doc.instances, (i) => `${i.address} ${i.found_in} ${i.found_in ? i.instance : ''}`) : h('p', { class: 'quiet' }, 'None is known yet.'),
    doc.left_out > 0 ? h('p', { class: 'reason' }, `${count(doc.left_out)} more are left out: the console asks 200 at most.`) : null,
    (doc.databases ?? []).map((d) => h('p', { class: d.error ? 'reason' : 'quiet', 'data-key': d.address }, d.error ? `${d.address}: ${d.error}` : `${plural(d.found, 'instance')} found in ${d.address}`)));
}

function sagas() {
  if (!doc.sagas.length) return null;
  return h('section', { class: 'card', 'data-key': 'sagas', 'aria-label': 'Sagas' }, h('div', { class: 'head' }, h('h2', {}, 'Sagas')), table('Sagas by definition', [
    { label: 'Definition', cell: (s) => s.definition },
    { label: 'Running', number: true, cell: (s) => count(s.running) },
    { label: 'Compensating', number: true, cell: (s) => count(s.compensating) },
    { label: 'Paused', number: true, cell: (s) => count(s.paused) },
    { label: 'Dead', number: true, cell: (s) => count(s.dead) },
    { label: 'Ended', number: true, cell: (s) => rate(s.rate) },
  ], doc.sagas));
}

function draw() {
  if (!doc) return;
  const silent = doc.instances.filter((i) => !i.answers && i.since).length, all = doc.instances.length;
  document.title = `${doc.attention.length + silent ? `(${doc.attention.length + silent}) ` : ''}Lockstep console`;
  document.body.classList.toggle('lost', lostSince !== null);
  patchChildren(document.getElementById('header'), [
    h('div', { class: 'grow', 'data-key': 'title' }, h('h1', {}, 'Lockstep console'), h('p', { class: 'quiet' }, `${all - silent} of ${plural(all, 'instance')} answer`)),
    lostSince ? h('span', { class: 'pill bad', 'data-key': 'fresh' }, `No answer for ${duration(Date.now() - lostSince)}`) : null].filter(Boolean));
  patchChildren(document.getElementById('main'), [picture(), attention(), sagas(), instances()].filter(Boolean));
  drawLines();
  const text = lostSince ? 'The console does not answer.' : `${silent} of ${all} instances do not answer; ${doc.attention.length} things need attention.`;
  if (text !== told) say(told = text);
}

async function poll() {
  clearTimeout(timer);
  try {
    const answer = await fetch('api/console', { cache: 'no-store', signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    doc = await answer.json();
    lostSince = null;
  } catch {
    lostSince ??= Date.now();
    if (!doc) document.getElementById('main').textContent = 'The console does not answer yet. Trying again …';
  }
  draw();
  timer = setTimeout(poll, kPollMs);
}

addEventListener('resize', draw);
document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
poll();
