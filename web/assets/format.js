// Numbers and times as people read them. Ages count from the server's clock, not the browser's.

import { h, none } from './dom.js';

export function count(value) {
  if (value === null || value === undefined) return none;
  return Math.round(value).toLocaleString('en-US');
}

export function rate(value) {
  if (value === null || value === undefined) return none;
  if (value > 0 && value < 10) return `${value.toFixed(1)}/s`;
  return `${count(value)}/s`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return none;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  const parts = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const first = parts.findIndex(([, unit]) => s >= unit);
  const [name, unit] = parts[first];
  const whole = Math.floor(s / unit);
  const [nextName, nextUnit] = parts[first + 1];
  const rest = Math.floor((s - whole * unit) / nextUnit);
  return rest > 0 ? `${whole} ${name} ${rest} ${nextName}` : `${whole} ${name}`;
}

// Coarse on purpose: an age that changes every second draws the eye for nothing.
export function age(time, now) {
  if (!time) return none;
  const s = Math.max(0, Math.floor((Date.parse(now) - Date.parse(time)) / 1000));
  const [unit, name] = s < 60 ? [1, 's'] : s < 3600 ? [60, 'min'] : s < 172800 ? [3600, 'h'] : [86400, 'd'];
  const text = s < 2 ? 'just now' : `${Math.floor(s / unit)} ${name} ago`;
  return h('time', { datetime: time, title: time }, text);
}
