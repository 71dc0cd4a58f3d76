// An endpoint that misbehaves as its path says, and writes down what it has taken.
// usage: server.js PORT_FILE LEDGER [SECRET_FILE PAGE]
'use strict';
const fs = require('node:fs');
const http = require('node:http');
const [portFile, ledger, secretFile, page] = process.argv.slice(2);

// The function of the documentation, as readers copy it.
const verify = page && new Function('require', fs.readFileSync(page, 'utf8')
  .match(/```js\n([\s\S]*?)```/)[1] + 'return verify;')(require);

const seen = new Map();  // path -> requests so far
const out = fs.openSync(ledger, 'a');

function take(request, body, response) {
  const h = request.headers;
  fs.writeSync(out, JSON.stringify({
    path: request.url, key: decodeURIComponent(h['lockstep-aggregate-id']), version: Number(h['lockstep-version']),
    id: h['idempotency-key'], type: h['content-type'], body: body.toString(), note: h['lockstep-note'],
  }) + '\n');
  response.end('taken');
}

const behaviour = {
  '/hang': (n, ...rest) => (n <= 2 ? undefined : take(...rest)),
  '/truncate': (n, request, body, response) => {
    if (n > 2) return take(request, body, response);
    response.writeHead(200, {'Content-Length': 1000});
    response.write('only this');
    setTimeout(() => response.destroy(), 20);
  },
  '/busy': (n, request, body, response) => {
    if (n > 1) return take(request, body, response);
    response.writeHead(429, {'Retry-After': '1'}).end('slow down');
  },
  '/down': (n, request, body, response) => {
    if (n > 5) return take(request, body, response);
    response.writeHead(500).end('<html>\u001b[31mInternal Server Error</html>');
  },
  '/close': (n, request, body, response) => (n <= 2 ? request.socket.destroy() : take(request, body, response)),
  '/moved': (n, request, body, response) => response.writeHead(302, {Location: '/ok'}).end(),
  '/large': (n, request, body, response) => {
    fs.writeSync(out, JSON.stringify({path: request.url, key: request.headers['lockstep-aggregate-id'],
      version: Number(request.headers['lockstep-version'])}) + '\n');
    response.end(Buffer.alloc(10_000_000, 'x'));
  },
  '/refuse': (n, request, body, response) => {
    const mended = fs.existsSync(ledger + '.mended');
    if (mended || request.headers['lockstep-version'] !== '2') return take(request, body, response);
    response.writeHead(422).end(`no: ${body}`);
  },
  '/slow': (n, ...rest) => setTimeout(() => take(...rest), 3),
  '/signed': (n, request, body, response) => {
    const good = verify(request.headers, body, fs.readFileSync(secretFile, 'utf8').trim());
    if (good) return take(request, body, response);
    response.writeHead(500).end('the signature is wrong');
  },
};

const server = http.createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const n = (seen.get(request.url) || 0) + 1;
    seen.set(request.url, n);
    (behaviour[request.url] || ((_, ...rest) => take(...rest)))(n, request, Buffer.concat(parts), response);
  });
});
server.keepAliveTimeout = 500;  // so that kept connections end now and then
server.listen(0, '127.0.0.1', () => fs.writeFileSync(portFile, String(server.address().port)));
