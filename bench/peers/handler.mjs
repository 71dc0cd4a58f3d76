// A consumer as it is usually written: a transaction per message, with an inbox and an upsert that a version guards.
// Its messages are in memory already, so it pays for no Pub/Sub.
//   handler.mjs EVENTS CONNECTIONS SECONDS     (LOCKSTEP_TEST_PG)
import crypto from 'node:crypto';
import pg from 'pg';

const [events, connections, seconds] = process.argv.slice(2).map(Number);
const pool = new pg.Pool({ connectionString: process.env.LOCKSTEP_TEST_PG, max: connections });
await pool.query(`
  DROP SCHEMA IF EXISTS peer_handler CASCADE; CREATE SCHEMA peer_handler;
  CREATE TABLE peer_handler.inbox (event_id uuid PRIMARY KEY, received_at timestamptz NOT NULL DEFAULT now());
  CREATE TABLE peer_handler.video (video_id uuid PRIMARY KEY, title text, description text, duration_seconds bigint,
                                   version bigint NOT NULL, updated_at timestamptz NOT NULL)`);
// As scripts/bench runner's: nine of ten make a new row.
const videos = [], messages = [];
for (let i = 0; i < events; ++i) {
  const fresh = i === 0 || Math.random() < 0.9;
  const video = fresh ? { id: crypto.randomUUID(), version: 0 } : videos[Math.floor(Math.random() * videos.length)];
  if (fresh) videos.push(video);
  messages.push({ id: crypto.randomUUID(), video: video.id, version: ++video.version, data: Buffer.from(JSON.stringify(
    { title: `Title ${i}`, description: `A description of ordinary length, ${i}`, duration_seconds: i })) });
}
const handle = async (client, message) => {
  await client.query('BEGIN');
  const seen = await client.query({ name: 'inbox', text:
    'INSERT INTO peer_handler.inbox (event_id) VALUES ($1) ON CONFLICT DO NOTHING' , values: [message.id] });
  if (seen.rowCount === 1) {
    const video = JSON.parse(message.data);
    await client.query({ name: 'upsert', text:
      `INSERT INTO peer_handler.video VALUES ($1, $2, $3, $4, $5, now())
       ON CONFLICT (video_id) DO UPDATE SET title = excluded.title, description = excluded.description,
         duration_seconds = excluded.duration_seconds, version = excluded.version, updated_at = excluded.updated_at
       WHERE video.version < excluded.version`,
      values: [message.video, video.title, video.description, video.duration_seconds, message.version] });
  }
  await client.query('COMMIT');
};
// Messages of one video go to one connection, in their order.
const queues = Array.from({ length: connections }, () => []);
for (const message of messages) queues[parseInt(message.video.slice(0, 8), 16) % connections].push(message);
const began = performance.now();
let done = 0;
await Promise.all(queues.map(async (queue) => {
  const client = await pool.connect();
  for (const message of queue) {
    if (performance.now() - began > seconds * 1000) break;
    await handle(client, message);
    done += 1;
  }
  client.release();
}));
console.log(JSON.stringify({ rows: done, seconds: (performance.now() - began) / 1000 }));
await pool.end();
