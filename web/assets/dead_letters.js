// The dead letters of a group: by cause, with a filter. No payload comes here.

import { h, none, shortened, table } from './dom.js';
import { age, count } from './format.js';
import { traceLink } from './trace.js';

const kFilter = 8;  // so few need no filter

// What the reader looks for, by group; survives redrawing.
const filters = new Map();
const causeOf = (letter) => `${letter.code} ${plain(letter.reason)}`;
// As the database groups them: numbers and ids differ from event to event.
const plain = (reason) => String(reason ?? '').replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+/g, '…');

function matches(letter, { text = '', cause = '' }) {
  if (cause && causeOf(letter) !== cause) return false;
  const all = [letter.id, letter.event_id, letter.message_id, letter.key, letter.ordering_key, letter.event_type, letter.code, letter.reason, letter.state];
  return text.toLowerCase().split(/\s+/).every((word) => all.some((field) => String(field ?? '').toLowerCase().includes(word)));
}

function causes(group, doc, filter, choose) {
  const all = group.dead_causes ?? [];
  if (all.length < 2 && !(all[0]?.count > 1)) return null;
  return h('ul', { class: 'causes', 'aria-label': 'By cause' }, all.map((one) => {
    const cause = `${one.code} ${one.reason}`, chosen = filter.cause === cause;
    return h('li', { 'data-key': cause }, h('button', { type: 'button', 'aria-pressed': String(chosen), onclick: () => choose({ cause: chosen ? '' : cause }) },
      h('b', {}, count(one.count)), ' ', h('span', { class: 'mono' }, one.code), ' ', one.reason,
      h('span', { class: 'quiet' }, ' last ', age(one.newest_at, doc.now))));
  }));
}

export function deadLetters(group, doc, redraw) {
  const letters = group.dead_letters ?? [];
  if (!letters.length) return null;
  const filter = filters.get(group.name) ?? {};
  const choose = (change) => { filters.set(group.name, { ...filters.get(group.name), ...change }); redraw(); };
  const found = letters.filter((letter) => matches(letter, filter));
  const looked = filter.text || filter.cause;
  const id = `filter-${group.name}`;
  const [rows, more] = shortened(`dead-${group.name}`, found, redraw);
  return h('div', { 'data-key': 'dead-letters' }, h('h3', {}, 'Dead letters'),
    causes(group, doc, filter, choose),
    letters.length > kFilter || looked ? h('p', { class: 'filter', 'data-key': 'filter' }, h('label', { for: id }, 'Filter '),
      h('input', { id, type: 'search', placeholder: 'key, event, type, reason …', oninput: (event) => choose({ text: event.currentTarget.value }) })) : null,
    table('Messages that could not be applied', [
      { label: 'Id', whole: true, cell: (d) => d.id },
      { label: 'Event', cell: (d) => [d.event_type || 'unreadable', ' ', d.event_id ? traceLink(d.event_id) : h('span', { class: 'mono quiet' }, d.message_id)] },
      { label: 'Key, version', cell: (d) => h('span', { class: 'mono' }, `${d.key ?? d.ordering_key}${d.version != null ? ` v${d.version}` : ''}`) },
      { label: 'Reason', cell: (d) => [d.state === 'quarantined' ? h('span', { class: 'pill warning' }, 'quarantined') : null, h('span', { class: 'mono' }, d.code), ' ', d.reason || none] },
      { label: 'Tries', number: true, cell: (d) => count(d.attempts) },
      { label: 'Died', number: true, cell: (d) => age(d.dead_at, doc.now) },
    ], rows, (d) => `dead-${d.id}`), more,
    h('p', { class: 'quiet' }, looked ? `${found.length} of ` : '', group.dead_letters_open > letters.length ? `the newest ${letters.length} of ${count(group.dead_letters_open)}` : `${count(letters.length)} in all`,
      '. Payloads are not shown here: lockstepctl dead-letters show ID --payload.'));
}
