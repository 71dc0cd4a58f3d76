// One saga's steps over time: a line for each, its tries above the middle, its undoing below. What the
// picture shows stands beside it in words.

import { h, none } from './dom.js';
import { duration } from './format.js';

const kWide = 1000, kHigh = 20, kLeast = 5;  // of a line, in its own units; the least width of a try

const kMood = { Ready: '', InFlight: 'going', Succeeded: 'good', Failed: 'bad', Compensated: 'undone', Skipped: '' };
export const stepMood = (step) => (step.in_doubt ? 'warning' : kMood[step.state] ?? '');

// From what the audit says of a step: when something was under way, and how it came out. A step of the
// database begins and ends in one transaction: the audit has its end alone.
export function triesOf(step, audit, end) {
  const tries = [];
  let open = null;
  for (const entry of audit) {
    if (entry.step !== step.name || !entry.to) continue;
    const at = Date.parse(entry.at), undo = entry.action === 'compensation';
    if (open) tries.push({ ...open, to: at, outcome: entry.to === 'InFlight' ? 'InDoubt' : entry.to });  // undone without being known
    else if (entry.to === 'Compensated' || (undo && entry.to === 'Failed')) tries.push({ from: at, to: at, undo, outcome: entry.to });
    else if (!undo && (entry.to === 'Succeeded' || entry.to === 'Failed')) {
      tries.push({ from: tries.length ? at : Date.parse(step.started_at ?? entry.at), to: at, undo, outcome: entry.to });
    }
    open = entry.to === 'InFlight' ? { from: at, undo } : null;
  }
  if (open) tries.push({ ...open, to: end, outcome: step.in_doubt ? 'InDoubt' : 'InFlight' });
  // A long history is cut off: the step itself knows its first begin and its end.
  if (!tries.length && step.started_at) {
    tries.push({ from: Date.parse(step.started_at), to: step.completed_at ? Date.parse(step.completed_at) : end, undo: false, outcome: step.state });
  }
  return tries;
}

// Ready and Succeeded at the end of a try mean other things when it was one of the undoing.
function moodOf({ outcome, undo }) {
  if (outcome === 'InFlight') return 'going';
  if (outcome === 'Failed') return 'bad';
  if (undo) return outcome === 'Compensated' ? 'undone' : 'again';
  return outcome === 'Succeeded' ? 'good' : 'again';
}

function times(count, what) { return count === 1 ? `1 ${what}` : `${count} ${what}s`; }

// The step in words: all that the picture says, for those who can't see it, or its colours.
export function wordsOf(step, saga, now) {
  const began = Date.parse(saga.created_at), at = (time) => Date.parse(time);
  const parts = [];
  if (!step.started_at) return step.state === 'Skipped' ? 'skipped' : 'not begun';
  parts.push(`began after ${duration(at(step.started_at) - began)}`);
  if (step.attempts > 0) parts.push(`${times(step.attempts, 'attempt')} spent`);
  if (step.completed_at) parts.push(`${step.state === 'Failed' && !step.compensating ? 'failed' : step.state === 'Skipped' ? 'skipped' : 'done'} after ${duration(at(step.completed_at) - at(step.started_at))}`);
  else if (step.in_doubt) parts.push('in doubt: nobody knows whether it was done');
  else if (step.state === 'InFlight') parts.push(`under way for ${duration(now - at(step.started_at))}`);
  else if (step.available_at && at(step.available_at) > now) parts.push(`tried again in ${duration(at(step.available_at) - now)}`);
  if (step.compensated_at) parts.push(`undone ${duration(at(step.compensated_at) - began)} after the saga's begin`);
  else if (step.compensating) parts.push(step.state === 'Failed' ? 'its undoing failed' : 'being undone');
  if (step.compensation_attempts > 0) parts.push(`${times(step.compensation_attempts, 'attempt')} to undo it spent`);
  return parts.join(', ');
}

function line(step, saga, span, now, label) {
  const x = (t) => Math.min(Math.max(((t - span.from) / (span.to - span.from)) * kWide, 0), kWide);
  const tries = triesOf(step, saga.audit ?? [], span.to);
  const middle = kHigh / 2;
  const begun = tries.length ? [Math.min(...tries.map((t) => t.from)), Math.max(...tries.map((t) => t.to))] : null;
  return h('svg', { class: 'tries', viewBox: `0 0 ${kWide} ${kHigh}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    h('line', { class: 'grid', x1: 0, x2: kWide, y1: middle, y2: middle }),
    begun ? h('line', { class: 'span', x1: x(begun[0]), x2: x(begun[1]), y1: middle, y2: middle }) : null,
    tries.map((t) => {
      const wide = Math.max(x(t.to) - x(t.from), kLeast);
      return h('rect', { class: `${moodOf(t)}${t.undo ? ' undo' : ''}`, x: Math.min(x(t.from), kWide - wide), width: wide, y: t.undo ? middle + 1 : 0, height: middle - 1 });
    }));
}

const kLegend = [['good', 'done'], ['again', 'tried, to be tried again, or in doubt'], ['bad', 'failed'], ['going', 'under way'], ['undone', 'below the line: undone']];

export function stepsOverTime(saga, doc) {
  const now = Date.parse(doc.now);
  const from = Date.parse(saga.created_at);
  const ended = saga.ended_at ? Date.parse(saga.ended_at) : 0;
  const span = { from, to: Math.max(ended || now, from + 1) };
  const legend = h('ul', { class: 'legend', 'aria-hidden': 'true' }, kLegend.map(([mood, what]) =>
    h('li', {}, h('svg', { class: 'tries', viewBox: '0 0 10 10' }, h('rect', { class: mood, x: 0, y: 0, width: 10, height: 10 })), what)));
  return h('figure', { class: 'saga-steps', 'data-key': 'steps' },
    h('figcaption', {}, h('b', {}, 'Steps over time'), h('span', {}, `${duration(span.to - from)} ${ended ? 'from its begin to its end' : 'so far'}`)),
    h('ol', {}, saga.steps.map((step) => {
      const words = wordsOf(step, saga, now);
      return h('li', { 'data-key': step.name },
        h('p', {}, h('b', {}, step.name), ' ', h('span', { class: `pill ${stepMood(step)}` }, step.in_doubt ? 'in doubt' : step.state), ' ', h('span', { class: 'quiet' }, words)),
        line(step, saga, span, now, `${step.name}: ${step.state}, ${words}`),
        step.error ? h('p', { class: 'reason' }, step.error_code ? `${step.error_code}: ` : '', step.error) : null);
    })),
    h('p', { class: 'axis quiet', 'aria-hidden': 'true' }, h('span', {}, '0'), h('span', {}, span.to > from + 1 ? duration(span.to - from) : none)),
    legend);
}
