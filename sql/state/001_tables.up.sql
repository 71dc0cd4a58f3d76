-- What a runner keeps, in the schema that its service configures: groups with their epochs and
-- slots, inbox, offsets, keys that wait, dead letters, parked events, checkpoints, comparisons with
-- the source, rebuilds, the audit, and what projections keep besides their tables.

-- A consumer group. A batch commits only under the epoch (number and token) that its stream was
-- opened with; a reset bumps both. The token is random because a restored counter repeats itself.
CREATE TABLE consumer_groups (
  group_name text PRIMARY KEY CHECK (group_name <> ''),
  group_id int GENERATED ALWAYS AS IDENTITY UNIQUE,
  epoch bigint NOT NULL DEFAULT 1 CHECK (epoch >= 1),
  epoch_token uuid NOT NULL DEFAULT gen_random_uuid(),
  active_slot int NOT NULL DEFAULT 1,
  -- The Seek that this epoch wants: no stream opens until it is done.
  seek_kind text NOT NULL DEFAULT 'none' CHECK (seek_kind IN ('none', 'time', 'snapshot')),
  seek_time timestamptz,
  seek_snapshot text,
  seek_state text NOT NULL DEFAULT 'done' CHECK (seek_state IN ('wanted', 'performing', 'done')),
  seek_owner text,
  seek_started_at timestamptz,
  seek_done_at timestamptz,
  -- An ack or a Seek sent under the old epoch may still be on its way: the new epoch's waits for it.
  seek_not_before timestamptz,
  -- Deliveries published before it are acked unapplied.
  skip_before timestamptz,
  -- A replay without emptying: events published before it overwrite their own version.
  overwrite_until timestamptz,
  -- Which server, on which timeline, the group last ran on: another one was promoted or restored.
  lineage text,
  -- Whether key_state has every aggregate's version: what reached() can be asked about.
  follows_versions boolean NOT NULL DEFAULT false,
  -- Whether its handlers must know what they have handled before: then retired generations are
  -- remembered for as long as the living one.
  minds_replays boolean NOT NULL DEFAULT false,
  -- An operator stopped it: nothing is applied until it is resumed.
  paused_at timestamptz,
  paused_by text,
  pause_reason text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  updated_by text NOT NULL DEFAULT current_user,
  CHECK ((seek_kind = 'time') = (seek_time IS NOT NULL)),
  CHECK ((seek_kind = 'snapshot') = (seek_snapshot IS NOT NULL)),
  CHECK (seek_kind <> 'none' OR seek_state = 'done'),
  CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);

-- A generation is one life of a read model. Its number is unique in the schema, so that it stands
-- for the group in the narrow inbox; a reset that empties the read model draws a new one.
CREATE SEQUENCE generations AS int;

-- A slot is {tables, generation, subscription}. A rebuild fills a shadow slot beside the active one.
CREATE TABLE slots (
  group_name text NOT NULL REFERENCES consumer_groups ON DELETE CASCADE,
  slot int NOT NULL CHECK (slot >= 1),
  generation int NOT NULL UNIQUE DEFAULT nextval('generations'),
  subscription text NOT NULL,
  tables jsonb NOT NULL DEFAULT '{}',  -- declared table -> this slot's table, where they differ
  state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'shadow', 'retired')),
  first_publish_time timestamptz,  -- of the oldest event that this generation has seen
  columns text[],  -- that this generation was written with from its beginning; NULL = not begun
  -- By what this generation knows an event again: its id; its id while all versions have been followed from
  -- the beginning (then a rebuild's may go on by versions); or its version. NULL = not begun.
  inbox text CHECK (inbox IN ('event', 'followed', 'aggregate')),
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (group_name, slot)
);
CREATE UNIQUE INDEX slots_one_active ON slots (group_name) WHERE state = 'active';

