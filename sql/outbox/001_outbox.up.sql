-- The outbox: what lockstep.create_outbox makes, lockstep.enqueue fills and the relay empties.
-- Everything runs with the caller's rights; the grant_ functions give the least of them. No function asks the
-- caller's search_path: the small ones are parsed when they are made (RETURN), the others keep the path of
-- their making, which is this schema behind pg_catalog.
--
-- An outbox is a table of events, which are inserted and deleted and never change, and what becomes of them beside it:
--   <outbox>_pending    the queue: a narrow row of each event that is not published
--   <outbox>_leases     who is at which of them: a row per claim
--   <outbox>_published  the log: a narrow row of each event that is
--   <outbox>_status     a view that shows it all as one row
-- Where it is partitioned, events and log are, by ranges of the sequence: one partition of each for a day or an hour.
--
--   1. Tables            which outboxes there are, what was done to their rows by hand, backfills
--   2. Names and keys    ids, hashes, shards, locks, channels, the tables of an outbox
--   3. Events            what is wrong with one
--   4. An outbox         made and dropped, and the functions that it has of its own
--   5. Partitions        made ahead, gone on to, dropped
--   6. Enqueue           what a service calls in its own transaction
--   7. Rows              let go, replayed, quarantined, released
--   8. Rights            for writer, publisher, reader and operator

-- 1. Tables ------------------------------------------------------------------------------------------------

-- The outboxes of this database. `shards` changes only while all shard locks are held, by a publisher of that outbox.
CREATE TABLE outboxes (
  outbox     regclass PRIMARY KEY,
  shards     int NOT NULL DEFAULT 1 CHECK (shards BETWEEN 1 AND 1024),
  -- Content dedup: a row with a target_space whose content was sent there so lately is not sent. NULL = off.
  dedup_window interval CHECK (dedup_window > interval '0'),
  partition  text CHECK (partition IN ('hour', 'day')),  -- what a partition is for; NULL = there are none
  created_at timestamptz NOT NULL DEFAULT now(),
  -- Of a fixed text, when the queue's hashes were made: another server may hash otherwise (lockstep.rehash).
  hash_probe bigint NOT NULL,
  enqueue    text NOT NULL  -- the call of the function that enqueues into it
);

-- A table or function of an outbox beside it, with its schema and quoted.
CREATE FUNCTION part(outbox regclass, suffix text) RETURNS text LANGUAGE sql STABLE
RETURN (SELECT format('%I.%I', n.nspname, c.relname || '_' || suffix)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = outbox);

-- The same as an oid, for those too who may not use the schema; NULL = not there.
CREATE FUNCTION part_oid(outbox regclass, suffix text) RETURNS oid LANGUAGE sql STABLE
RETURN (SELECT p.oid FROM pg_class c JOIN pg_class p ON p.relnamespace = c.relnamespace AND p.relname = c.relname || '_' || suffix
        WHERE c.oid = outbox);

-- What the caller may do to an outbox: its publisher empties it; who may try rows again is its publisher or an
-- operator; who may quarantine them is an operator.
CREATE FUNCTION may_publish(outbox regclass) RETURNS boolean LANGUAGE sql STABLE
RETURN coalesce(has_table_privilege(lockstep.part_oid(outbox, 'pending'), 'DELETE'), false);
CREATE FUNCTION may_change(outbox regclass, what text) RETURNS boolean LANGUAGE sql STABLE
RETURN coalesce(has_column_privilege(lockstep.part_oid(outbox, 'pending'), what, 'UPDATE'), false);

ALTER TABLE outboxes ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_see ON outboxes USING (true);
CREATE POLICY own_shards ON outboxes AS RESTRICTIVE FOR UPDATE USING (lockstep.may_publish(outbox));

-- The publishers that are running, for whoever wants to ask them (lockstepctl console). Each writes its own row now and
-- then; one that was not seen for an hour is taken away by the next that writes.
CREATE TABLE publishers (
  instance   text PRIMARY KEY,
  address    text NOT NULL,  -- of its status page, as others reach it; empty = it has none
  version    text NOT NULL,  -- of the program
  outboxes   text[] NOT NULL,
  started_at timestamptz NOT NULL,
  seen_at    timestamptz NOT NULL DEFAULT now()
);

-- What operators did by hand to rows and backfills, how backfills ended, and leases that were lost. Never a payload.
-- The actor is what he says, the role is whom Postgres let in: nobody but the owner may write it.
CREATE TABLE outbox_audit (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL DEFAULT now(),
  actor    text NOT NULL,
  role     text NOT NULL DEFAULT session_user,
  action   text NOT NULL,
  outbox   text NOT NULL,
  sequence bigint,  -- of the row; NULL = of a backfill, which `detail` names
  event_id uuid,
  note     text,
  detail   jsonb,
  CHECK (CASE WHEN action LIKE 'backfill %' THEN detail ? 'backfill' ELSE sequence IS NOT NULL AND event_id IS NOT NULL END)
);
CREATE INDEX ON outbox_audit (outbox, sequence);
CREATE INDEX ON outbox_audit (outbox, at);  -- the cleaner's
ALTER TABLE outbox_audit ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_see ON outbox_audit USING (true);
CREATE POLICY own_outbox ON outbox_audit AS RESTRICTIVE FOR INSERT
  WITH CHECK (lockstep.may_change(to_regclass(outbox), 'attempts'));

-- Of each content that is to be sent to a space: the row that sends it. Others of the same content wait for its fate.
-- A publisher that sets about sending one takes the place first; one that finds the place with a row that is dead,
-- quarantined, gone or published too long ago takes it over.
CREATE TABLE outbox_contents (
  outbox       regclass NOT NULL REFERENCES outboxes ON DELETE CASCADE,
  target_space text NOT NULL,
  payload_sha  bytea NOT NULL,
  sequence     bigint NOT NULL,
  PRIMARY KEY (outbox, target_space, payload_sha)
);
ALTER TABLE outbox_contents ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_outbox ON outbox_contents USING (lockstep.may_publish(outbox));

-- Rows of a source table that are sent as snapshots, in the order of their keys, by the publisher of the outbox:
-- what is to be sent, how far it has come, and who is at it. Its messages are derived from `id`.
CREATE TABLE backfills (
  id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  outbox        regclass NOT NULL REFERENCES outboxes ON DELETE CASCADE,
  name          text NOT NULL,
  repair        boolean NOT NULL DEFAULT false,  -- of the keys in backfill_keys alone
  declaration   jsonb NOT NULL,
  descriptors   bytea,
  created_at    timestamptz NOT NULL DEFAULT now(),
  created_by    text NOT NULL,
  role          text NOT NULL DEFAULT session_user,
  reason        text,
  state         text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused', 'failed', 'cancelled', 'done')),
  begun_at      timestamptz,
  ended_at      timestamptz,
  -- A replica that is read must have come so far: what is older is in no consumer's tail.
  start_lsn     pg_lsn,
  highest       text[],  -- the key at which it ends; NULL = not begun, or an empty source
  cursor        text[],  -- the last key that Pub/Sub has taken, with all before it
  last_events   uuid[] NOT NULL DEFAULT '{}',  -- of the messages that were sent last, by which a consumer tells that they came
  rows_done     bigint NOT NULL DEFAULT 0,
  rows_expected bigint NOT NULL DEFAULT 0,  -- an estimate, but of a repair
  progress_at   timestamptz,
  -- Faults in a row that may pass; it is tried again at retry_at.
  failures      int NOT NULL DEFAULT 0,
  retry_at      timestamptz,
  last_error    text,
  lease_token   uuid,
  lease_owner   text,
  lease_until   timestamptz,
  CONSTRAINT lease_is_whole CHECK ((lease_token IS NULL) = (lease_owner IS NULL) AND (lease_token IS NULL) = (lease_until IS NULL)),
  CONSTRAINT only_running_is_leased CHECK (lease_token IS NULL OR state = 'running'),
  CONSTRAINT failed_says_why CHECK (state <> 'failed' OR last_error IS NOT NULL),
  CONSTRAINT ended_is_over CHECK ((ended_at IS NOT NULL) = (state IN ('cancelled', 'done')))
);
-- One at a time under a name; repairs don't count.
CREATE UNIQUE INDEX ON backfills (outbox, name) WHERE ended_at IS NULL AND NOT repair;
ALTER TABLE backfills ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_the_outbox ON backfills USING (has_column_privilege(outbox, 'created_at', 'SELECT'));
-- Readers see, operators create, publishers and operators go on.
CREATE POLICY operator_creates ON backfills AS RESTRICTIVE FOR INSERT
  WITH CHECK (lockstep.may_change(outbox, 'quarantined_at'));
CREATE POLICY own_outbox ON backfills AS RESTRICTIVE FOR UPDATE USING (lockstep.may_change(outbox, 'attempts'));

