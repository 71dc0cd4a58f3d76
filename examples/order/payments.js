// A payment provider that fails as it is told, and writes every request into a ledger before it answers.
// usage: node payments.js LEDGER [PORT]       prints "listening on http://127.0.0.1:PORT"
//
//   POST /charge {order, card, cents}   takes the money each time it is asked: {"charge": "c-1"}; the card "declined" is refused
//   POST /refund {order, charge}        gives it back, once, however often it is asked
//   POST /tell {path, answers}          what the next requests of a path get, one each; the last one for all if `always` is true
//
//   answers   ok        does it, 200
//             decline   402, nothing done
//             500, 503, 429, …  that status, nothing done (429 and 503 with Retry-After: 1)
//             hang      nothing done, and never an answer
//             slow      does it at once, and answers after 2 s
//             cut       does it, and cuts the connection off in the middle of the answer
//
// A line of the ledger: {"at", "path", "key" (Idempotency-Key), "order", "answer", "did"}.
'use strict';
const fs = require('node:fs');
const http = require('node:http');
const [file, port] = process.argv.slice(2);
if (!file) {
  console.error('usage: node payments.js LEDGER [PORT]');
  process.exit(2);
}
const ledger = fs.openSync(file, 'a');
const told = new Map();      // path -> {answers, always}
const refunded = new Set();  // charges
let charges = 0;

function next(path) {
  const {answers = [], always = false} = told.get(path) || {};
  return (always && answers.length === 1 ? answers[0] : answers.shift()) || 'ok';
}

// What a request does to the money, if anything: [did, what to answer].
function work(path, body) {
  if (path === '/charge') return [true, {charge: `c-${++charges}`}];
  const first = !refunded.has(body.charge);
  refunded.add(body.charge);
  return [first, {refunded: body.charge}];
}

function take(path, key, body, response) {
  const answer = path === '/charge' && body.card === 'declined' ? 'decline' : next(path);
  const does = ['ok', 'slow', 'cut'].includes(answer);
  const [did, result] = does ? work(path, body) : [false, null];
  fs.writeSync(ledger, JSON.stringify({at: Date.now(), path, key, order: body.order, answer, did}) + '\n');
  const send = (status, value, headers = {}) => response
    .writeHead(status, {'Content-Type': 'application/json', ...headers}).end(JSON.stringify(value));
  switch (answer) {
    case 'ok': return send(200, result);
    case 'slow': return setTimeout(() => send(200, result), 2000);
    case 'decline': return send(402, {error: 'the card was declined'});
    case 'hang': return undefined;
    case 'cut':
      response.writeHead(200, {'Content-Length': 1000});
      response.write('{');
      return setTimeout(() => response.destroy(), 20);
    default:
      return send(Number(answer), {error: 'as told'}, ['429', '503'].includes(answer) ? {'Retry-After': '1'} : {});
  }
}

const server = http.createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    let body;
    try {
      body = JSON.parse(Buffer.concat(parts).toString());
    } catch {
      return response.writeHead(400).end('not JSON');
    }
    if (request.method !== 'POST') return response.writeHead(405).end();
    if (request.url === '/tell') {
      told.set(body.path, body);
      return response.end('{}');
    }
    if (!['/charge', '/refund'].includes(request.url)) return response.writeHead(404).end();
    return take(request.url, request.headers['idempotency-key'], body, response);
  });
});
server.listen(Number(port || 0), '127.0.0.1',
  () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
