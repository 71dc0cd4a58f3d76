// What needs attention. Notes of one kind come as one that holds them; what is not looked at stays folded,
// so that fifty poison keys take no more room than one.

import { command, h } from './dom.js';

const kOpen = 4;  // more kinds than this are folded
const kWords = { bad: 'Stopped', warning: 'Look at this', info: 'For your information' };

function steps(note, open) {
  if (!note.commands?.length) return null;
  return h('details', { class: 'next', 'data-key': 'next', open }, h('summary', {}, 'What to type next'),
    h(note.commands.length > 1 ? 'ol' : 'ul', { class: 'steps' }, note.commands.map((step) =>
      h('li', { 'data-key': step.command }, h('p', {}, step.what), command(step.command)))));
}

const title = (note) => h('h3', {}, h('span', { class: 'unseen' }, `${kWords[note.severity] ?? ''}: `), note.title);

function each(note) {
  if (!note.notes?.length) return null;
  return h('details', { class: 'each', 'data-key': 'each' }, h('summary', {}, `One by one (${note.notes.length})`),
    note.notes.map((one) => h('details', { class: 'one', 'data-key': one.title }, h('summary', {}, one.title),
      h('p', {}, one.detail), steps(one, true))));
}

function card(note, alone) {
  return h('article', { class: `note ${note.severity}`, 'data-key': note.title.replace(/^\d+ /, '') },
    title(note), note.detail ? h('p', {}, note.detail) : null, steps(note, alone), each(note));
}

export function attention(doc) {
  const notes = doc.attention ?? [];
  const rest = notes.slice(kOpen);
  return h('section', { class: 'card', 'data-key': 'attention', 'aria-label': 'What needs attention' },
    h('div', { class: 'head' }, h('h2', {}, 'What needs attention')),
    notes.length === 0 ? h('div', { class: 'note good', 'data-key': 'fine' }, h('p', {}, 'Nothing. Everything that arrives is being worked on.')) : null,
    notes.slice(0, kOpen).map((note) => card(note, notes.length === 1)),
    rest.length ? h('details', { 'data-key': 'rest' }, h('summary', {}, `and ${rest.length} more: ${rest.map((note) => note.title).join('; ')}`),
      rest.map((note) => card(note, false))) : null);
}