-- What a repair sends: the rows of these keys, and ghosts, which the consumer has and the source has not.
CREATE TABLE backfill_keys (
  backfill uuid NOT NULL REFERENCES backfills ON DELETE CASCADE,
  n        bigint NOT NULL,
  key      text[],
  ghost    jsonb,  -- {aggregate_id, tenant_id, version, payload}
  PRIMARY KEY (backfill, n),
  CHECK (key IS NOT NULL OR ghost IS NOT NULL)
);
ALTER TABLE backfill_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_outbox ON backfill_keys USING (EXISTS (
  SELECT 1 FROM backfills b WHERE b.id = backfill AND lockstep.may_change(b.outbox, 'attempts')));

-- 2. Names and keys -----------------------------------------------------------------------------------------

-- Time-ordered (version 7): neighbours in time are neighbours in the index.
CREATE FUNCTION new_event_id() RETURNS uuid LANGUAGE sql VOLATILE
RETURN encode(
  set_bit(set_bit(
    overlay(uuid_send(gen_random_uuid())
            PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
            FROM 1 FOR 6),
    52, 1), 53, 1), 'hex')::uuid;

-- Which of `shards` an ordering key belongs to.
CREATE FUNCTION shard_of(aggregate_id text, shards int) RETURNS int LANGUAGE sql IMMUTABLE
RETURN mod(hashtext(aggregate_id)::bigint & 2147483647, shards)::int;

-- By which the queue keeps an aggregate's order: its upper half is the ordering key's, by which shards go. Two
-- aggregates of one hash wait for each other.
CREATE FUNCTION aggregate_hash(aggregate_id text, aggregate_type text, tenant_id text) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN (hashtext(aggregate_id)::bigint << 32)
     | (hashtextextended(aggregate_id, hashtextextended(aggregate_type || coalesce('.' || tenant_id, ''), 1)) & 4294967295);
CREATE FUNCTION shard_of_hash(aggregate_hash bigint, shards int) RETURNS int LANGUAGE sql IMMUTABLE
RETURN mod((aggregate_hash >> 32) & 2147483647, shards)::int;
CREATE FUNCTION hash_probe() RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN lockstep.aggregate_hash('the id', 'the type', 'the tenant');

-- Keys of the advisory locks: the owner of a shard holds `shard`, a sleeping owner `wake` too.
CREATE FUNCTION lock_key(purpose text, outbox regclass, shard int) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN hashtextextended('lockstep.' || purpose || '.' || outbox::oid::text || '.' || shard::text, 0);

CREATE FUNCTION wake_channel(outbox regclass) RETURNS text LANGUAGE sql IMMUTABLE
RETURN 'lockstep_outbox_' || outbox::oid::text;

-- The outbox's name with its schema, whatever the caller's search_path: the audit's column.
CREATE FUNCTION outbox_name(outbox regclass) RETURNS text LANGUAGE sql STABLE
RETURN (SELECT format('%I.%I', n.nspname, c.relname)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = outbox);

-- 3. Events -------------------------------------------------------------------------------------------------

-- What is wrong with an event, or NULL. Pub/Sub's limits: a message that it would refuse must not
-- get into the outbox.
CREATE FUNCTION event_fault(topic text, aggregate_type text, aggregate_id text, event_type text,
                            version bigint, payload bytea, tenant_id text, content_type text,
                            attributes jsonb, traceparent text, tracestate text, occurred_at timestamptz)
RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
  bytes bigint := 0;
  fault text;
