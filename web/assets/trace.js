// One event, followed. A link opens it (#trace=EVENT_ID), so it can be sent to somebody.

import { command, h, say, table } from './dom.js';
import { age } from './format.js';

const kMood = { applied: 'good', superseded: '', ignored: '', parked: 'warning', dead: 'bad', discarded: '' };
let shown = '', answer = null, fault = '';

// Nothing else gets into a command that somebody may copy.
function wanted() {
  const id = new URLSearchParams(location.hash.slice(1)).get('trace') ?? '';
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id) ? id : '';
}

export function traceLink(id, text = id) {
  return h('a', { class: 'mono', href: `#trace=${id}`, title: `Follow event ${id}` }, text);
}

export async function follow(doc, redraw) {
  const id = wanted();
  const opened = id !== shown;
  if (opened) [shown, answer, fault] = [id, null, ''];
  redraw();
  const card = document.getElementById('trace');
  if (!card) return;
  if (opened) {
    card.scrollIntoView({ block: 'start' });
    card.focus({ preventScroll: true });
  }
  if (doc?.role !== 'runner') return;  // a publisher can say no more than its page does
  let text = '', told = null;
  try {
    const reply = await fetch(`api/trace?event=${id}`, { cache: 'no-store', signal: AbortSignal.timeout(10000) });
    if (reply.ok) told = await reply.json();
    else text = await reply.text();
  } catch {
    text = 'This process does not answer.';
  }
  if (id !== shown) return;  // another one was opened meanwhile
  [answer, fault] = [told, text];
  redraw();
  say(told ? told.groups.map((g) => `${g.group}: ${g.verdict}`).join('; ') : text);
}

function commandFor(doc) {
  if (doc.role === 'publisher') return `lockstepctl trace ${shown} --source '${doc.database?.address ?? ''}'`;
  return `${doc.ctl} trace ${shown}${doc.ctl_schema ? ` --schema '${doc.ctl_schema}'` : ''} --source 'postgresql://…'`;
}

function groups(doc) {
  return table('What became of it in each group', [
    { label: 'Group', cell: (g) => g.group },
    { label: 'Fate', cell: (g) => [g.fate ? h('span', { class: `pill ${kMood[g.fate] ?? ''}` }, g.fate) : null,
      g.verdict === g.fate ? null : ` ${g.verdict}`, g.reason ? `: ${g.reason}` : null] },
    { label: 'Received', number: true, cell: (g) => age(g.received_at, doc.now) },
    { label: 'Parked', number: true, cell: (g) => age(g.parked_at, doc.now) },
    { label: 'Died', number: true, cell: (g) => age(g.dead_at, doc.now) },
    { label: 'Resolved', number: true, cell: (g) => age(g.resolved_at, doc.now) },
  ], answer.groups, (g) => g.group);
}

export function traceCard(doc, redraw) {
  if (!shown) return null;
  const place = answer?.aggregate ? `${answer.aggregate}${answer.version != null ? ` v${answer.version}` : ''}` : '';
  return h('section', { class: 'card', id: 'trace', tabindex: -1, 'data-key': 'trace', 'aria-label': `Event ${shown}` },
    h('div', { class: 'head' }, h('h2', {}, h('span', { class: 'kind' }, 'Event '), h('span', { class: 'mono' }, shown)),
      place ? h('span', { class: 'mono quiet' }, place) : null,
      doc.role === 'runner' ? h('button', { type: 'button', onclick: () => follow(doc, redraw) }, 'Look again') : null,
      h('a', { href: '#main' }, 'Close')),
    fault ? h('p', { class: 'reason' }, fault) : null,
    answer ? groups(doc) : null,
    h('p', { class: 'quiet' }, doc.role === 'publisher' ? 'The whole way, with the consumer\'s --config beside it' : 'The whole way, with its outbox row and the row of the read model'),
    command(commandFor(doc)));
}
