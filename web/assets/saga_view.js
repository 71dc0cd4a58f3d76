// Sagas: how many there are of each definition, a list of some (#sagas=DEFINITION&state=…), and one with
// its steps over time (#saga=ID). Links, so that they can be sent to somebody.

import { command, h, none, say, table } from './dom.js';
import { age, count, duration, rate } from './format.js';
import { stepsOverTime } from './saga_steps.js';

const kMood = { Running: 'good', Compensating: 'warning', Completed: 'good', Failed: 'bad', Cancelled: '', Paused: 'warning' };
const kStates = Object.keys(kMood);
const kListed = 50;
let shown = '', answer = null, fault = '';

// What the address asks for; nothing else gets into a question, or a command that somebody may copy.
function wanted() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const id = hash.get('saga') ?? '', definition = hash.get('sagas') ?? '', state = hash.get('state') ?? '';
  if (/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id)) return `id=${id}`;
  if (!/^[a-z][a-z0-9_-]{0,63}$/.test(definition)) return '';
  if (state === 'dead') return `definition=${definition}&dead=true&limit=${kListed}`;
  return `definition=${definition}${kStates.includes(state) ? `&state=${state}` : ''}&limit=${kListed}`;
}

const part = (name) => new URLSearchParams(shown).get(name) ?? '';

// Called when the address changes, and with every round: what is open follows by itself.
export async function followSaga(doc, redraw) {
  if (doc?.role !== 'orchestrator') return;
  const question = wanted();
  const opened = question !== shown;
  if (opened) {
    [shown, answer, fault] = [question, null, ''];
    redraw();
  }
  if (!shown) return;
  let text = '', told = null;
  try {
    const reply = await fetch(`api/sagas?${shown}`, { cache: 'no-store', signal: AbortSignal.timeout(10000) });
    if (reply.ok) told = await reply.json();
    else text = await reply.text();
  } catch {
    text = 'This process does not answer.';
  }
  if (question !== shown) return;  // another one was opened meanwhile
  [answer, fault] = [told ?? answer, text];
  redraw();
  const card = opened ? document.getElementById('saga') : null;
  if (!card) return;
  card.scrollIntoView({ block: 'start' });
  card.focus({ preventScroll: true });
  say(fault || (answer?.id ? `Saga ${answer.id} is ${answer.state}` : `${answer?.sagas?.length ?? 0} sagas`));
}

const sagaLink = (id) => h('a', { class: 'mono', href: `#saga=${id}` }, id);
const statePill = (saga) => h('span', { class: `pill ${kMood[saga.state] ?? ''}` }, saga.dead_at ? `${saga.state}, dead` : saga.state);

// The step that a saga is at.
function stepAt(saga) {
  const at = saga.steps.filter((step) => step.state === 'InFlight' || step.in_doubt).map((step) => step.name);
  if (at.length) return at.join(', ');
  if (saga.failed_step) return `${saga.failed_step} failed`;
  return saga.ended_at ? none : saga.steps.find((step) => step.state === 'Ready')?.name ?? none;
}

function listed(doc) {
  const sagas = answer.sagas ?? [];
  if (!sagas.length) return h('p', { class: 'quiet' }, 'There are none.');
  return [table('Sagas, the youngest first', [
    { label: 'Saga', cell: (s) => sagaLink(s.id) },
    { label: 'State', cell: statePill },
    { label: 'Step', cell: stepAt },
    { label: 'Begun', number: true, cell: (s) => age(s.created_at, doc.now) },
    { label: 'Ended', number: true, cell: (s) => age(s.ended_at, doc.now) },
  ], sagas, (s) => s.id),
  sagas.length >= kListed ? h('p', { class: 'quiet' }, `The youngest ${kListed}.`) : null];
}

function history(saga) {
  return h('details', { 'data-key': 'history' }, h('summary', {}, 'Every change, by whom'),
    table('Every change', [
      { label: 'After', whole: true, cell: (e) => h('time', { datetime: e.at, title: e.at }, duration(Math.max(0, Date.parse(e.at) - Date.parse(saga.created_at)))) },
      { label: 'Step', cell: (e) => e.step || none },
      { label: 'What', cell: (e) => [e.action === 'state' ? null : `${e.action} `, e.from || e.to ? `${e.from || none} → ${e.to || none}` : null] },
      { label: 'Who', cell: (e) => e.actor },
      { label: 'Note', cell: (e) => e.note || none },
    ], saga.audit ?? []));
}

