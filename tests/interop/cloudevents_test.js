// What lockstep-publisher sends with `format: cloudevents`, read by the official CloudEvents SDK.
// usage: cloudevents_test.js PORT_FILE RESULT_FILE
'use strict';
const assert = require('assert');
const fs = require('fs');
const http = require('http');
const {HTTP} = require('cloudevents');
const [portFile, resultFile] = process.argv.slice(2);

const events = [];
function check() {
  const [first, second] = events;
  assert.equal(first.specversion, '1.0');
  assert.equal(first.id, '00000000-0000-4000-8000-000000000001');
  assert.equal(first.type, 'shop.ItemChanged');
  assert.equal(first.source, 'https://shop.example/items');
  assert.equal(first.subject, 'item ü 1');
  assert.equal(new Date(first.time).toISOString(), '2026-01-02T03:04:05.678Z');
  assert.equal(first.datacontenttype, 'application/json');
  assert.deepEqual(first.data, {name: 'ü'});
  assert.equal(first.tenantid, 'tenant "ü" 100%');
  assert.equal(first.aggregatetype, 'item');
  assert.equal(String(first.aggregateversion), '1');
  assert.equal(first.region, 'eu');
  assert.equal(first.traceparent, '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01');
  assert.equal(second.datacontenttype, 'application/protobuf');
  assert.deepEqual(Buffer.from(second.data_base64 ?? second.data, second.data_base64 ? 'base64' : undefined),
    Buffer.from([0, 255, 39, 92]));
}

const server = http.createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const raw = Buffer.concat(parts);
    const json = request.headers['content-type'] === 'application/json';
    const event = HTTP.toEvent({headers: request.headers, body: json ? raw.toString() : raw});
    // The SDK leaves the percent encoding of the HTTP binding to its caller.
    const plain = {...event.toJSON()};
    for (const [name, value] of Object.entries(plain)) {
      if (typeof value === 'string' && !name.startsWith('data')) plain[name] = decodeURIComponent(value);
    }
    try {
      assert.equal(event.validate(), true);
      events.push(plain);
      if (events.length === 2) {
        check();
        fs.writeFileSync(resultFile, 'ok');
      }
      response.end();
    } catch (error) {
      fs.writeFileSync(resultFile, String(error.stack));
      response.writeHead(400).end();
    }
  });
});
server.listen(0, '127.0.0.1', () => fs.writeFileSync(portFile, String(server.address().port)));