-- Each group with the slot that its runners fill: what nearly every reader asks for.
CREATE VIEW active_slots AS
SELECT g.group_name, g.group_id, g.epoch, g.epoch_token, g.seek_kind, g.seek_time, g.seek_snapshot,
       g.seek_state, g.skip_before, g.overwrite_until, g.lineage, g.follows_versions,
       g.paused_at, g.paused_by, g.pause_reason, g.updated_at AS epoch_began,
       s.slot, s.generation, s.subscription, s.first_publish_time,
       coalesce(s.inbox = 'aggregate', false) AS by_versions
  FROM consumer_groups g
  JOIN slots s ON s.group_name = g.group_name AND s.slot = g.active_slot;

-- Generations that no slot has any longer, because a reset emptied their tables or a rebuild took
-- their place. The cleaner takes their rows away, a few at a time.
CREATE TABLE retired_generations (
  generation int PRIMARY KEY,
  group_name text NOT NULL,
  served boolean NOT NULL DEFAULT true,  -- false: a rebuild's that was given up; what it saw, nobody handled
  retired_at timestamptz NOT NULL DEFAULT now()
);

-- One row per event seen: what makes its effect happen once. The fate stands where a row of this
-- shape has bytes to spare. A generation that goes by versions has one per snapshot and per message without
-- a version; its events are in key_state.
CREATE TABLE inbox (
  generation int NOT NULL,
  event_id uuid NOT NULL,
  -- Applied, superseded, ignored or dead (and perhaps given up since); of one that is parked nothing
  -- is said yet.
  fate "char" NOT NULL DEFAULT 'a' CHECK (fate IN ('a', 's', 'i', 'd')),
  received_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (generation, event_id)
);
-- Rows come in time order, so a few pages of BRIN find the old ones for the cleaner.
CREATE INDEX inbox_received_at ON inbox USING brin (received_at)
  WITH (pages_per_range = 32, autosummarize = on);

-- Who is running, and what it says about itself each second: an offset counts while its instance is
-- seen.
CREATE TABLE instances (
  group_name text NOT NULL,
  instance text NOT NULL,
  epoch bigint NOT NULL,
  lanes int NOT NULL,
  idle_lanes int[] NOT NULL DEFAULT '{}',  -- with nothing in hand: not behind, however old their offset
  started_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now(),
  handled bigint NOT NULL DEFAULT 0,   -- messages brought to an end under this epoch
  queued bigint NOT NULL DEFAULT 0,    -- in hand, not yet in a transaction
  publish_lag_ms bigint,               -- occurred -> published, of the last commit
  receive_lag_ms bigint,               -- published -> received
  commit_lag_ms bigint,                -- received -> committed
  lag_ms bigint,                       -- how old its read model is: idle is 0, stuck grows
  lag_basis text NOT NULL DEFAULT '',  -- what that is measured by, in words
  state text NOT NULL DEFAULT '',      -- the word on its status page
  heartbeat_at timestamptz,            -- when the newest heartbeat that it has heard was published
  mapping text NOT NULL DEFAULT '',    -- a hash of how it turns events into rows
  snapshots_open boolean NOT NULL DEFAULT true,  -- false: its second subscription has no stream
  address text NOT NULL DEFAULT '',    -- of its status page, as others reach it; empty = it has none
  version text NOT NULL DEFAULT '',    -- of the program
  PRIMARY KEY (group_name, instance)
) WITH (fillfactor = 50);

-- A row per lane, so that lanes never wait for each other.
CREATE TABLE offsets (
  group_name text NOT NULL,
  instance text NOT NULL,
  lane int NOT NULL CHECK (lane >= 0),
  subscription text NOT NULL,
  message_id text NOT NULL,
  publish_time timestamptz NOT NULL,
  epoch bigint NOT NULL,
  lag_ms bigint NOT NULL DEFAULT 0,
  commits bigint NOT NULL DEFAULT 1,  -- of this lane: who has counted more knows that some are lost
  updated_at timestamptz NOT NULL DEFAULT now(),
  updated_by text NOT NULL DEFAULT current_user,
  PRIMARY KEY (group_name, instance, lane)
) WITH (fillfactor = 50);