function one(saga, doc) {
  return [
    h('p', {}, statePill(saga), h('span', { class: 'quiet' }, ` ${saga.definition} version ${saga.version}`, saga.key ? `, key ${saga.key}` : '', saga.tenant ? `, tenant ${saga.tenant}` : '', ', begun '), age(saga.created_at, doc.now),
      saga.cancel_asked ? ', to be cancelled' : null, saga.quarantined_at ? ', in quarantine' : null,
      saga.deadline && !saga.ended_at ? h('span', { class: 'quiet' }, `, may last until ${saga.deadline}`) : null),
    saga.reason ? h('p', {}, saga.reason) : null,
    saga.error ? h('p', { class: 'reason' }, saga.failed_step ? `${saga.failed_step}: ` : '', saga.error_code ? `${saga.error_code}: ` : '', saga.error) : null,
    stepsOverTime(saga, doc),
    history(saga),
    command(`${doc.ctl} saga show ${saga.id} --history`)];
}

export function sagaCard(doc) {
  if (!shown || doc.role !== 'orchestrator') return null;
  const id = part('id'), of = `${part('dead') ? 'dead ' : part('state') ? `${part('state')} ` : ''}sagas of ${part('definition')}`;
  const title = id ? `Saga ${id}` : of[0].toUpperCase() + of.slice(1);
  return h('section', { class: 'card', id: 'saga', tabindex: -1, 'data-key': `saga-${shown}`, 'aria-label': title },
    h('div', { class: 'head' }, h('h2', {}, id ? [h('span', { class: 'kind' }, 'Saga '), h('span', { class: 'mono' }, id)] : title),
      answer?.id ? h('a', { href: `#sagas=${answer.definition}` }, `All of ${answer.definition}`) : null,
      h('a', { href: `api/sagas?${shown}` }, 'As JSON'), h('a', { href: '#main' }, 'Close')),
    fault ? h('p', { class: 'reason' }, fault) : null,
    !answer ? (fault ? null : h('p', { class: 'quiet' }, 'Loading …')) : answer.id ? one(answer, doc) : listed(doc));
}

// A number that leads to what it counts.
const counted = (of, name, state) => (of[name] > 0 ? h('a', { href: `#sagas=${of.definition}&state=${state}` }, count(of[name])) : count(of[name]));

function waiting(doc) {
  if (!doc.waiting?.length) return null;
  return [h('h3', {}, 'Dead and paused ones'), table('Dead and paused sagas', [
    { label: 'Saga', cell: (s) => sagaLink(s.id) },
    { label: 'Of', whole: true, cell: (s) => s.definition },
    { label: 'State', cell: (s) => h('span', { class: `pill ${s.dead ? 'bad' : 'warning'}` }, s.dead ? 'dead' : s.in_doubt?.length ? 'in doubt' : 'paused') },
    { label: 'Why', cell: (s) => [s.failed_step ? `${s.failed_step}: ` : null, (s.dead ? [s.error_code, s.error].filter(Boolean).join(' ') : s.reason) || none] },
    { label: 'Since', number: true, cell: (s) => age(s.since, doc.now) },
  ], doc.waiting, (s) => s.id)];
}

export function sagasCard(doc) {
  if (doc.role !== 'orchestrator') return null;
  return h('section', { class: 'card', 'data-key': 'sagas', 'aria-label': 'Sagas' },
    h('div', { class: 'head' }, h('h2', {}, 'Sagas'), h('span', { class: 'quiet' }, `${count(doc.in_hand)} in hand here`)),
    doc.sagas?.length ? table('Sagas by definition', [
      { label: 'Definition', cell: (s) => h('a', { href: `#sagas=${s.definition}` }, s.definition) },
      { label: 'Running', number: true, cell: (s) => counted(s, 'running', 'Running') },
      { label: 'Compensating', number: true, cell: (s) => counted(s, 'compensating', 'Compensating') },
      { label: 'Paused', number: true, cell: (s) => counted(s, 'paused', 'Paused') },
      { label: 'Dead', number: true, cell: (s) => counted(s, 'dead', 'dead') },
      { label: 'Ended here', number: true, cell: (s) => rate(s.rate) },
      { label: 'Completed', number: true, cell: (s) => count(s.since_start?.completed) },
      { label: 'Failed', number: true, cell: (s) => count(s.since_start?.failed) },
      { label: 'Cancelled', number: true, cell: (s) => count(s.since_start?.cancelled) },
    ], doc.sagas, (s) => s.definition) : h('p', { class: 'quiet' }, 'No definition is registered: lockstepctl saga register.'),
    doc.sagas?.length ? h('p', { class: 'quiet' }, 'What ended is counted since this process began, and is what this one did; the rest is what stands in the database.') : null,
    waiting(doc));
}
