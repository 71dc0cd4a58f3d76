// Making and patching elements. Text always goes in as text, never as HTML: a key or an error
// message may hold anything.

export const none = '–';  // what is not known, or not there

const kSvg = 'http://www.w3.org/2000/svg';
const kSvgTags = new Set(['svg', 'g', 'path', 'line', 'circle', 'text', 'rect']);

export function h(tag, attributes = {}, ...children) {
  const element = kSvgTags.has(tag) ? document.createElementNS(kSvg, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// Makes `old` look like `fresh` while keeping what the reader did: focus, selection, opened details.
export function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== 'open') old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === 'open') continue;  // the reader's to decide, after the first drawing
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const handler of ['onclick', 'onkeydown', 'onpointermove', 'onpointerleave', 'onblur', 'oninput', 'onsubmit']) {
    if (old[handler] !== fresh[handler]) old[handler] = fresh[handler];
  }
  patchChildren(old, [...fresh.childNodes]);
}

export function patchChildren(parent, fresh) {
  const byKey = new Map();
  for (const child of parent.children) if (child.dataset?.key) byKey.set(child.dataset.key, child);
  let at = parent.firstChild;
  for (const node of fresh) {
    const keyed = node.dataset?.key ? byKey.get(node.dataset.key) : undefined;
    if (keyed && keyed !== at) parent.insertBefore(keyed, at);
    const old = keyed ?? (at && !at.dataset?.key && !node.dataset?.key ? at : null);
    if (!old) {
      parent.insertBefore(node, at);
      continue;
    }
    at = old.nextSibling;
    patch(old, node);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

export function tile(label, value, detail = '', mood = '') {
  return h('div', { class: `tile ${mood}` }, h('dt', {}, label),
    h('dd', {}, h('span', {}, value), h('small', {}, detail)));
}

// columns: {label, cell(row), number: to the right, whole: never broken}. The roles stay true when CSS turns rows into blocks.
export function table(caption, columns, rows, keyOf) {
  const kind = (c) => (c.number ? 'number' : c.whole ? 'whole' : '');
  return h('table', { role: 'table' },
    h('caption', { class: 'unseen' }, caption),
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, columns.map((c) =>
      h('th', { scope: 'col', role: 'columnheader', class: kind(c) || null }, c.label)))),
    h('tbody', { role: 'rowgroup' }, rows.map((row, i) =>
      h('tr', { role: 'row', 'data-key': keyOf ? keyOf(row) : `row-${i}` }, columns.map((c) => {
        const content = c.cell(row);
        return h('td', { role: 'cell', 'data-label': c.label, class: `${kind(c)}${content === none ? ' empty' : ''}`.trim() || null },
          h('span', {}, content));
      })))));
}

// Lists that the reader has opened whole.
const whole = new Set();

// The first rows of a long list, and a button that shows all of them: [rows, button].
export function shortened(id, rows, redraw, first = 5) {
  if (rows.length <= first + 1) return [rows, null];
  const toggle = () => { whole.delete(id) || whole.add(id); redraw(); };
  const open = whole.has(id);
  return [open ? rows : rows.slice(0, first), h('p', { 'data-key': `${id}-more` },
    h('button', { type: 'button', 'aria-expanded': String(open), onclick: toggle }, open ? `Show the first ${first}` : `Show all ${rows.length}`))];
}

// What somebody may type, and a button that copies it. Words are kept whole where the line allows.
export function command(text) {
  const copy = async (event) => {
    const button = event.currentTarget;
    const code = button.parentElement.querySelector('code');
    let done = 'Copied';
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // no clipboard without https: select it for Ctrl-C
      getSelection().selectAllChildren(code);
      done = 'Selected';
    }
    button.textContent = done;
    say(`${done}: ${text}`);
  };
  const words = text.split(' ').flatMap((word, i) => [i ? ' ' : null, h('span', {}, word)]);
  return h('div', { class: 'command' }, h('code', {}, words),
    h('button', { type: 'button', 'aria-label': `Copy: ${text}`, onclick: copy }, 'Copy'));
}

// For a screen reader.
export function say(text) { document.getElementById('announcer').textContent = text; }