-- The group's offset: the least of the live lanes that have something in hand; the greatest when none
-- has. A lane counts as live while its instance is seen, works and still has it: one with a fixed name
-- may come back with fewer lanes, and one that halts or waits stands still; neither must hold back the
-- offset of those that go on. When none is live, the least of those that committed last (a minute back) or
-- whose instance is there at least: what ended before them was taken over. The place of a reset counts
-- until somebody has committed.
CREATE VIEW group_offsets AS
WITH lanes AS (
  SELECT o.*,
         coalesce(i.seen AND o.lane < i.lanes AND i.state NOT IN ('halted', 'waiting', 'paused'), false) AS live,
         coalesce(i.seen, false) AS seen,
         coalesce(o.lane = ANY (i.idle_lanes), false) AS idle,
         max(o.updated_at) FILTER (WHERE o.instance <> '(reset)') OVER (PARTITION BY o.group_name) AS newest
    FROM offsets o
    LEFT JOIN (SELECT *, seen_at BETWEEN now() - interval '1 minute' AND now() + interval '5 minutes' AS seen
                 FROM instances) i USING (group_name, instance))
SELECT DISTINCT ON (group_name)
       group_name, subscription, message_id, publish_time, epoch,
       max(lag_ms) OVER w AS lag_ms, max(updated_at) OVER w AS updated_at, updated_by, live
  FROM lanes
 WHERE newest IS NULL
    OR instance <> '(reset)' AND (seen OR updated_at >= newest - interval '1 minute')
WINDOW w AS (PARTITION BY group_name, live)
 ORDER BY group_name, live DESC, idle,
          CASE WHEN live AND idle THEN publish_time END DESC NULLS LAST,
          publish_time, message_id COLLATE "C";

-- An aggregate that is followed version by version (on_gap: park, follow_versions), or that waits. Here and below,
-- aggregate keys are compared byte by byte, as the runner sorts them: transactions lock them in one
-- order whatever the database's language, and no sorting rule of a language is paid for per event.
CREATE TABLE key_state (
  generation int NOT NULL,
  aggregate_key text COLLATE "C" NOT NULL,
  settled_version bigint,   -- NULL where gaps don't matter
  last_event uuid,          -- which event that was: another one of that version is a fork; NULL = none, it was given up
  previous_version bigint,  -- what the last batch built on; below 0 when it made the row, NULL when it had to look closer
  snapshot_version bigint,  -- the newest snapshot's: to meet a version up to it again is no fork of the source
  blocked_version bigint,   -- the least dead version that later ones wait for
  open boolean NOT NULL DEFAULT false,  -- a reset left versions out: the next one need not follow
  parked int NOT NULL DEFAULT 0 CHECK (parked >= 0),
  updated_at timestamptz NOT NULL DEFAULT now(),  -- when a version was last settled
  PRIMARY KEY (generation, aggregate_key)
) WITH (fillfactor = 70);
CREATE INDEX key_state_waiting ON key_state (generation, aggregate_key)
  WHERE parked > 0 OR blocked_version IS NOT NULL;

-- Messages that wait for a predecessor, as they came.
CREATE TABLE parked (
  generation int NOT NULL,
  aggregate_key text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  event_id uuid NOT NULL,
  event_type text NOT NULL,
  message_id text NOT NULL,
  ordering_key text NOT NULL,
  publish_time timestamptz NOT NULL,
  attributes jsonb NOT NULL,
  payload bytea NOT NULL,
  reason text NOT NULL CHECK (reason IN ('gap', 'poison')),
  parked_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (generation, aggregate_key, version, event_id)
);