BEGIN
  IF topic IS NULL OR length(topic) > 127 OR topic !~ '^[a-z0-9.-]+$' THEN
    RETURN format('topic %L is not made of a-z, 0-9, "." and "-", or is longer than 127', left(topic, 200));
  ELSIF event_type IS NULL OR length(event_type) > 255
        OR event_type !~ '^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$' THEN
    RETURN format('event type %L is not a name as in protobuf', left(event_type, 100));
  ELSIF coalesce(octet_length(aggregate_id), 0) NOT BETWEEN 1 AND 1024 THEN
    RETURN 'the aggregate id (the ordering key) must have 1 to 1024 bytes';
  ELSIF coalesce(octet_length(aggregate_type), 0) NOT BETWEEN 1 AND 1024 THEN
    RETURN 'the aggregate type must have 1 to 1024 bytes';
  ELSIF version IS NULL OR version < 1 THEN
    RETURN 'the version must be 1 or more';
  ELSIF version > 9000000000000000000 THEN
    RETURN format('version %s is too near the end of bigint for others to follow it', version);
  ELSIF occurred_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00' THEN
    RETURN format('occurred_at %s is outside the years 1 to 9999, in which every reader can tell the time', occurred_at);
  ELSIF payload IS NULL THEN
    RETURN 'the payload is NULL';
  ELSIF octet_length(tenant_id) > 1024 OR octet_length(traceparent) > 1024
        OR octet_length(tracestate) > 1024 OR octet_length(content_type) > 1024 THEN
    RETURN 'tenant, traceparent, tracestate and content type have at most 1024 bytes each';
  ELSIF coalesce(content_type, '') NOT IN ('application/protobuf', 'application/json') THEN
    RETURN format('content type %L is neither application/protobuf nor application/json', left(content_type, 100));
  ELSIF jsonb_typeof(attributes) IS DISTINCT FROM 'object' THEN
    RETURN 'attributes must be a JSON object of strings';
  END IF;
  IF attributes <> '{}' THEN
    SELECT sum(octet_length(key) + octet_length(value #>> '{}')),
           min(CASE
             WHEN jsonb_typeof(value) <> 'string' THEN format('attribute %L is not a string', left(key, 100))
             WHEN octet_length(key) NOT BETWEEN 1 AND 256 THEN 'an attribute''s name must have 1 to 256 bytes'
             WHEN octet_length(value #>> '{}') > 1024 THEN format('attribute %L has more than 1024 bytes', left(key, 100))
             WHEN key LIKE 'goog%' AND key NOT LIKE 'googclient\_%' THEN format('attribute %L starts with goog, which Pub/Sub reserves', left(key, 100))
             WHEN key IN ('event_id', 'event_type', 'aggregate_type', 'aggregate_id', 'version', 'schema_version',
                          'occurred_at', 'content_type', 'topic', 'sequence', 'tenant_id', 'traceparent', 'tracestate')
               OR key LIKE 'lockstep\_%' THEN format('attribute %L is set by Lockstep', left(key, 100))
           END)
      INTO bytes, fault FROM jsonb_each(attributes);
    IF fault IS NULL AND (SELECT count(*) FROM jsonb_object_keys(attributes)) > 87 THEN
      fault := 'more than 87 attributes (Pub/Sub takes 100, 13 of them are Lockstep''s)';
    END IF;
    IF fault IS NOT NULL THEN RETURN fault; END IF;
  END IF;
  -- 1,000 bytes cover the names of our own attributes and the short values among them.
  IF octet_length(payload) + bytes + 2 * octet_length(aggregate_id) + octet_length(aggregate_type)
     + octet_length(event_type) + octet_length(topic) + coalesce(octet_length(tenant_id), 0)
     + coalesce(octet_length(traceparent), 0) + coalesce(octet_length(tracestate), 0) + 1000 > 10000000 THEN
    RETURN format('a payload of %s bytes makes the message larger than Pub/Sub''s 10 MB', octet_length(payload));
  END IF;
  RETURN NULL;
END $$;

-- Answers the sequence of an event that has just been inserted, if it may stay; else refuses it, and with it the
-- statement. The trigger of an outbox asks it only about those events that are not plainly in order.
CREATE FUNCTION admit(outbox regclass, sequence bigint, topic text, aggregate_type text, aggregate_id text, event_type text,
                      version bigint, payload bytea, tenant_id text, content_type text, attributes jsonb,
                      traceparent text, tracestate text, occurred_at timestamptz, target_space text)
RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  fault   text := lockstep.event_fault(topic, aggregate_type, aggregate_id, event_type, version, payload, tenant_id,
                                       content_type, attributes, traceparent, tracestate, occurred_at);
  next    bigint;  -- the sequence of the next higher version
  highest bigint;
BEGIN
  IF fault IS NULL AND octet_length(target_space) NOT BETWEEN 1 AND 1024 THEN
    fault := 'the target space must have 1 to 1024 bytes';
  END IF;
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION '% takes no such event: %', outbox, fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  EXECUTE format('SELECT t.sequence FROM %s t WHERE t.aggregate_id = $1 AND t.aggregate_type = $2 '
                 'AND t.tenant_id IS NOT DISTINCT FROM $3 AND t.version >= $4 AND t.sequence <> $5 '
                 'ORDER BY t.version LIMIT 1', outbox)
    INTO next USING aggregate_id, aggregate_type, tenant_id, version, sequence;
  IF next < sequence THEN
    EXECUTE format('SELECT max(t.version) FROM %s t WHERE t.aggregate_id = $1 AND t.aggregate_type = $2 '
                   'AND t.tenant_id IS NOT DISTINCT FROM $3 AND t.sequence < $4', outbox)
      INTO highest USING aggregate_id, aggregate_type, tenant_id, sequence;
    RAISE EXCEPTION 'version % of % "%" is not above %, the highest that % holds',
      version, aggregate_type, aggregate_id, highest, outbox USING ERRCODE = 'unique_violation';
  END IF;
  RETURN sequence;
END $$;

-- 4. An outbox ----------------------------------------------------------------------------------------------

-- The functions that an outbox has of its own, for their statements are planned once in a session. They are called
-- in everybody's transactions, so they bring the settings with them under which a plan that was made for a small
-- table serves a large one.
CREATE FUNCTION create_outbox_functions(outbox regclass) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  settings constant text := 'SET search_path = pg_catalog, pg_temp SET enable_seqscan = off';
  events    text := (SELECT format('%I.%I', n.nspname, c.relname)
                     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = outbox);
  pending   text := lockstep.part(outbox, 'pending');
  leases    text := lockstep.part(outbox, 'leases');
  published text := lockstep.part(outbox, 'published');
  inserted  text := lockstep.part(outbox, 'inserted');
  deleted   text := lockstep.part(outbox, 'deleted');
  emptied   text := lockstep.part(outbox, 'emptied');
  -- The unique indexes are each partition's own, so an event is looked for in the others: whoever wrote there has ended
  -- since (lockstep.advance_partition).
  elsewhere text := '';
  unless    text := '';
BEGIN
  IF lockstep.is_partitioned(outbox) THEN
    elsewhere := format($look$
      DECLARE
        repeated uuid;
      BEGIN
        SELECT r.event_id INTO repeated FROM inserted r
        WHERE (SELECT t.sequence FROM %s t WHERE t.event_id = r.event_id AND t.sequence <> r.sequence LIMIT 1) IS NOT NULL LIMIT 1;
        IF FOUND THEN
          RAISE EXCEPTION 'event %% is in %% already', repeated, TG_RELID::regclass USING ERRCODE = 'unique_violation';
        END IF;
      END; $look$, events);
    unless := format('WHERE (SELECT t.sequence FROM %s t WHERE t.event_id = r.c7 LIMIT 1) IS NULL', events);
  END IF;
  -- All that an INSERT is besides its rows: they are checked, queued and told of. With the owner's rights: who may
  -- insert need not be able to touch the queue. What is plainly in order is found so by the conditions here, and
  -- everything else, in words, by lockstep.admit: as ten CHECK constraints they cost more than all the rest.
  -- An aggregate's versions rise with its sequences if each event's next higher version has a higher sequence: one
  -- look at an index, however many of them come in one statement.
  EXECUTE format($function$
    CREATE FUNCTION %1$s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER %2$s AS $body$
    DECLARE
      shards int;
    BEGIN %5$s
      INSERT INTO %3$s (sequence, aggregate_hash, version)
      SELECT CASE WHEN length(r.topic) < 128 AND r.topic ~ '^[a-z0-9.-]+$'
                   AND length(r.event_type) < 256
                   AND r.event_type ~ '^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$'
                   AND octet_length(r.aggregate_id) BETWEEN 1 AND 1024 AND octet_length(r.aggregate_type) BETWEEN 1 AND 1024
                   AND r.version BETWEEN 1 AND 9000000000000000000
                   AND r.occurred_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
                   AND r.content_type IN ('application/protobuf', 'application/json') AND r.attributes = '{}'
                   AND octet_length(r.payload) < 9000000
                   AND (r.tenant_id IS NULL OR octet_length(r.tenant_id) <= 1024)
                   AND (r.traceparent IS NULL OR octet_length(r.traceparent) <= 1024)
                   AND (r.tracestate IS NULL OR octet_length(r.tracestate) <= 1024)
                   AND r.target_space IS NULL
                   AND coalesce((SELECT t.sequence FROM %4$s t
                                 WHERE t.aggregate_id = r.aggregate_id AND t.version %6$s
                                   AND t.aggregate_type = r.aggregate_type AND t.tenant_id IS NOT DISTINCT FROM r.tenant_id
                                 ORDER BY t.version LIMIT 1), 9223372036854775807) > r.sequence
             THEN r.sequence
             ELSE lockstep.admit(TG_RELID, r.sequence, r.topic, r.aggregate_type, r.aggregate_id, r.event_type, r.version,
                                 r.payload, r.tenant_id, r.content_type, r.attributes, r.traceparent, r.tracestate,
                                 r.occurred_at, r.target_space)
             END,
             lockstep.aggregate_hash(r.aggregate_id, r.aggregate_type, r.tenant_id), r.version
      FROM inserted r;
      -- An event that a crash could erase must not be published.
      IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
      END IF;
      -- NOTIFY takes a database-wide lock at commit, so it is sent to a sleeper only. A sleeping owner
      -- holds this lock exclusively. Holding it shared, until the transaction ends, keeps an owner that is
      -- awake from falling asleep before it has seen this row.
      SELECT o.shards INTO shards FROM lockstep.outboxes o WHERE o.outbox = TG_RELID;
      IF shards = 1 THEN
        IF NOT pg_try_advisory_xact_lock_shared(lockstep.lock_key('wake', TG_RELID, 0)) THEN
          PERFORM pg_notify(lockstep.wake_channel(TG_RELID), '0');
        END IF;
      ELSE
        PERFORM pg_notify(lockstep.wake_channel(TG_RELID), d.shard::text)
        FROM (SELECT DISTINCT lockstep.shard_of(r.aggregate_id, shards) AS shard FROM inserted r) d
        WHERE NOT pg_try_advisory_xact_lock_shared(lockstep.lock_key('wake', TG_RELID, d.shard));
      END IF;
      RETURN NULL;
    END $body$ $function$, inserted, settings, pending, events, elsewhere,
    CASE elsewhere WHEN '' THEN '> r.version' ELSE '>= r.version AND t.sequence <> r.sequence' END);
  EXECUTE format('CREATE TRIGGER lockstep_inserted AFTER INSERT ON %s REFERENCING NEW TABLE AS inserted '
                 'FOR EACH STATEMENT EXECUTE FUNCTION %s()', events, inserted);

  -- An event that is deleted, by the cleaner or by hand, takes with it what became of it.
  EXECUTE format($function$
    CREATE FUNCTION %1$s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER %2$s SET enable_hashjoin = off SET enable_mergejoin = off AS $body$
    BEGIN
      DELETE FROM %3$s p USING deleted d
      WHERE p.aggregate_hash = lockstep.aggregate_hash(d.aggregate_id, d.aggregate_type, d.tenant_id)
        AND p.version = d.version AND p.sequence = d.sequence;
      DELETE FROM %4$s p USING deleted d WHERE p.sequence = d.sequence;
      RETURN NULL;
    END $body$ $function$, deleted, settings, pending, published);
  EXECUTE format('CREATE TRIGGER lockstep_deleted AFTER DELETE ON %s REFERENCING OLD TABLE AS deleted '
                 'FOR EACH STATEMENT EXECUTE FUNCTION %s()', events, deleted);
  EXECUTE format($function$
    CREATE FUNCTION %1$s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER %2$s AS $body$
    BEGIN
      TRUNCATE %3$s, %4$s, %5$s;
      RETURN NULL;
    END $body$ $function$, emptied, settings, pending, published, leases);
  EXECUTE format('CREATE TRIGGER lockstep_emptied AFTER TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s()', events, emptied);
  -- Whoever could put them on a table of his own could write into the queue.
  EXECUTE format('REVOKE ALL ON FUNCTION %s(), %s(), %s() FROM PUBLIC', inserted, deleted, emptied);

  -- For a claim, which has locked `candidates` by now: what has happened to leases since it began. A claim sees the
  -- leases of its beginning (`seen`: those that count, `mine` among them), and locks rows that another claim may have let
  -- go of a moment ago, under a lease that it can't see. This function can: its statements are later than those locks.
  -- `busy`: rows that are another's after all. `lapsed`: rows of leases that were over, and are no more: whoever is
  -- marking rows under one holds it, and keeps it. That there was a claim is noted in those rows that the caller does not
  -- have itself.
  EXECUTE format($function$
    CREATE FUNCTION %1$s(since timestamptz, seen uuid[], mine uuid[], ttl interval, candidates bigint[],
                         OUT busy bigint[], OUT lapsed bigint[]) LANGUAGE plpgsql STRICT %2$s SET enable_hashjoin = off SET enable_mergejoin = off AS $body$
    BEGIN
      PERFORM FROM %3$s l WHERE l.claimed_at >= since AND l.token <> ALL (seen);
      IF NOT FOUND THEN RETURN; END IF;
      WITH over AS (
        DELETE FROM %3$s WHERE token = ANY (ARRAY(
          SELECT l.token FROM %3$s l
          WHERE l.claimed_at >= since AND l.token <> ALL (seen) AND l.token <> ALL (mine)
            AND (l.locked_at <= statement_timestamp() - ttl OR l.locked_at > statement_timestamp() + ttl)
          FOR UPDATE SKIP LOCKED))
        RETURNING sequences, locked_at),
      rows AS MATERIALIZED (SELECT s.sequence, o.locked_at FROM over o, unnest(o.sequences) s(sequence)),
      noted AS (
        UPDATE %4$s t SET locked_at = r.locked_at
        FROM rows r JOIN %5$s e ON e.sequence = r.sequence
        WHERE t.aggregate_hash = lockstep.aggregate_hash(e.aggregate_id, e.aggregate_type, e.tenant_id)
          AND t.version = e.version AND t.sequence = ANY (ARRAY(
            SELECT p.sequence FROM %4$s p
            WHERE p.aggregate_hash = lockstep.aggregate_hash(e.aggregate_id, e.aggregate_type, e.tenant_id)
              AND p.version = e.version AND p.sequence = r.sequence AND p.sequence <> ALL (candidates)
            FOR UPDATE SKIP LOCKED)))
      SELECT array_agg(r.sequence) INTO lapsed FROM rows r;
      SELECT array_agg(s.sequence) INTO busy FROM %3$s l, unnest(l.sequences) s(sequence)
      WHERE l.claimed_at >= since AND l.token <> ALL (seen);
    END $body$ $function$, lockstep.part(outbox, 'changed_leases'), settings, leases, pending, events);

  -- These two are called by lockstep.enqueue and lockstep.enqueue_many alone, under their settings.
  EXECUTE format($function$
    CREATE FUNCTION %1$s(topic text, aggregate_type text, aggregate_id text, event_type text, version bigint, payload bytea,
                         event_id uuid, tenant_id text, schema_version int, content_type text, attributes jsonb,
                         traceparent text, tracestate text, occurred_at timestamptz, target_space text)
    RETURNS bigint LANGUAGE plpgsql AS $body$
    #variable_conflict use_column
    DECLARE
      result bigint;
    BEGIN
      -- Any conflict, not only that of the event's id: of a repeated event whose first transaction is about to
      -- commit, whichever index is looked at first finds it.
      INSERT INTO %2$s AS t (topic, aggregate_type, aggregate_id, event_type, version, payload, event_id, tenant_id,
                             schema_version, content_type, attributes, traceparent, tracestate, occurred_at, target_space)
      %4$s
      ON CONFLICT DO NOTHING
      RETURNING t.sequence INTO result;
      IF result IS NULL THEN
        EXECUTE format('SELECT t.sequence FROM %%s t WHERE t.event_id = $1', %3$L) INTO result USING $7;
      END IF;
      IF result IS NULL THEN  -- the version is taken
        result := lockstep.admit(%3$L, 9223372036854775807, $1, $2, $3, $4, $5, $6, $8, $10, $11, $12, $13, $14, $15);
      END IF;
      RETURN result;
    END $body$ $function$, lockstep.part(outbox, 'enqueue'), events, events,
    CASE unless WHEN '' THEN 'VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)'
      ELSE 'SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15 FROM (SELECT $7 AS c7) r ' || unless END);

  EXECUTE format($function$
    CREATE FUNCTION %1$s(topics text[], aggregate_types text[], aggregate_ids text[], event_types text[], versions bigint[],
                         payloads bytea[], event_ids uuid[], tenant_ids text[], schema_versions int[], content_types text[],
                         attributes jsonb[], traceparents text[], tracestates text[], occurred_at timestamptz[],
                         target_spaces text[])
    RETURNS bigint[] LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $body$
    #variable_conflict use_column
    DECLARE
      result  bigint[];
      missing int;
    BEGIN
      INSERT INTO %3$s (topic, aggregate_type, aggregate_id, event_type, version, payload, event_id, tenant_id,
                        schema_version, content_type, attributes, traceparent, tracestate, occurred_at, target_space)
      SELECT r.c1, r.c2, r.c3, r.c4, r.c5, r.c6, r.c7, r.c8, coalesce(r.c9, 1), coalesce(r.c10, 'application/protobuf'),
             coalesce(r.c11, '{}'), r.c12, r.c13, coalesce(r.c14, now()), r.c15
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
           AS r(c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15)
      %5$s
      ON CONFLICT DO NOTHING;
      SELECT array_agg(t.sequence ORDER BY r.n), min(r.n) FILTER (WHERE t.sequence IS NULL) INTO result, missing
      FROM unnest($7) WITH ORDINALITY r(event_id, n) LEFT JOIN %3$s t ON t.event_id = r.event_id;
      IF missing IS NOT NULL THEN  -- the version is taken
        PERFORM lockstep.admit(%4$L, 9223372036854775807, $1[missing], $2[missing], $3[missing], $4[missing], $5[missing], $6[missing],
                               $8[missing], coalesce($10[missing], 'application/protobuf'), coalesce($11[missing], '{}'),
                               $12[missing], $13[missing], coalesce($14[missing], now()), $15[missing]);
      END IF;
      RETURN result;
    END $body$ $function$, lockstep.part(outbox, 'enqueue_many'), settings, events, events, unless);

  -- With the owner's rights, for the publisher: it makes and drops partitions, and nothing else of the owner's.
  IF lockstep.is_partitioned(outbox) THEN
    EXECUTE format('CREATE FUNCTION %s() RETURNS int LANGUAGE sql SECURITY DEFINER %s AS %L',
                   lockstep.part(outbox, 'make_partitions'), settings, format('SELECT lockstep.make_partitions(%L)', events));
    EXECUTE format('CREATE FUNCTION %s() RETURNS boolean LANGUAGE sql SECURITY DEFINER %s AS %L',
                   lockstep.part(outbox, 'advance_partition'), settings, format('SELECT lockstep.advance_partition(%L)', events));
    EXECUTE format('CREATE FUNCTION %s(retention interval, OUT dropped text, OUT stays_below bigint) LANGUAGE sql SECURITY DEFINER %s '
                   'AS %L', lockstep.part(outbox, 'drop_partition'), settings,
                   format('SELECT * FROM lockstep.drop_partition(%L::regclass, $1)', events));
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', lockstep.partition_functions(outbox));
  END IF;
END $$;

-- Makes an outbox, and its schema if need be. One that exists is left as it is. `partition`: 'day' or 'hour'; NULL = none.
CREATE FUNCTION create_outbox(name text, shards int DEFAULT 1, dedup_window interval DEFAULT NULL, partition text DEFAULT NULL)
RETURNS regclass
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  vacuumed    constant text := lockstep.vacuum_settings();
  by_sequence constant text := 'PARTITION BY RANGE (sequence)';
  parts  text[] := parse_ident(name);
  target regclass;
BEGIN
  IF coalesce(array_length(parts, 1), 0) <> 2 THEN
    RAISE EXCEPTION 'name the outbox with its schema, as in catalog.video_outbox (got "%")', name
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF octet_length(parts[2]) > 48 THEN
    RAISE EXCEPTION 'the name of an outbox has at most 48 bytes: the tables beside it are named after it (got "%")', parts[2]
      USING ERRCODE = 'name_too_long';
  END IF;
  -- Two that make the same one at once: the second finds it made.
  PERFORM pg_advisory_xact_lock(hashtextextended('lockstep.create.' || array_to_string(parts, '.'), 0));
  target := to_regclass(format('%I.%I', parts[1], parts[2]));
  IF target IS NOT NULL THEN
    IF EXISTS (SELECT 1 FROM lockstep.outboxes o WHERE o.outbox = target) THEN
      RETURN target;
    END IF;
    RAISE EXCEPTION '% exists and is not an outbox', name USING ERRCODE = 'duplicate_table';
  END IF;
  IF to_regnamespace(quote_ident(parts[1])) IS NULL THEN
    EXECUTE format('CREATE SCHEMA %I', parts[1]);
  END IF;
  -- The versions' index begins with what tells aggregates apart, and serves the look for a higher version.
  -- A partition has both unique indexes of its own: Postgres has none across partitions that is not of their key.
  EXECUTE format($table$
    CREATE TABLE %I.%I (
      sequence       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      event_id       uuid NOT NULL DEFAULT lockstep.new_event_id(),
      tenant_id      text,
      topic          text NOT NULL,
      aggregate_type text NOT NULL,
      aggregate_id   text NOT NULL,
      event_type     text NOT NULL,
      version        bigint NOT NULL,
      schema_version int NOT NULL DEFAULT 1,
      payload        bytea NOT NULL,
      content_type   text NOT NULL DEFAULT 'application/protobuf',
      attributes     jsonb NOT NULL DEFAULT '{}',
      traceparent    text,
      tracestate     text,
      occurred_at    timestamptz NOT NULL DEFAULT now(),
      created_at     timestamptz NOT NULL DEFAULT now(),
      -- Content dedup, where the outbox has a dedup_window: the same payload is sent to a space once.
      target_space   text,
      payload_sha    bytea GENERATED ALWAYS AS (CASE WHEN target_space IS NOT NULL THEN sha256(payload) END) STORED%s
    ) %s
    $table$, parts[1], parts[2],
    CASE WHEN create_outbox.partition IS NULL
      THEN ', UNIQUE (event_id), UNIQUE NULLS NOT DISTINCT (aggregate_id, version, aggregate_type, tenant_id)' ELSE '' END,
    CASE WHEN create_outbox.partition IS NULL THEN vacuumed ELSE by_sequence END);
  target := to_regclass(format('%I.%I', parts[1], parts[2]));
  -- One index is the claim's order; the other finds the earlier versions of an aggregate, and a row by its event. Rows
  -- come and go, so it is vacuumed by number, not by share.
  EXECUTE format($table$
    CREATE TABLE %1$s (
      sequence       bigint NOT NULL,
      aggregate_hash bigint NOT NULL,
      version        bigint NOT NULL,
      available_at   timestamptz NOT NULL DEFAULT now(),
      attempts       int NOT NULL DEFAULT 0,
      locked_at      timestamptz,  -- when it was claimed last, if that led to nothing
      last_error     text,
      error_code     text,
      taken_by       jsonb,  -- of several routes: those that have it, with their message ids
      dead_at        timestamptz,
      quarantined_at timestamptz,
      PRIMARY KEY (aggregate_hash, version, sequence),
      -- The claim looks at available_at alone. One constraint, for each is read anew by every statement that inserts.
      CONSTRAINT state_can_be CHECK (attempts >= 0
        AND ((dead_at IS NULL AND quarantined_at IS NULL) OR available_at = 'infinity'))
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_scale_factor = 0,
            autovacuum_vacuum_insert_threshold = 100000, autovacuum_analyze_scale_factor = 0.2) $table$, lockstep.part(target, 'pending'));
  EXECUTE format('CREATE INDEX ON %s (available_at, sequence)', lockstep.part(target, 'pending'));
  -- A row is leased while its sequence is in the row of a claim. `claimed_at` stays when a lease is renewed: no row is
  -- claimed before it is available, so a claim that looks from a time on need not know the leases from before it.
  EXECUTE format($table$
    CREATE TABLE %1$s (
      token      uuid PRIMARY KEY,
      owner      text NOT NULL,
      claimed_at timestamptz NOT NULL,
      locked_at  timestamptz NOT NULL,
      sequences  bigint[] NOT NULL
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000) $table$, lockstep.part(target, 'leases'));
  EXECUTE format('CREATE INDEX ON %s (claimed_at)', lockstep.part(target, 'leases'));
  EXECUTE format($table$
    CREATE TABLE %1$s (
      sequence     bigint PRIMARY KEY,
      published_at timestamptz NOT NULL,
      attempts     int NOT NULL,
      message_id   text,
      taken_by     jsonb
    ) %2$s $table$, lockstep.part(target, 'published'), CASE WHEN create_outbox.partition IS NULL THEN vacuumed ELSE by_sequence END);
  EXECUTE format('CREATE INDEX ON %s (published_at)', lockstep.part(target, 'published'));
  -- With its reader's rights, which is why it has no payload: who looks may not read that.
  EXECUTE format($view$
    CREATE VIEW %1$s WITH (security_invoker) AS
    SELECT e.sequence, e.event_id, e.tenant_id, e.topic, e.aggregate_type, e.aggregate_id, e.event_type, e.version,
           e.schema_version, e.content_type, e.attributes, e.traceparent, e.tracestate, e.occurred_at, e.created_at,
           e.target_space, e.payload_sha,
           b.published_at, b.message_id, coalesce(p.attempts, b.attempts, 0) AS attempts, p.available_at,
           l.token AS lock_token, l.owner AS locked_by, coalesce(l.locked_at, p.locked_at) AS locked_at,
           p.last_error, p.error_code, coalesce(p.taken_by, b.taken_by, '{}') AS taken_by, p.dead_at, p.quarantined_at
    FROM %2$s e
    LEFT JOIN %3$s p ON p.aggregate_hash = lockstep.aggregate_hash(e.aggregate_id, e.aggregate_type, e.tenant_id)
                    AND p.version = e.version AND p.sequence = e.sequence
    LEFT JOIN %4$s b ON b.sequence = e.sequence
    LEFT JOIN LATERAL (
      SELECT l.token, l.owner, l.locked_at FROM %5$s l WHERE p.sequence = ANY (l.sequences) ORDER BY l.claimed_at DESC LIMIT 1
    ) l ON p.sequence IS NOT NULL $view$,
    lockstep.part(target, 'status'), target, lockstep.part(target, 'pending'), lockstep.part(target, 'published'),
    lockstep.part(target, 'leases'));
  INSERT INTO lockstep.outboxes (outbox, shards, dedup_window, partition, hash_probe, enqueue)
  VALUES (target, create_outbox.shards, create_outbox.dedup_window, create_outbox.partition, lockstep.hash_probe(),
          format('SELECT %s($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)', lockstep.part(target, 'enqueue')));
  PERFORM lockstep.create_outbox_functions(target);
  IF create_outbox.partition IS NOT NULL THEN
    PERFORM lockstep.make_partitions(target), lockstep.advance_partition(target);
  END IF;
  RETURN target;
END $$;

-- Content dedup from now on, for so long; NULL = no longer. Rows say by target_space whether it is for them.
CREATE FUNCTION set_dedup_window(outbox regclass, dedup_window interval) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE lockstep.outboxes o SET dedup_window = set_dedup_window.dedup_window WHERE o.outbox = set_dedup_window.outbox;
  IF NOT FOUND THEN
    RAISE EXCEPTION '% is not an outbox', outbox USING ERRCODE = 'wrong_object_type';
  END IF;
END $$;

-- Takes an outbox away; refused while it has unpublished rows, unless forced. Behind a reader it gives up soon:
-- writers would wait behind it.
CREATE FUNCTION drop_outbox(outbox regclass, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
  pending text := lockstep.part(outbox, 'pending');
  own     text[];
  part    text;
  waiting bigint;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM lockstep.outboxes o WHERE o.outbox = drop_outbox.outbox) THEN
    RAISE EXCEPTION '% is not an outbox', outbox USING ERRCODE = 'wrong_object_type';
  END IF;
  EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', outbox);
  EXECUTE format('SELECT count(*) FROM %s', pending) INTO waiting;
  IF waiting > 0 AND NOT force THEN
    RAISE EXCEPTION '% has % unpublished rows: let the publisher drain it first, or force it', outbox, waiting
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  DELETE FROM lockstep.outboxes o WHERE o.outbox = drop_outbox.outbox;
  own := ARRAY(SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_class c ON p.pronamespace = c.relnamespace
               WHERE c.oid = outbox AND p.proname = ANY (ARRAY[
                 c.relname || '_inserted', c.relname || '_deleted', c.relname || '_emptied', c.relname || '_changed_leases',
                 c.relname || '_enqueue', c.relname || '_enqueue_many', c.relname || '_make_partitions',
                 c.relname || '_advance_partition', c.relname || '_drop_partition']));
  EXECUTE format('DROP VIEW %s', lockstep.part(outbox, 'status'));
  EXECUTE format('DROP TABLE %s, %s, %s, %s', pending, lockstep.part(outbox, 'leases'), lockstep.part(outbox, 'published'), outbox);
  FOREACH part IN ARRAY own LOOP
    EXECUTE format('DROP FUNCTION %s', part);
  END LOOP;
END $$;

-- Makes the queue's hashes anew, where a server hashes otherwise than the one that made them: another version of Postgres,
-- another machine. Nothing is claimed meanwhile; the publisher says when it is needed.
CREATE FUNCTION rehash(outbox regclass) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  EXECUTE format('LOCK TABLE %s IN EXCLUSIVE MODE', lockstep.part(outbox, 'pending'));
  EXECUTE format('UPDATE %s p SET aggregate_hash = lockstep.aggregate_hash(e.aggregate_id, e.aggregate_type, e.tenant_id) '
                 'FROM %s e WHERE e.sequence = p.sequence', lockstep.part(outbox, 'pending'), outbox);
  UPDATE lockstep.outboxes o SET hash_probe = lockstep.hash_probe() WHERE o.outbox = rehash.outbox;
END $$;

-- 5. Partitions ---------------------------------------------------------------------------------------------

-- Partition n is for the n-th day (hour) since 1970 in UTC, and has 2^36 (2^33) sequences to itself, from n * 2^36 on; all
-- of them stay below 2^53, which JSON can hold. The sequence goes on to the next one when its time has come and it is
-- there. So no row ever finds no partition: while nobody goes on, rows come into the last one, for which they can't be
-- too many.
CREATE FUNCTION is_partitioned(outbox regclass) RETURNS boolean LANGUAGE sql STABLE
RETURN (SELECT relkind = 'p' FROM pg_class WHERE oid = outbox);
CREATE FUNCTION partition_bits(unit text) RETURNS int LANGUAGE sql IMMUTABLE
RETURN CASE unit WHEN 'hour' THEN 33 ELSE 36 END;
CREATE FUNCTION partition_at(unit text, at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN floor(extract(epoch FROM at) / CASE unit WHEN 'hour' THEN 3600 ELSE 86400 END)::bigint;
CREATE FUNCTION partition_begin(unit text, n bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE
RETURN to_timestamp(n * CASE unit WHEN 'hour' THEN 3600 ELSE 86400 END);
CREATE FUNCTION vacuum_settings() RETURNS text LANGUAGE sql IMMUTABLE
RETURN 'WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)';

-- The suffix of a partition's name; its log is named so behind 'log_'.
CREATE FUNCTION partition_name(unit text, n bigint) RETURNS text LANGUAGE sql STABLE
RETURN to_char(lockstep.partition_begin(unit, n) AT TIME ZONE 'UTC', CASE unit WHEN 'hour' THEN 'YYYYMMDDHH24' ELSE 'YYYYMMDD' END);

-- Those that its publisher may call.
CREATE FUNCTION partition_functions(outbox regclass) RETURNS text LANGUAGE sql STABLE
RETURN format('%s(), %s(), %s(interval)', lockstep.part(outbox, 'make_partitions'), lockstep.part(outbox, 'advance_partition'),
              lockstep.part(outbox, 'drop_partition'));

-- The partition that rows come into now.
CREATE FUNCTION current_partition(outbox regclass) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  last bigint;
BEGIN
  EXECUTE format('SELECT last_value FROM %s', pg_get_serial_sequence(lockstep.outbox_name(outbox), 'sequence')) INTO last;
  RETURN last >> lockstep.partition_bits((SELECT o.partition FROM lockstep.outboxes o WHERE o.outbox = current_partition.outbox));
END $$;

-- Partition n, of events and log. False = it is there. Writers go on meanwhile: a table is made first, then attached.
CREATE FUNCTION make_partition(outbox regclass, n bigint) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  unit   text := (SELECT o.partition FROM lockstep.outboxes o WHERE o.outbox = make_partition.outbox);
  suffix text := lockstep.partition_name(unit, n);
  bits   int  := lockstep.partition_bits(unit);
  of     text;
  made   text;
BEGIN
  IF lockstep.part_oid(outbox, suffix) IS NOT NULL THEN RETURN false; END IF;
  FOR of, made IN VALUES (lockstep.outbox_name(outbox), lockstep.part(outbox, suffix)),
                         (lockstep.part(outbox, 'published'), lockstep.part(outbox, 'log_' || suffix)) LOOP
    EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING GENERATED INCLUDING INDEXES) %s', made, of, lockstep.vacuum_settings());
    IF made = lockstep.part(outbox, suffix) THEN
      EXECUTE format('ALTER TABLE %s ADD UNIQUE (event_id), ADD UNIQUE NULLS NOT DISTINCT (aggregate_id, version, aggregate_type, tenant_id)', made);
    END IF;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)', of, made, n << bits, (n + 1) << bits);
  END LOOP;
  RETURN true;
END $$;

-- Those of now and of the next two days (hours), as far as they are not there. Answers how many it made.
CREATE FUNCTION make_partitions(outbox regclass) RETURNS int LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '1s' AS $$
DECLARE
  unit text   := (SELECT o.partition FROM lockstep.outboxes o WHERE o.outbox = make_partitions.outbox);
  n    bigint := lockstep.partition_at(unit, now());
BEGIN
  IF unit IS NULL THEN
    RAISE EXCEPTION '% is not a partitioned outbox', outbox USING ERRCODE = 'wrong_object_type';
  END IF;
  PERFORM pg_advisory_xact_lock(lockstep.lock_key('partition', outbox, 0));
  RETURN (SELECT count(*) FILTER (WHERE lockstep.make_partition(outbox, i)) FROM generate_series(n, n + 2) i);
END $$;

-- The sequence goes on to the partition of now, if rows come into an older one and that of now is there. To be called in
-- another transaction than what made it. It waits until all who have written have ended, and others wait behind it, for half a
-- second at most: afterwards whoever gets a sequence of the new partition finds it, and sees what stands in the others.
CREATE FUNCTION advance_partition(outbox regclass) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
DECLARE
  unit text   := (SELECT o.partition FROM lockstep.outboxes o WHERE o.outbox = advance_partition.outbox);
  n    bigint := lockstep.partition_at(unit, now());
BEGIN
  IF lockstep.current_partition(outbox) >= n OR lockstep.part_oid(outbox, lockstep.partition_name(unit, n)) IS NULL THEN
    RETURN false;
  END IF;
  EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', outbox);  -- against itself too
  IF lockstep.current_partition(outbox) >= n THEN RETURN false; END IF;
  PERFORM setval(pg_get_serial_sequence(lockstep.outbox_name(outbox), 'sequence'), n << lockstep.partition_bits(unit), false);
  RETURN true;
END $$;

-- Drops the oldest partition whose rows were all published before the retention, and no other; one a call, each in a
-- transaction of its own. `stays_below`: what was published so long ago in partitions that stay, for they have rows that
-- are not published, has sequences below it; NULL = there are none. Writers and publishers wait for half a second at most
-- while somebody reads the outbox: then it fails (lock_not_available), and is to be tried later.
CREATE FUNCTION drop_partition(outbox regclass, retention interval, OUT dropped text, OUT stays_below bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
DECLARE
  unit      text   := (SELECT o.partition FROM lockstep.outboxes o WHERE o.outbox = drop_partition.outbox);
  bits      int    := lockstep.partition_bits(unit);
  current   bigint := lockstep.current_partition(outbox);
  published text   := lockstep.part(outbox, 'published');
  pending   text   := lockstep.part(outbox, 'pending');
  waiting   bigint[];  -- partitions with rows that are not published
  n         bigint;
  newest    timestamptz;
BEGIN
  EXECUTE format('SELECT array_agg(DISTINCT sequence >> $1) FROM %s', pending) INTO waiting USING bits;
  FOR n IN SELECT (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?([0-9]+)'))[1]::bigint >> bits AS number
           FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = outbox ORDER BY number LOOP
    EXIT WHEN n >= current;
    EXECUTE format('SELECT max(published_at) FROM %s', lockstep.part(outbox, 'log_' || lockstep.partition_name(unit, n))) INTO newest;
    CONTINUE WHEN coalesce(newest, lockstep.partition_begin(unit, n + 1)) >= now() - retention;
    IF n = ANY (waiting) THEN
      stays_below := (n + 1) << bits;
      CONTINUE;
    END IF;
    -- What was seen is looked at again under the lock: an INSERT may have been under way.
    EXECUTE format('LOCK TABLE %s, %s IN ACCESS EXCLUSIVE MODE', outbox, published);
    EXECUTE format('SELECT max(published_at) FROM %s', lockstep.part(outbox, 'log_' || lockstep.partition_name(unit, n))) INTO newest;
    EXECUTE format('SELECT array_agg(DISTINCT sequence >> $1) FROM %s', pending) INTO waiting USING bits;
    IF n = ANY (waiting) OR coalesce(newest, lockstep.partition_begin(unit, n + 1)) >= now() - retention THEN RETURN; END IF;
    dropped := lockstep.part(outbox, lockstep.partition_name(unit, n));
    EXECUTE format('DROP TABLE %s, %s', dropped, lockstep.part(outbox, 'log_' || lockstep.partition_name(unit, n)));
    RETURN;
  END LOOP;
END $$;

-- 6. Enqueue ------------------------------------------------------------------------------------------------

-- Puts an event into an outbox, in the caller's transaction, as an INSERT does; answers its sequence. A repeated
-- event_id changes nothing and answers the first one's.
CREATE FUNCTION enqueue(outbox regclass, topic text, aggregate_type text, aggregate_id text,
                        event_type text, version bigint, payload bytea,
                        event_id uuid DEFAULT NULL, tenant_id text DEFAULT NULL,
                        schema_version int DEFAULT 1,
                        content_type text DEFAULT 'application/protobuf',
                        attributes jsonb DEFAULT '{}', traceparent text DEFAULT NULL,
                        tracestate text DEFAULT NULL, occurred_at timestamptz DEFAULT now(),
                        target_space text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  call   text;
  fault  text;
  result bigint;
BEGIN
  SELECT o.enqueue INTO call FROM lockstep.outboxes o WHERE o.outbox = enqueue.outbox;
  IF NOT FOUND THEN
    RAISE EXCEPTION '% is not an outbox: make one with lockstep.create_outbox(''schema.name'')', outbox
      USING ERRCODE = 'wrong_object_type';
  END IF;
  IF num_nulls(topic, aggregate_type, aggregate_id, event_type, version, payload, content_type, attributes) > 0 THEN
    fault := lockstep.event_fault(topic, aggregate_type, aggregate_id, event_type, version, payload, tenant_id,
                                  content_type, attributes, traceparent, tracestate, occurred_at);
    RAISE EXCEPTION '% takes no such event: %', outbox, fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  EXECUTE call INTO result
    USING topic, aggregate_type, aggregate_id, event_type, version, payload, coalesce(event_id, lockstep.new_event_id()),
          tenant_id, coalesce(schema_version, 1), content_type, attributes, traceparent, tracestate,
          coalesce(occurred_at, now()), target_space;
  RETURN result;
END $$;

-- The same with a payload of JSON. (Its topic is a varchar, so that a payload whose type the caller does not say goes
-- to the function above.)
CREATE FUNCTION enqueue(outbox regclass, topic varchar, aggregate_type text, aggregate_id text,
                        event_type text, version bigint, payload jsonb,
                        event_id uuid DEFAULT NULL, tenant_id text DEFAULT NULL,
                        schema_version int DEFAULT 1,
                        content_type text DEFAULT 'application/json',
                        attributes jsonb DEFAULT '{}', traceparent text DEFAULT NULL,
                        tracestate text DEFAULT NULL, occurred_at timestamptz DEFAULT now(),
                        target_space text DEFAULT NULL)
RETURNS bigint LANGUAGE sql
RETURN lockstep.enqueue(outbox, topic::text, aggregate_type, aggregate_id, event_type, version, convert_to(payload::text, 'UTF8'),
                        event_id, tenant_id, schema_version, content_type, attributes, traceparent, tracestate, occurred_at,
                        target_space);

-- Puts events into an outbox, the n-th of each array making one, and answers their sequences in that order. As enqueue
-- does each; an array that is NULL, and a NULL in one that may be, stand for enqueue's default.
CREATE FUNCTION enqueue_many(outbox regclass, topics text[], aggregate_types text[], aggregate_ids text[],
                             event_types text[], versions bigint[], payloads bytea[],
                             event_ids uuid[] DEFAULT NULL, tenant_ids text[] DEFAULT NULL,
                             schema_versions int[] DEFAULT NULL, content_types text[] DEFAULT NULL,
                             attributes jsonb[] DEFAULT NULL, traceparents text[] DEFAULT NULL,
                             tracestates text[] DEFAULT NULL, occurred_at timestamptz[] DEFAULT NULL,
                             target_spaces text[] DEFAULT NULL)
RETURNS bigint[] LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  events constant int := coalesce(cardinality(versions), -1);
  result bigint[];
BEGIN
  IF NOT EXISTS (SELECT 1 FROM lockstep.outboxes o WHERE o.outbox = enqueue_many.outbox) THEN
    RAISE EXCEPTION '% is not an outbox: make one with lockstep.create_outbox(''schema.name'')', outbox
      USING ERRCODE = 'wrong_object_type';
  END IF;
  IF EXISTS (SELECT FROM unnest(ARRAY[cardinality(topics), cardinality(aggregate_types), cardinality(aggregate_ids),
                                      cardinality(event_types), cardinality(payloads), coalesce(cardinality(event_ids), events),
                                      coalesce(cardinality(tenant_ids), events), coalesce(cardinality(schema_versions), events),
                                      coalesce(cardinality(content_types), events), coalesce(cardinality(attributes), events),
                                      coalesce(cardinality(traceparents), events), coalesce(cardinality(tracestates), events),
                                      coalesce(cardinality(occurred_at), events), coalesce(cardinality(target_spaces), events)]) n
             WHERE n IS DISTINCT FROM events) THEN
    RAISE EXCEPTION 'lockstep.enqueue_many: the arrays differ in length' USING ERRCODE = 'array_subscript_error';
  END IF;
  IF events = 0 THEN
    RETURN '{}';
  END IF;
  EXECUTE format('SELECT %s($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)', lockstep.part(outbox, 'enqueue_many'))
    INTO result
    USING topics, aggregate_types, aggregate_ids, event_types, versions, payloads,
          ARRAY(SELECT coalesce(e.id, lockstep.new_event_id())
                FROM unnest(coalesce(event_ids, array_fill(NULL::uuid, ARRAY[events]))) WITH ORDINALITY e(id, n) ORDER BY e.n),
          tenant_ids, schema_versions, content_types, attributes, traceparents, tracestates, occurred_at, target_spaces;
  RETURN result;
END $$;

-- 7. Rows ---------------------------------------------------------------------------------------------------

-- The rows behind a blocker that is gone (published, replayed, deleted, skipped) become available: the
-- safety net behind what the relay releases itself. Answers how many.
CREATE FUNCTION release_held(outbox regclass, dead_blocks boolean DEFAULT true) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  released bigint;
BEGIN
  EXECUTE format($update$
    WITH held AS (
      SELECT DISTINCT aggregate_hash FROM %1$s
      WHERE available_at = 'infinity' AND dead_at IS NULL AND quarantined_at IS NULL),
    free AS (
      SELECT h.aggregate_hash FROM held h WHERE NOT EXISTS (
        SELECT 1 FROM %1$s b WHERE b.aggregate_hash = h.aggregate_hash
           AND (b.available_at < 'infinity' OR b.quarantined_at IS NOT NULL OR (b.dead_at IS NOT NULL AND $1))))
    UPDATE %1$s t SET available_at = now() FROM free f
    WHERE t.aggregate_hash = f.aggregate_hash AND t.available_at = 'infinity' AND t.dead_at IS NULL
      AND t.quarantined_at IS NULL $update$, lockstep.part(outbox, 'pending')) USING dead_blocks;
  GET DIAGNOSTICS released = ROW_COUNT;
  RETURN released;
END $$;

-- What lockstepctl does to rows by hand, with an audit entry each. Answers how many rows changed.
--
-- A row that somebody is at is taken from him. In three steps: whoever is marking rows holds their lease and then wants
-- the rows, so the leases come first; a claim that was under way holds rows and has a lease when they are let go, so
-- what is taken from leases comes last.
CREATE FUNCTION change_rows(outbox regclass, sequences bigint[], action text, actor text, note text,
                            changes text, condition text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  pending text := lockstep.part(outbox, 'pending');
  leases  text := lockstep.part(outbox, 'leases');
  changed bigint[];
BEGIN
  EXECUTE format('SELECT count(*) FROM (SELECT FROM %s WHERE sequences && $1 FOR UPDATE) l', leases) USING sequences;
  EXECUTE format($update$
    WITH target AS (
      SELECT e.sequence, e.event_id, e.version, lockstep.aggregate_hash(e.aggregate_id, e.aggregate_type, e.tenant_id) AS aggregate_hash
      FROM %1$s e WHERE e.sequence = ANY ($1)),
    changed AS (
      UPDATE %2$s t SET %3$s FROM target e
      WHERE t.aggregate_hash = e.aggregate_hash AND t.version = e.version AND t.sequence = e.sequence AND %4$s
      RETURNING t.sequence, e.event_id, t.aggregate_hash, t.available_at),
    audited AS (
      INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, note)
      SELECT $2, $3, $4, sequence, event_id, $5 FROM changed),
    followers AS (
      UPDATE %2$s t SET available_at = now()
      FROM (SELECT DISTINCT aggregate_hash FROM changed WHERE available_at < 'infinity') c
      WHERE t.available_at = 'infinity' AND t.dead_at IS NULL AND t.quarantined_at IS NULL
        AND t.sequence NOT IN (SELECT sequence FROM changed) AND t.aggregate_hash = c.aggregate_hash)
    SELECT coalesce(array_agg(sequence), '{}') FROM changed $update$, outbox, pending, changes, condition)
    INTO changed USING sequences, actor, action, lockstep.outbox_name(outbox), note;
  EXECUTE format('UPDATE %s l SET sequences = ARRAY(SELECT s FROM unnest(l.sequences) s WHERE s <> ALL ($1)) '
                 'WHERE l.sequences && $1', leases) USING changed;
  PERFORM pg_notify(lockstep.wake_channel(outbox), '');
  RETURN cardinality(changed);
END $$;

-- A dead row starts over.
CREATE FUNCTION replay(outbox regclass, sequences bigint[], actor text, note text DEFAULT NULL)
RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT lockstep.change_rows(outbox, sequences, 'replay', actor, note,
    'attempts = 0, available_at = now(), last_error = NULL, error_code = NULL, dead_at = NULL', 't.dead_at IS NOT NULL AND t.quarantined_at IS NULL')
$$;

-- Kept from every automatic path until it is released.
CREATE FUNCTION quarantine(outbox regclass, sequences bigint[], actor text, note text)
RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT lockstep.change_rows(outbox, sequences, 'quarantine', actor, note,
    'quarantined_at = now(), available_at = ''infinity''',
    't.quarantined_at IS NULL')
$$;

-- Ends a quarantine; a row that was dead is dead again.
CREATE FUNCTION release(outbox regclass, sequences bigint[], actor text, note text DEFAULT NULL)
RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT lockstep.change_rows(outbox, sequences, 'release', actor, note,
    'quarantined_at = NULL, available_at = CASE WHEN t.dead_at IS NULL THEN now() ELSE ''infinity'' END',
    't.quarantined_at IS NOT NULL')
$$;

-- Takes an outbox's old audits away: the one change of the audit that a publisher may make, with its owner's
-- right. What is younger than 30 days stays, whatever it asks for.
CREATE FUNCTION clean_audit(outbox regclass, older_than interval, at_most int) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  gone bigint;
BEGIN
  IF NOT has_column_privilege(session_user, lockstep.part_oid(clean_audit.outbox, 'pending'), 'attempts', 'UPDATE') THEN
    RAISE EXCEPTION 'permission denied for the audit of %: its publisher cleans it', outbox USING ERRCODE = 'insufficient_privilege';
  END IF;
  DELETE FROM lockstep.outbox_audit WHERE id = ANY (ARRAY (
    SELECT a.id FROM lockstep.outbox_audit a
    WHERE a.outbox = lockstep.outbox_name(clean_audit.outbox)
      AND a.at < least(now() - older_than, now() - interval '30 days') LIMIT at_most));
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END $$;
REVOKE ALL ON FUNCTION clean_audit(regclass, interval, int) FROM PUBLIC;

-- 8. Rights -------------------------------------------------------------------------------------------------

-- The least rights that each part needs. The roles are the user's own; these functions grant to them, and
-- revoke_rights takes everything back. Whoever calls them owns the outbox.

-- For everybody who touches an outbox: to see the schemas and which outboxes there are.
CREATE FUNCTION grant_entry(outbox regclass, role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  home text := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = outbox);
BEGIN
  IF NOT EXISTS (SELECT 1 FROM lockstep.outboxes o WHERE o.outbox = grant_entry.outbox) THEN
    RAISE EXCEPTION '% is not an outbox', outbox USING ERRCODE = 'wrong_object_type';
  END IF;
  EXECUTE format('GRANT USAGE ON SCHEMA lockstep, %I TO %s', home, role);
  EXECUTE format('GRANT SELECT ON lockstep.outboxes, lockstep.schema_migrations TO %s', role);
END $$;

-- A service that enqueues. It writes events, never their dispatch state; it reads the columns by
-- which enqueue recognises a repeated event and an old version, and no payload.
CREATE FUNCTION grant_writer(outbox regclass, role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM lockstep.grant_entry(outbox, role);
  EXECUTE format('GRANT SELECT (sequence, event_id, tenant_id, aggregate_type, aggregate_id, version), '
                 'INSERT (event_id, topic, tenant_id, aggregate_type, aggregate_id, event_type, version, '
                 'schema_version, payload, content_type, attributes, traceparent, tracestate, occurred_at, target_space) '
                 'ON %s TO %s', outbox, role);
END $$;

-- A publisher: reads, leases, marks and cleans, and never changes an event.
CREATE FUNCTION grant_publisher(outbox regclass, role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM lockstep.grant_entry(outbox, role);
  EXECUTE format('GRANT UPDATE (shards) ON lockstep.outboxes TO %s', role);
  EXECUTE format('GRANT SELECT, INSERT (actor, action, outbox, sequence, event_id, note, detail) '
                 'ON lockstep.outbox_audit TO %s', role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION lockstep.clean_audit(regclass, interval, int) TO %s', role);
  -- payload_sha can't be changed (it is generated): to lock a row, a right to change one of its columns is needed.
  EXECUTE format('GRANT SELECT, DELETE, UPDATE (payload_sha) ON %s TO %s', outbox, role);
  EXECUTE format('GRANT SELECT, DELETE, UPDATE (attempts, available_at, locked_at, last_error, error_code, taken_by, dead_at) '
                 'ON %s TO %s', lockstep.part(outbox, 'pending'), role);
  EXECUTE format('GRANT SELECT, INSERT, DELETE, UPDATE ON %s TO %s', lockstep.part(outbox, 'leases'), role);
  EXECUTE format('GRANT SELECT, INSERT ON %s TO %s', lockstep.part(outbox, 'published'), role);
  EXECUTE format('GRANT SELECT ON %s TO %s', lockstep.part(outbox, 'status'), role);
  IF lockstep.is_partitioned(outbox) THEN
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', lockstep.partition_functions(outbox), role);
  END IF;
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON lockstep.outbox_contents TO %s', role);
  EXECUTE format('GRANT SELECT, UPDATE (state, begun_at, ended_at, start_lsn, highest, cursor, last_events, rows_done, '
                 'rows_expected, progress_at, failures, retry_at, last_error, lease_token, lease_owner, lease_until) '
                 'ON lockstep.backfills TO %s', role);
  EXECUTE format('GRANT SELECT, DELETE ON lockstep.backfill_keys TO %s', role);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON lockstep.publishers TO %s', role);
END $$;

-- Who looks: lockstepctl outbox list, show; backfill list, status. Everything but payloads.
CREATE FUNCTION grant_reader(outbox regclass, role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  columns text := (SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
                   WHERE attrelid = outbox AND attnum > 0 AND NOT attisdropped AND attname <> 'payload');
BEGIN
  PERFORM lockstep.grant_entry(outbox, role);
  EXECUTE format('GRANT SELECT ON lockstep.outbox_audit, lockstep.backfills, lockstep.publishers TO %s', role);
  EXECUTE format('GRANT SELECT (%s) ON %s TO %s', columns, outbox, role);
  EXECUTE format('GRANT SELECT ON %s, %s, %s, %s TO %s', lockstep.part(outbox, 'pending'), lockstep.part(outbox, 'leases'),
                 lockstep.part(outbox, 'published'), lockstep.part(outbox, 'status'), role);
END $$;

-- Who intervenes: a reader that may also replay, quarantine and release rows, and have the publisher send what the
-- publisher may read: backfills. Neither publishes nor deletes.
CREATE FUNCTION grant_operator(outbox regclass, role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM lockstep.grant_reader(outbox, role);
  EXECUTE format('GRANT INSERT (actor, action, outbox, sequence, event_id, note, detail) '
                 'ON lockstep.outbox_audit TO %s', role);
  EXECUTE format('GRANT UPDATE (attempts, available_at, last_error, error_code, dead_at, quarantined_at) ON %s TO %s',
                 lockstep.part(outbox, 'pending'), role);
  EXECUTE format('GRANT UPDATE (sequences) ON %s TO %s', lockstep.part(outbox, 'leases'), role);
  EXECUTE format('GRANT INSERT (id, outbox, name, repair, declaration, descriptors, created_by, reason, rows_expected), '
                 'UPDATE (state, ended_at, failures, retry_at, last_error, lease_token, lease_owner, lease_until) '
                 'ON lockstep.backfills TO %s', role);
  EXECUTE format('GRANT SELECT, INSERT, DELETE ON lockstep.backfill_keys TO %s', role);
END $$;

-- Takes back what the functions above gave. What a role needs for its other outboxes stays.
CREATE FUNCTION revoke_rights(outbox regclass, role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  home oid := (SELECT relnamespace FROM pg_class WHERE oid = outbox);
BEGIN
  EXECUTE format('REVOKE ALL ON %s, %s, %s, %s, %s FROM %s', outbox, lockstep.part(outbox, 'pending'),
                 lockstep.part(outbox, 'leases'), lockstep.part(outbox, 'published'), lockstep.part(outbox, 'status'), role);
  IF lockstep.is_partitioned(outbox) THEN
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s', lockstep.partition_functions(outbox), role);
  END IF;
  IF NOT EXISTS (SELECT 1 FROM pg_class c, aclexplode(c.relacl) a
                 WHERE c.relnamespace = home AND a.grantee = role)
     AND NOT EXISTS (SELECT 1 FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid, aclexplode(t.attacl) a
                     WHERE c.relnamespace = home AND a.grantee = role) THEN
    EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM %s',
                   (SELECT nspname FROM pg_namespace WHERE oid = home), role);
  END IF;
  IF NOT EXISTS (SELECT 1 FROM lockstep.outboxes o JOIN pg_class c ON c.oid = o.outbox, aclexplode(c.relacl) a
                 WHERE a.grantee = role)
     AND NOT EXISTS (SELECT 1 FROM lockstep.outboxes o JOIN pg_attribute t ON t.attrelid = o.outbox,
                                   aclexplode(t.attacl) a
                     WHERE a.grantee = role) THEN
    EXECUTE format('REVOKE ALL ON lockstep.outboxes, lockstep.outbox_audit, lockstep.outbox_contents, lockstep.backfills, lockstep.backfill_keys, '
                   'lockstep.publishers, lockstep.schema_migrations FROM %s', role);
    EXECUTE format('REVOKE ALL ON FUNCTION lockstep.clean_audit(regclass, interval, int) FROM %s', role);
    -- What other sets have in the schema may be granted to the role too.
    IF NOT EXISTS (SELECT 1 FROM pg_class c, aclexplode(c.relacl) a
                   WHERE c.relnamespace = 'lockstep'::regnamespace AND a.grantee = role)
       AND NOT EXISTS (SELECT 1 FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid, aclexplode(t.attacl) a
                       WHERE c.relnamespace = 'lockstep'::regnamespace AND a.grantee = role)
       AND NOT EXISTS (SELECT 1 FROM pg_proc p, aclexplode(p.proacl) a
                       WHERE p.pronamespace = 'lockstep'::regnamespace AND a.grantee = role) THEN
      EXECUTE format('REVOKE USAGE ON SCHEMA lockstep FROM %s', role);
    END IF;
  END IF;
END $$;
