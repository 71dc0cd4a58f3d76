// The HTTP participant of the sagas under attack. Not attacked itself; it misbehaves by a seed, and writes every request into a
// ledger before the first byte of its answer: what came, what was done, what was answered.
// usage: participant.js PORT_FILE LEDGER SEED
//
//   POST /charge                     not idempotent: takes the money each time
//   POST /pack, /label               once per Idempotency-Key; what comes after its own undoing is refused
//   POST /refund, /unpack, /unlabel  undo those, once per saga; nothing to undo is fine
//
// A body that says {refuse: STEP} is refused for good by that step. Otherwise the answer to the n-th request with a key is
// drawn from the seed: most are well, and a few
//   slow        done, answered after 0.3 to 0.8 s           late    done, answered after 3 s: nobody waits that long
//   500, 503    not done                                    did500  done, and 500 all the same
//   429         not done, Retry-After: 0 or 1               hang    not done, never an answer
//   cut         done, cut off in the middle of the answer   drop    not done, the connection ends without an answer
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const [portFile, ledgerFile, seed] = process.argv.slice(2);
const ledger = fs.openSync(ledgerFile, 'a');

const undoes = {'/refund': '/charge', '/unpack': '/pack', '/unlabel': '/label'};
// Per thousand. Whoever may not be asked twice is stuck after most of these: fewer of them.
const faults = [['slow', 40], ['late', 12], ['500', 25], ['503', 25], ['429', 40], ['did500', 12], ['hang', 12], ['cut', 15],
  ['drop', 15]];
const chargeFaults = [['slow', 40], ['late', 4], ['500', 6], ['503', 6], ['429', 60], ['did500', 4], ['hang', 4], ['cut', 4],
  ['drop', 4]];

const tries = new Map();    // Idempotency-Key -> requests so far
const results = new Map();  // Idempotency-Key -> result
const done = new Set();     // saga + path
const undone = new Set();   // saga + path
let number = 0;

function draw(path, key, n) {
  const digest = crypto.createHash('md5').update(`${seed} ${key} ${n}`).digest();
  let point = digest.readUInt16BE(0) % 1000;
  for (const [answer, share] of path === '/charge' ? chargeFaults : faults) {
    if (point < share) return [answer, digest];
    point -= share;
  }
  return ['ok', digest];
}

// [what it did: "did", "again" (it had been done), "nothing" (to undo), "late" (undone meanwhile); the result]
function work(path, key, saga) {
  const undo = undoes[path];
  if (path !== '/charge' && undone.has(`${saga} ${path}`)) return ['late', null];
  if (path !== '/charge' && results.has(key)) return ['again', results.get(key)];
  const result = {id: `${path.slice(1)}-${++number}`};
  results.set(key, result);
  (undo === undefined ? done : undone).add(`${saga} ${undo || path}`);
  return [undo === undefined || done.has(`${saga} ${undo}`) ? 'did' : 'nothing', result];
}

function take(path, key, body, response) {
  const saga = body.saga;
  const n = (tries.get(key) || 0) + 1;
  tries.set(key, n);
  const [drawn, digest] = draw(path, key, n);
  let answer = body.refuse === path.slice(1) ? 'refused' : drawn;
  const does = ['ok', 'slow', 'late', 'did500', 'cut'].includes(answer);
  let did = 'not';
  let result = null;
  if (does) [did, result] = work(path, key, saga);
  if (did === 'late') answer = 'refused';
  fs.writeSync(ledger, `${Date.now()}\t${path.slice(1)}\t${saga}\t${key}\t${answer}\t${did}\n`);
  const send = (status, value, headers = {}) => response
    .writeHead(status, {'Content-Type': 'application/json', ...headers}).end(JSON.stringify(value));
  switch (answer) {
    case 'ok': return send(200, result);
    case 'slow': return setTimeout(() => send(200, result), 300 + digest[2] * 2);
    case 'late': return setTimeout(() => send(200, result), 3000);
    case 'refused': return send(422, {error: 'no'});
    case '429': return send(429, {}, {'Retry-After': String(digest[2] % 2)});
    case '503': return send(503, {}, digest[2] % 2 ? {'Retry-After': '1'} : {});
    case '500': case 'did500': return send(500, {});
    case 'hang': return undefined;
    case 'drop': return response.destroy();
    default:  // cut
      response.writeHead(200, {'Content-Length': 1000});
      response.write('{');
      return setTimeout(() => response.destroy(), 20);
  }
}

const server = http.createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => take(request.url, request.headers['idempotency-key'],
    JSON.parse(Buffer.concat(parts).toString()), response));
  request.on('error', () => {});
});
server.keepAliveTimeout = 2000;  // so that kept connections end now and then
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(`${portFile}.next`, String(server.address().port));
  fs.renameSync(`${portFile}.next`, portFile);
});