CREATE TABLE dead_letters (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  group_name text NOT NULL,
  generation int NOT NULL,
  message_id text NOT NULL,
  event_id uuid,  -- what could be read of the message; the attributes hold the rest
  aggregate_key text COLLATE "C",
  version bigint,
  event_type text,
  ordering_key text NOT NULL,
  publish_time timestamptz NOT NULL,
  attributes jsonb NOT NULL,
  payload bytea NOT NULL,
  payload_bytes int GENERATED ALWAYS AS (octet_length(payload)) STORED,  -- for readers without the right to payloads
  code text NOT NULL,
  reason text NOT NULL CHECK (octet_length(reason) <= 2048),
  attempts int NOT NULL DEFAULT 1 CHECK (attempts >= 0),
  blocks boolean NOT NULL,  -- later versions of its aggregate wait for it
  state text NOT NULL DEFAULT 'dead'
    CHECK (state IN ('dead', 'quarantined', 'replayed', 'discarded')),
  note text,
  dead_at timestamptz NOT NULL DEFAULT now(),
  resolved_at timestamptz,
  resolved_by text,
  -- What somebody has decided about the event, for every generation: it dies again after a reset that
  -- empties, or in a rebuild, and is not asked about again.
  decision text CHECK (decision IN ('discarded', 'quarantined')),
  decided_by text,
  decided_why text,
  -- A message without a readable event_id has no inbox row: this keeps a redelivery from dying twice.
  UNIQUE (generation, message_id),
  CHECK (blocks = false OR (aggregate_key IS NOT NULL AND version IS NOT NULL)),
  CHECK ((state IN ('replayed', 'discarded')) = (resolved_at IS NOT NULL))
);
CREATE INDEX dead_letters_open ON dead_letters (group_name, id)
  WHERE state IN ('dead', 'quarantined');
CREATE INDEX dead_letters_blocking ON dead_letters (generation, aggregate_key, version)
  WHERE blocks AND state IN ('dead', 'quarantined');
CREATE INDEX dead_letters_decided ON dead_letters (group_name, coalesce(event_id::text, message_id))
  WHERE decided_by IS NOT NULL;
CREATE INDEX dead_letters_event ON dead_letters (generation, event_id);
CREATE INDEX dead_letters_resolved ON dead_letters (group_name, resolved_at) WHERE resolved_at IS NOT NULL;

-- Pub/Sub snapshots that belong to a state of this database.
CREATE TABLE checkpoints (
  group_name text NOT NULL,
  number bigint NOT NULL,
  snapshot text NOT NULL,
  subscription text NOT NULL,
  epoch bigint NOT NULL,
  taken_at timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz,
  PRIMARY KEY (group_name, number)
);

-- How far the comparison of a table with its source has come (`verify` of a group). Whoever has the
-- lease compares the next range of keys; the cursor outlives him.
CREATE TABLE verifications (
  group_name text NOT NULL,
  backfill text NOT NULL,  -- what the source is
  projection text NOT NULL,
  began_at timestamptz,    -- of the pass under way; NULL = none is
  cursor jsonb,            -- its keys below this one are compared; NULL = none yet
  keyed_by text NOT NULL DEFAULT '',  -- what keys are made of, here and in verify_differences: columns and types
  pass_rows bigint NOT NULL DEFAULT 0,
  pass_undecided bigint NOT NULL DEFAULT 0,  -- rows that changed from look to look
  pass_unlisted bigint NOT NULL DEFAULT 0,   -- differences that verify_differences has no room for
  passed_at timestamptz,   -- when the last full pass ended, and what it came to
  rows bigint NOT NULL DEFAULT 0,
  undecided bigint NOT NULL DEFAULT 0,
  unlisted bigint NOT NULL DEFAULT 0,
  error text NOT NULL DEFAULT '',  -- why the last try came to nothing; empty = it did not
  failures int NOT NULL DEFAULT 0,
  due_at timestamptz NOT NULL DEFAULT now(),
  looked_at timestamptz NOT NULL DEFAULT now(),  -- when the listed differences were last looked at again
  updated_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now(),
  declared_at timestamptz NOT NULL DEFAULT now(),  -- when a runner last said that it is wanted
  lease_token uuid,
  lease_owner text,
  lease_until timestamptz,
  PRIMARY KEY (group_name, backfill, projection),
  CHECK (cursor IS NULL OR began_at IS NOT NULL)
);

