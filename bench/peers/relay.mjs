// pg-transactional-outbox empties a table that stands ready, with a handler that answers at once.
//   relay.mjs polling|replication ROWS KEYS SECONDS     (LOCKSTEP_TEST_PG)
// Prints {"rows": N, "seconds": S}: from the first message to the last, or to the end of SECONDS.
import pg from 'pg';
import outbox from 'pg-transactional-outbox';

const [kind, rows, keys, seconds] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const connectionString = process.env.LOCKSTEP_TEST_PG;
const setup = {
  outboxOrInbox: 'outbox', database: 'postgres', schema: `peer_${kind}`, table: 'outbox', listenerRole: 'lockstep',
  nextMessagesName: 'next_messages', publication: 'peer_publication', replicationSlot: 'peer_slot',
};
const table = `${setup.schema}.${setup.table}`;
const client = new pg.Client({ connectionString });
await client.connect();
await client.query(outbox.DatabaseSetup.dropAndCreateTable(setup));
if (kind === 'polling') {
  await client.query(outbox.DatabaseSetup.createPollingFunction(setup));
  await client.query(outbox.DatabaseSetup.setupPollingIndexes(setup));
} else {
  await client.query(outbox.DatabaseSetup.setupReplicationCore(setup));
  await client.query(`SELECT pg_create_logical_replication_slot('${setup.replicationSlot}', 'pgoutput')`);
}
// The aggregate is the segment, within which the package keeps the order.
await client.query(
  `INSERT INTO ${table} (id, aggregate_type, aggregate_id, message_type, segment, payload, created_at)
   SELECT gen_random_uuid(), 'item', 'k' || i % $2::int, 'bench.Changed', 'k' || i % $2::int,
          jsonb_build_object('version', i / $2::int + 1, 'payload', repeat('ab', 200)), clock_timestamp()
   FROM generate_series(0, $1::int - 1) i`, [rows, keys]);
await client.query(`VACUUM ANALYZE ${table}`);
await client.query('CHECKPOINT');

let first = 0, last = 0, done = 0;
const handler = { handle: async () => { last = performance.now(); first ||= last; done += 1; } };
const config = {
  outboxOrInbox: 'outbox',
  dbListenerConfig: { connectionString },
  // As the package's own benchmarks of an outbox would have it: without the protection that counts attempts up first.
  settings: {
    dbSchema: setup.schema, dbTable: setup.table, enableMaxAttemptsProtection: false, enablePoisonousMessageProtection: false,
    nextMessagesFunctionSchema: setup.schema, nextMessagesFunctionName: setup.nextMessagesName, nextMessagesBatchSize: 100,
    nextMessagesPollingIntervalInMs: 10, dbPublication: setup.publication, dbReplicationSlot: setup.replicationSlot,
    messageCleanupIntervalInMs: 0,
  },
};
const start = kind === 'polling' ? outbox.initializePollingMessageListener : outbox.initializeReplicationMessageListener;
const strategies = kind === 'polling' ? {} : { concurrencyStrategy: outbox.createReplicationSegmentMutexConcurrencyController() };
const began = performance.now();
const [shutdown] = start(config, handler, outbox.getDisabledLogger(), strategies);
while (done < rows && performance.now() - began < seconds * 1000) await new Promise((resolve) => setTimeout(resolve, 20));
console.log(JSON.stringify({ rows: done, seconds: (last - first) / 1000 }));
await Promise.race([shutdown(), new Promise((resolve) => setTimeout(resolve, 2000))]).catch(() => {});
if (kind === 'replication') {
  await client.query('SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active').catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 200));
  await client.query(`SELECT pg_drop_replication_slot('${setup.replicationSlot}')`).catch(() => {});
}
process.exit(0);
