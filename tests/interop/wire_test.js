// docs/wire.md, read with the official Node client: what lockstep-publisher made of an outbox.
// usage: wire_test.js prepare | check
'use strict';
const assert = require('assert');
const {PubSub} = require('@google-cloud/pubsub');

const pubsub = new PubSub({projectId: 'interop'});

async function prepare() {
  const [topic] = await pubsub.createTopic('shop.events');
  await topic.createSubscription('shop.events.node', {enableMessageOrdering: true});
}

async function receive(count) {
  const subscription = pubsub.subscription('shop.events.node');
  const messages = [];
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`timeout after ${messages.length} messages`)), 30000);
    subscription.on('error', reject);
    subscription.on('message', (message) => {
      messages.push(message);
      message.ack();
      if (messages.length === count) {
        clearTimeout(timer);
        resolve();
      }
    });
  });
  await subscription.close();
  return messages;
}

async function check() {
  const messages = await receive(3);
  assert.deepStrictEqual(messages.map((m) => m.attributes.version), ['1', '2', '3']);
  const [plain, full] = messages;
  assert.strictEqual(plain.orderingKey, 'item-1');
  assert.deepStrictEqual([...plain.data], [0, 255, 39, 92]);
  assert.deepStrictEqual(Object.keys(plain.attributes).sort(), ['aggregate_id', 'aggregate_type', 'content_type',
    'event_id', 'event_type', 'occurred_at', 'schema_version', 'sequence', 'topic', 'version']);
  assert.deepStrictEqual({...full.attributes}, {
    event_id: '00000000-0000-4000-8000-000000000002', event_type: 'shop.ItemChanged', aggregate_type: 'item',
    aggregate_id: 'item-1', version: '2', schema_version: '7', occurred_at: '2026-01-02T03:04:05.678000Z',
    content_type: 'application/json', topic: 'shop.item.changed.v1', sequence: full.attributes.sequence,
    tenant_id: 'tenant ü', traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
    tracestate: 'a=1 ,  b=2', region: 'eu',
  });
  assert.match(full.attributes.sequence, /^[0-9]+$/);
  assert.strictEqual(full.data.toString(), '{"name": "ü"}');
  console.log('the wire is as documented');
}

({prepare, check})[process.argv[2]]().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
