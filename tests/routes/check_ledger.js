// usage: check_ledger.js LEDGER PATH KEYS VERSIONS [repeats]
// Every version of every key was taken, in order; without `repeats`, once.
'use strict';
const fs = require('node:fs');
const [ledger, path, keys, versions, repeats] = process.argv.slice(2);
const reached = new Map();
for (const line of fs.readFileSync(ledger, 'utf8').split('\n').filter(Boolean)) {
  const {path: at, key, version} = JSON.parse(line);
  if (at !== path) continue;
  const last = reached.get(key) || 0;
  if (version > last + 1) throw new Error(`${path}: ${key} has version ${version} after ${last}`);
  if (version <= last && !repeats) throw new Error(`${path}: ${key} has version ${version} twice`);
  reached.set(key, Math.max(last, version));
}
if (reached.size !== Number(keys)) throw new Error(`${path}: ${reached.size} keys, not ${keys}`);
for (const [key, last] of reached) {
  if (last !== Number(versions)) throw new Error(`${path}: ${key} ends at ${last}, not ${versions}`);
}
