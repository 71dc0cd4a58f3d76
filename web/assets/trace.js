// Where is my event? An id or a key is looked for in what this process knows. A link opens it
// (#trace=EVENT_ID, #key=KEY), so it can be sent to somebody.

import { command, h, none, say, table } from './dom.js';
import { age, duration } from './format.js';

const kId = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const kLongest = 500;
let shown = '', isId = false, answer = null, ofKey = null, fault = '';

// Nothing else gets into a command that somebody may copy; a key gets there quoted.
function wanted() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const id = hash.get('trace') ?? '', key = hash.get('key') ?? '';
  if (kId.test(id)) return [id, true];
  return /[\u0000-\u001f\u007f]/.test(key) || key.length > kLongest ? ['', false] : [key, false];
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function traceLink(id, text = id) {
  return h('a', { class: 'mono', href: `#trace=${id}`, title: `Follow event ${id}` }, text);
}

// The box. A UUID may be an event's id or its aggregate's: both are looked for.
export function findBox(doc) {
  if (doc.role === 'orchestrator') return null;
  const find = (event) => {
    event.preventDefault();
    const text = event.currentTarget.elements.event.value.trim();
    if (!text) return;
    const hash = kId.test(text) ? `#trace=${text.toLowerCase()}` : `#key=${encodeURIComponent(text)}`;
    if (location.hash === hash) dispatchEvent(new HashChangeEvent('hashchange'));
    else location.hash = hash;
  };
  return h('form', { class: 'find', role: 'search', 'data-key': 'find', onsubmit: find },
    h('label', { for: 'find-event' }, 'Where is my event?'),
    h('input', { id: 'find-event', name: 'event', type: 'search', maxlength: kLongest, autocomplete: 'off', spellcheck: 'false', placeholder: 'event id, or key: video/42' }),
    h('button', { type: 'submit' }, 'Find'));
}

async function ask(query) {
  const reply = await fetch(`api/trace?${query}`, { cache: 'no-store', signal: AbortSignal.timeout(10000) });
  if (!reply.ok) throw new Error((await reply.text()).trim() || `status ${reply.status}`);
  return reply.json();
}

export async function follow(doc, redraw) {
  const [text, id] = wanted();
  const opened = text !== shown || id !== isId;
  if (opened) [shown, isId, answer, ofKey, fault] = [text, id, null, null, ''];
  redraw();
  const card = document.getElementById('trace');
  if (!card) return;
  if (opened) {
    card.scrollIntoView({ block: 'start' });
    card.focus({ preventScroll: true });
  }
  if (doc?.role !== 'runner') return;  // a publisher can say no more than its page does
  let told = null, key = null, wrong = '';
  try {
    if (id) told = await ask(`event=${text}`);
    if (!id || told.groups.every((g) => !g.fate)) key = await ask(`key=${encodeURIComponent(text)}`);
  } catch (error) {
    wrong = error instanceof TypeError || error.name === 'TimeoutError' ? 'This process does not answer.' : error.message;
  }
  if (text !== shown || id !== isId) return;  // another one was opened meanwhile
  [answer, ofKey, fault] = [told, key, wrong];
  redraw();
  say(wrong || (told ? told.groups.map((g) => `${g.group}: ${g.verdict}`) : key.groups.map((g) => `${g.group}: ${inWords(g)}`)).join('; '));
}

function commands(doc) {
  if (isId && doc.role === 'publisher') return [`lockstepctl trace ${shown} --source '${doc.database?.address ?? ''}'`];
  const schema = doc.ctl_schema ? ` --schema '${doc.ctl_schema}'` : '';
  if (isId) return [`${doc.ctl} trace ${shown}${schema} --source 'postgresql://…'`];
  if (doc.role === 'publisher') return (doc.outboxes ?? []).slice(0, 5).map((o) => `${doc.ctl} outbox list ${quoted(o.table)} --key ${quoted(shown.split('/').at(-1))}`);
  return (doc.groups ?? []).slice(0, 5).map((g) => `${doc.ctl} parked show ${quoted(shown)} --group ${quoted(g.name)}${schema}`);
}

// One station of the way: its name, when, and what happened there.
function station(name, mood, at, doc, ...words) {
  return h('li', { class: mood || null }, h('b', {}, name), ' ', at ? h('span', { class: 'quiet' }, age(at, doc.now), ' ', h('time', { datetime: at }, at.replace(/^.*T|\.\d+|Z$/g, ''))) : null,
    words.flat().filter(Boolean).length ? h('span', { class: 'words' }, words) : null);
}

const kEnds = { applied: 'written', settled: 'its version has found its end', superseded: 'a newer version was there', ignored: 'this group ignores events of this type' };

