// The official Node client publishes to and streams from the emulator at PUBSUB_EMULATOR_HOST.
'use strict';
const assert = require('assert');
const {PubSub} = require('@google-cloud/pubsub');

const pubsub = new PubSub({projectId: 'interop'});
const cases = [];
const test = (name, run) => cases.push({name, run});
let counter = 0;
const fresh = (kind) => `${kind}-${++counter}`;

async function topicWith(settings = {}) {
  const [topic] = await pubsub.createTopic(fresh('topic'));
  const [subscription] = await topic.createSubscription(fresh('sub'), settings);
  return {topic, subscription};
}

// Listens until `enough(messages)`; `answer` decides what happens to each (default: ack).
function listen(subscription, enough, answer = (message) => message.ack()) {
  return new Promise((resolve, reject) => {
    const messages = [];
    const timer = setTimeout(() => finish(new Error(`timeout after ${messages.length} messages`)), 30000);
    async function finish(error) {
      clearTimeout(timer);
      subscription.removeListener('message', onMessage);
      await subscription.close();
      if (error) reject(error); else resolve(messages);
    }
    function onMessage(message) {
      messages.push(message);
      answer(message, messages);
      if (enough(messages)) finish();
    }
    subscription.on('message', onMessage);
    subscription.on('error', finish);
  });
}
// The client's acks travel in batches, after close() too, and nothing tells when they are there.
const quiet = () => new Promise((resolve) => setTimeout(resolve, 300));
const text = (messages) => messages.map((message) => message.data.toString());
const range = (from, to) => Array.from({length: to - from}, (_, i) => String(from + i));

test('publishes and streams', async () => {
  const {topic, subscription} = await topicWith();
  const got = listen(subscription, (m) => m.length === 100);
  await Promise.all(range(0, 100).map((n) =>
    topic.publishMessage({data: Buffer.from(n), attributes: {number: n}})));
  const messages = await got;
  assert.deepStrictEqual(text(messages).sort(), range(0, 100).sort());
  for (const message of messages) assert.strictEqual(message.attributes.number, message.data.toString());
});

test('keeps the order of every key', async () => {
  const {topic, subscription} = await topicWith({enableMessageOrdering: true});
  const ordered = pubsub.topic(topic.name, {messageOrdering: true});
  const keys = ['a', 'b', 'c'];
  const got = listen(subscription, (m) => m.length === 300);
  await Promise.all(range(0, 100).flatMap((n) =>
    keys.map((orderingKey) => ordered.publishMessage({data: Buffer.from(n), orderingKey}))));
  const messages = await got;
  for (const key of keys) {
    assert.deepStrictEqual(text(messages.filter((m) => m.orderingKey === key)), range(0, 100));
  }
});

test('redelivers after a nack', async () => {
  const {topic, subscription} = await topicWith();
  await topic.publishMessage({data: Buffer.from('again')});
  const messages = await listen(subscription, (m) => m.length === 2,
    (message, all) => (all.length === 1 ? message.nack() : message.ack()));
  assert.deepStrictEqual(text(messages), ['again', 'again']);
});

test('seeks to a time, on an ordered subscription', async () => {
  const {topic, subscription} = await topicWith({enableMessageOrdering: true, retainAckedMessages: true});
  const ordered = pubsub.topic(topic.name, {messageOrdering: true});
  const publish = (from, to) => Promise.all(range(from, to).map((n) =>
    ordered.publishMessage({data: Buffer.from(n), orderingKey: 'k'})));
  await publish(0, 5);
  // To a whole second: the client loses what is finer on the way.
  const second = Math.ceil(Date.now() / 1000) * 1000;
  await new Promise((resolve) => setTimeout(resolve, second + 20 - Date.now()));
  await publish(5, 10);
  await listen(subscription, (m) => m.length === 10);
  await quiet();
  await subscription.seek(new Date(second));
  const again = await listen(pubsub.subscription(subscription.name), (m) => text(m).includes('9'));
  assert.deepStrictEqual(text(again), range(5, 10));
});