-- Rows that differed from their source when they were last looked at, twice each time.
CREATE TABLE verify_differences (
  group_name text NOT NULL,
  backfill text NOT NULL,
  projection text NOT NULL,
  key jsonb NOT NULL,
  class text NOT NULL CHECK (class IN ('missing', 'behind', 'ghost', 'ahead', 'content')),
  found_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (group_name, backfill, projection, key),
  FOREIGN KEY (group_name, backfill, projection) REFERENCES verifications ON DELETE CASCADE
);

-- The rebuild of a group that is under way, or that can still be rolled back: all of its state, so
-- that every step can be repeated by whoever comes next. While it fills, the shadow slot belongs to
-- a group of its own, `<group>~rebuild`, with its own epoch and Seek; the swap hands the slot over.
CREATE TABLE rebuilds (
  group_name text PRIMARY KEY REFERENCES consumer_groups ON DELETE CASCADE,
  state text NOT NULL DEFAULT 'preparing'
    CHECK (state IN ('preparing', 'filling', 'swapped', 'discarding')),
  old_slot int NOT NULL,
  new_slot int NOT NULL CHECK (new_slot > old_slot),
  discard_slot int CHECK (discard_slot IN (old_slot, new_slot)),  -- which one goes
  old_subscription text NOT NULL,
  new_subscription text NOT NULL,
  tables text[] NOT NULL,  -- as declared
  mapping text NOT NULL,   -- that the shadow is filled with: at the swap all runners have it
  seek_time timestamptz,   -- where the shadow begins: one of the two
  seek_snapshot text,
  backfills jsonb,     -- which bring what came before, by name the id at the source; NULL = none
  new_snapshots text,  -- the shadow's subscription of their own topic, where the group has one
  accept_missing boolean NOT NULL,
  keep_old_ms bigint NOT NULL CHECK (keep_old_ms >= 0),
  operator text NOT NULL,
  reason text NOT NULL,
  began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  swapped_at timestamptz,
  old_skip_before timestamptz,  -- of the old slot, for a rollback
  CHECK ((seek_time IS NULL) <> (seek_snapshot IS NULL)),
  CHECK (backfills IS NULL OR seek_time IS NOT NULL),
  CHECK ((state = 'discarding') = (discard_slot IS NOT NULL)),
  CHECK (state <> 'swapped' OR swapped_at IS NOT NULL)
);

-- Who did what by hand, and why. The operator is what he says, the role is whom Postgres let in.
CREATE TABLE audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT now(),
  group_name text NOT NULL,
  action text NOT NULL,
  operator text NOT NULL,
  role text NOT NULL DEFAULT session_user,
  reason text NOT NULL DEFAULT '',
  old jsonb,
  new jsonb
);
CREATE INDEX audit_group ON audit (group_name, id);
CREATE INDEX audit_age ON audit (at);  -- the cleaner's

-- The version of every row of a table that is deleted from hard: a late older update must not bring
-- a deleted row back. A row with deleted_at is a tombstone; it lives a day longer than inbox
-- rows do, and as long as a dead letter from before it is open.
CREATE TABLE row_versions (
  consumer_group text NOT NULL,
  generation bigint NOT NULL,
  projection text NOT NULL,
  row_key text NOT NULL,
  version bigint NOT NULL,
  -- The first version of the batch that wrote last: lets one statement refuse a batch of which a part is stale.
  first_version bigint NOT NULL,
  deleted_at timestamptz,
  aggregate text,  -- whose row it is, where the projection says to remember it
  PRIMARY KEY (consumer_group, generation, projection, row_key),
  CHECK (first_version <= version)
);
CREATE INDEX row_versions_tombstones ON row_versions (deleted_at) WHERE deleted_at IS NOT NULL;

-- The message fields that a group's mappings used at its last start: a field that was renumbered or
-- retyped since is refused, for the messages in the subscription still have the old shape.
CREATE TABLE projection_fields (
  consumer_group text NOT NULL,
  message text NOT NULL,
  field text NOT NULL,
  number text NOT NULL,
  type text NOT NULL,
  PRIMARY KEY (consumer_group, message, field)
);
