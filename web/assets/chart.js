// A line over the last hour, with marks where somebody did something. It can be read by pointer, by arrow
// keys, and by its label.

import { h, none } from './dom.js';
import { duration } from './format.js';

const kHeight = 144;
const kLeft = 52, kRight = 6, kTop = 8, kBottom = 20;

// Which point of which chart is being read; survives redrawing.
const reading = new Map();

// The top of the scale: a round number, or a round time.
const kTimes = [100, 200, 500, 1e3, 2e3, 4e3, 10e3, 20e3, 60e3, 120e3, 240e3, 600e3, 1200e3, 3600e3, 7200e3];

function niceTop(value, isTime) {
  if (!(value > 0)) return 1;
  const time = isTime ? kTimes.find((top) => top >= value) : undefined;
  if (time) return time;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((top) => top >= value * 1.0001) ?? 10 * power;
}

function ago(ms) {
  const s = Math.round(ms / 1000);
  if (s <= 0) return 'now';
  if (s >= 600) return `${Math.round(s / 60)} min ago`;
  return s < 60 ? `${s} s ago` : `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, '0')} s ago`;
}

// Gaps (null) break the line.
function lineOf(points) {
  let path = '', pen = false;
  for (const p of points) {
    if (p.y === null) { pen = false; continue; }
    path += `${pen ? 'L' : 'M'}${p.x.toFixed(1)} ${p.y.toFixed(1)}`;
    pen = true;
  }
  return path;
}

function areaOf(points, floor) {
  const drawn = points.filter((p) => p.y !== null);
  if (drawn.length < 2) return '';
  return `M${drawn[0].x.toFixed(1)} ${floor}` + drawn.map((p) => `L${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join('') +
    `L${drawn.at(-1).x.toFixed(1)} ${floor}Z`;
}

// Drawn at the width that it has on the page, so that its text keeps its size.
function widthOf(id) {
  return document.querySelector(`[data-key="${CSS.escape(id)}"] svg`)?.clientWidth || 480;
}

// A young process fills its chart too: the span grows with what there is.
function spanOf(at, longest) {
  const elapsed = at.length ? at.at(-1) - at[0] : 0;
  return [60e3, 120e3, 300e3, 600e3, 1800e3].find((span) => span >= elapsed && span < longest) ?? longest;
}

const clock = (t) => new Date(t).toISOString().slice(11, 19);

// marks: {t, text}: a reset, a rebuild, a process that began. Those of the same moment are one.
function drawMarks(marks, x, floor, from, end) {
  const seen = marks.filter(({ t }) => t >= from && t <= end);
  return seen.map(({ t, text }) => h('g', { class: 'mark', 'data-key': `mark-${t}-${text}` },
    h('line', { x1: x(t), x2: x(t), y1: kTop, y2: floor }),
    h('path', { d: `M${(x(t) - 4).toFixed(1)} ${kTop - 6}h8l-4 6z` })));
}

// The value where the pointer is, beside its point.
function tag(point, show, width) {
  const right = point.x > width / 2;
  return h('text', { class: 'value', x: point.x + (right ? -7 : 7), y: kTop + 10, 'text-anchor': right ? 'end' : 'start' },
    `${clock(point.t)} UTC  ${point.v === null ? none : show(point.v)}`);
}

export function chart({ id, title, at, values, longest, show, redraw, least = 0, marks = [] }) {
  const span = spanOf(at, longest);
  const width = widthOf(id);
  const end = at.length ? at.at(-1) : 0;
  const present = values.filter((v) => v !== null && v !== undefined);
  const top = niceTop(Math.max(least, ...present, 0), show === duration);
  const floor = kHeight - kBottom;
  const x = (t) => kLeft + (width - kLeft - kRight) * (1 - (end - t) / span);
  const y = (v) => kTop + (floor - kTop) * (1 - v / top);
  const points = at.map((t, i) => ({ t, v: values[i] ?? null, x: x(t), y: values[i] == null ? null : y(values[i]) }));

  const chosen = reading.has(id) ? Math.min(Math.max(at.length + reading.get(id), 0), at.length - 1) : -1;
  const point = chosen >= 0 ? points[chosen] : null;
  const newest = present.length ? show(present.at(-1)) : none;
  const near = point ? marks.filter(({ t }) => Math.abs(x(t) - point.x) <= 6).map(({ text }) => text) : [];
  const readout = point ? [`${ago(end - point.t)}: ${point.v === null ? none : show(point.v)}`, ...near].join(' · ') : `now ${newest}`;
  const seen = marks.filter(({ t }) => t >= end - span && t <= end);

  const move = (index) => { reading.set(id, Math.min(Math.max(index, 0), at.length - 1) - at.length); redraw(); };
  const leave = () => { if (reading.delete(id)) redraw(); };
  const onKey = (event) => {
    const from = chosen >= 0 ? chosen : at.length - 1;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -15, PageDown: 15, Home: -at.length, End: at.length }[event.key];
    if (step === undefined || !at.length) return event.key === 'Escape' ? leave() : undefined;
    event.preventDefault();
    move(from + step);
  };
  const onPointer = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const px = ((event.clientX - box.left) / box.width) * width;
    let best = 0;
    points.forEach((p, i) => { if (Math.abs(p.x - px) < Math.abs(points[best].x - px)) best = i; });
    if (points.length) move(best);
  };

  const minutes = span === 60e3 ? 'minute' : `${Math.round(span / 60e3)} minutes`;
  const peak = present.length ? show(Math.max(...present)) : none;
  const label = `${title}, last ${minutes}: now ${newest}, highest ${peak}. ` +
    (seen.length ? `Marked: ${seen.map(({ t, text }) => `${text}, ${ago(end - t)}`).join('; ')}. ` : '') +
    (point ? readout : 'Arrow keys read single points.');
  return h('figure', { 'data-key': id },
    h('figcaption', {}, h('b', {}, title), h('span', { 'aria-live': 'off' }, readout)),
    h('svg', { class: 'chart', viewBox: `0 0 ${width} ${kHeight}`, role: 'img',
      'aria-label': label, tabindex: 0, onkeydown: onKey, onpointermove: onPointer, onpointerleave: leave, onblur: leave },
      [0, 0.5, 1].map((part) => [
        h('line', { class: 'grid', x1: kLeft, x2: width - kRight, y1: y(top * part), y2: y(top * part) }),
        h('text', { x: kLeft - 6, y: y(top * part) + 4, 'text-anchor': 'end' }, show(top * part))]),
      h('text', { x: kLeft, y: kHeight - 4 }, `−${Math.round(span / 60000)} min`),
      h('text', { x: width - kRight, y: kHeight - 4, 'text-anchor': 'end' }, 'now'),
      h('path', { class: 'area', d: areaOf(points, floor) }),
      h('path', { class: 'line', d: lineOf(points) }),
      drawMarks(marks, x, floor, end - span, end),
      point ? h('line', { class: 'cross', x1: point.x, x2: point.x, y1: kTop, y2: floor }) : null,
      point && point.y !== null ? h('circle', { class: 'dot', cx: point.x, cy: point.y, r: 3.5 }) : null,
      point ? tag(point, show, width) : null));
}