test('seeks to a snapshot', async () => {
  const {topic, subscription} = await topicWith({retainAckedMessages: true});
  const [snapshot] = await subscription.createSnapshot(fresh('snap'));
  for (const n of range(0, 5)) await topic.publishMessage({data: Buffer.from(n)});
  await listen(subscription, (m) => m.length === 5);
  await quiet();
  const again = pubsub.subscription(subscription.name);
  await again.seek(snapshot.name.split('/').pop());
  const messages = await listen(again, (m) => m.length === 5);
  assert.deepStrictEqual(text(messages).sort(), range(0, 5));
  await pubsub.snapshot(snapshot.name).delete();
});

test('dead-letters with attempts and source attributes', async () => {
  const [dead] = await pubsub.createTopic(fresh('dead'));
  const [graveyard] = await dead.createSubscription(fresh('graveyard'));
  const {topic, subscription} = await topicWith({
    deadLetterPolicy: {deadLetterTopic: dead.name, maxDeliveryAttempts: 5},
  });
  await topic.publishMessage({data: Buffer.from('poison')});
  const attempts = [];
  const nacked = listen(subscription, (m) => m.length === 5, (message) => {
    attempts.push(message.deliveryAttempt);
    message.nack();
  });
  const [letter] = await listen(graveyard, (m) => m.length === 1);
  await nacked;
  assert.deepStrictEqual(attempts, [1, 2, 3, 4, 5]);
  assert.strictEqual(letter.data.toString(), 'poison');
  assert.strictEqual(letter.attributes.CloudPubSubDeadLetterSourceSubscription,
                     subscription.name.split('/').pop());
});

test('confirms acks with exactly-once delivery', async () => {
  const {topic, subscription} = await topicWith({enableExactlyOnceDelivery: true});
  for (const n of range(0, 20)) await topic.publishMessage({data: Buffer.from(n)});
  const responses = [];
  let stale;  // the ack id of a delivery that was given back
  const messages = await new Promise((resolve, reject) => {
    const all = [];
    subscription.on('error', reject);
    subscription.on('message', async (message) => {
      try {
        if (!stale) {
          stale = message.ackId;
          assert.strictEqual(await message.nackWithResponse(), 'SUCCESS');
          return;
        }
        all.push(message);
        responses.push(await message.ackWithResponse());
      } catch (error) {
        reject(error);
      }
      if (responses.length === 20) resolve(all);
    });
  });
  assert.deepStrictEqual(text(messages).sort(), range(0, 20).sort());
  assert.ok(responses.every((response) => response === 'SUCCESS'), String(responses));
  await assert.rejects(
    new Promise((resolve, reject) => pubsub.request(
      {client: 'SubscriberClient', method: 'acknowledge',
       reqOpts: {subscription: subscription.name, ackIds: [stale]}},
      (error) => (error ? reject(error) : resolve()))),
    (error) => error.code === 3);  // INVALID_ARGUMENT
  await subscription.close();
});

test('filters', async () => {
  const {topic, subscription} = await topicWith({filter: 'attributes.kind = "wanted"'});
  await topic.publishMessage({data: Buffer.from('no')});
  await topic.publishMessage({data: Buffer.from('yes'), attributes: {kind: 'wanted'}});
  assert.deepStrictEqual(text(await listen(subscription, (m) => m.length === 1)), ['yes']);
});

test('lists and deletes what it made', async () => {
  const {topic, subscription} = await topicWith();
  const [topics] = await pubsub.getTopics();
  assert.ok(topics.some((t) => t.name === topic.name));
  const [subscriptions] = await topic.getSubscriptions();
  assert.deepStrictEqual(subscriptions.map((s) => s.name), [subscription.name]);
  await subscription.delete();
  await topic.delete();
  await assert.rejects(topic.get(), (error) => error.code === 5);  // NOT_FOUND
});

(async () => {
  let failed = 0;
  for (const {name, run} of cases) {
    const start = Date.now();
    try {
      await run();
      console.log(`ok     ${name} (${Date.now() - start} ms)`);
    } catch (error) {
      failed++;
      console.log(`FAILED ${name}: ${error.stack}`);
    }
  }
  console.log(`${cases.length - failed} of ${cases.length} passed`);
  process.exit(failed === 0 ? 0 : 1);
})();