function way(g, doc) {
  const apart = g.published_at && g.received_at ? `${duration(Math.max(0, Date.parse(g.received_at) - Date.parse(g.published_at)))} after it was published` : '';
  const stands = g.settled_version != null ? `its aggregate stands at version ${g.settled_version}` : '';
  return h('div', { 'data-key': g.group }, h('h3', {}, 'Group ', g.group, ' ', g.fate ? h('span', { class: `pill ${{ applied: 'good', settled: 'good', parked: 'warning', dead: 'bad' }[g.fate] ?? ''}` }, g.fate) : null),
    h('p', {}, g.verdict, g.reason ? `: ${g.reason}` : ''),
    h('ol', { class: 'way' },
      station('Inbox', g.received_at ? 'done' : '', g.received_at, doc, g.received_at ? apart : 'not received'),
      station('Parking', g.fate === 'parked' ? 'waits' : g.parked_at ? 'done' : '', g.parked_at, doc, g.fate === 'parked' ? 'waits here' : g.parked_at ? '' : 'does not wait here'),
      station('Dead letters', g.fate === 'dead' ? 'bad' : g.dead_at ? 'done' : '', g.dead_at, doc, g.dead_letter != null ? `dead letter ${g.dead_letter}` : 'none',
        g.resolved_at ? [', resolved ', age(g.resolved_at, doc.now)] : ''),
      station('Row', kEnds[g.fate] ? 'done' : '', null, doc, [kEnds[g.fate] ?? 'not written by it', stands].filter(Boolean).join('; '))));
}

function inWords(g) {
  const parts = [];
  if (g.keys.length) parts.push(g.keys.map((k) => (k.settled_version != null ? `${k.aggregate} stands at version ${k.settled_version}` : `${k.aggregate} is known`)).join(', '));
  if (g.parked.length) parts.push(g.parked.length === 1 ? '1 event waits' : `${g.parked.length}${g.parked.length >= 50 ? ' or more' : ''} events wait`);
  if (g.dead.length) parts.push(g.dead.length === 1 ? '1 dead letter' : `${g.dead.length}${g.dead.length >= 50 ? ' or more' : ''} dead letters`);
  return parts.join('; ') || 'nothing waits or has died under this key. An aggregate is written as type/id; events that were applied are found by their id';
}

function keyWay(g, doc) {
  const rows = [...g.parked.map((e) => ({ ...e, place: 'parking', at: e.parked_at })), ...g.dead.map((e) => ({ ...e, place: 'dead letters', at: e.dead_at }))]
    .sort((a, b) => (a.version ?? 0) - (b.version ?? 0));
  return h('div', { 'data-key': g.group }, h('h3', {}, 'Group ', g.group), h('p', {}, inWords(g), '.'),
    rows.length ? table(`Events of this key in group ${g.group}`, [
      { label: 'Version', whole: true, cell: (e) => e.version ?? none },
      { label: 'Event', cell: (e) => [e.event_type || 'unreadable', ' ', e.event_id ? traceLink(e.event_id) : null] },
      { label: 'Where', whole: true, cell: (e) => h('span', { class: `pill ${e.place === 'parking' ? 'warning' : e.resolved_at ? '' : 'bad'}` }, e.resolved_at ? e.state : e.place) },
      { label: 'Since', number: true, cell: (e) => age(e.at, doc.now) },
      { label: 'Why', cell: (e) => (e.code ? `${e.code} ${e.reason ?? ''}` : e.reason === 'gap' ? 'an earlier version has not come' : 'an earlier version is a dead letter') },
    ], rows, (e) => `${e.place}-${e.event_id ?? e.id}`) : null);
}

export function traceCard(doc, redraw) {
  if (!shown) return null;
  const place = answer?.aggregate ? `${answer.aggregate}${answer.version != null ? ` v${answer.version}` : ''}` : '';
  const what = isId ? 'Event' : 'Key';
  return h('section', { class: 'card', id: 'trace', tabindex: -1, 'data-key': 'trace', 'aria-label': `${what} ${shown}` },
    h('div', { class: 'head' }, h('h2', {}, h('span', { class: 'kind' }, `${what} `), h('span', { class: 'mono' }, shown)),
      place ? h('span', { class: 'mono quiet' }, place) : null,
      doc.role === 'runner' ? h('button', { type: 'button', onclick: () => follow(doc, redraw) }, 'Look again') : null,
      h('a', { href: '#main' }, 'Close')),
    fault ? h('p', { class: 'reason' }, fault) : null,
    answer ? answer.groups.map((g) => way(g, doc)) : null,
    ofKey && !(answer && ofKey.groups.every((g) => !g.keys.length && !g.parked.length && !g.dead.length)) ? [isId ? h('p', { class: 'quiet' }, 'As a key:') : null, ofKey.groups.map((g) => keyWay(g, doc))] : null,
    h('p', { class: 'quiet' }, doc.role === 'publisher' ? 'The whole way, with the consumer\'s --config beside it' : isId ? 'The whole way, with its outbox row and the row of the read model' : 'What waits, version by version'),
    commands(doc).map((text) => command(text)));
}
