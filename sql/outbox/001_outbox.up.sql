-- The outbox: what lockstep.create_outbox makes, lockstep.enqueue fills and the relay empties.
-- Everything runs with the caller's rights; the grant_ functions give the least of them. No function asks the
-- caller's search_path: the small ones are parsed when they are made (RETURN), the others keep the path of
-- their making, which is this schema behind pg_catalog.
--
--   1. Tables            which outboxes there are, what was done to their rows by hand, backfills
--   2. Names and keys    ids, shards, locks, channels
--   3. An outbox         made and dropped
--   4. Enqueue           what a service calls in its own transaction
--   5. Rows              let go, replayed, quarantined, released
--   6. Rights            for writer, publisher, reader and operator

-- 1. Tables ------------------------------------------------------------------------------------------------

-- The outboxes of this database. `shards` changes only while all shard locks are held, by a publisher of that outbox.
CREATE TABLE outboxes (
  outbox     regclass PRIMARY KEY,
  shards     int NOT NULL DEFAULT 1 CHECK (shards BETWEEN 1 AND 1024),
  created_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE outboxes ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_see ON outboxes USING (true);
CREATE POLICY own_shards ON outboxes AS RESTRICTIVE FOR UPDATE
  USING (has_column_privilege(outbox, 'published_at', 'UPDATE'));

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
  WITH CHECK (has_column_privilege(to_regclass(outbox), 'attempts', 'UPDATE'));

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
  WITH CHECK (has_column_privilege(outbox, 'quarantined_at', 'UPDATE'));
CREATE POLICY own_outbox ON backfills AS RESTRICTIVE FOR UPDATE USING (has_column_privilege(outbox, 'attempts', 'UPDATE'));

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
  SELECT 1 FROM backfills b WHERE b.id = backfill AND has_column_privilege(b.outbox, 'attempts', 'UPDATE')));

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

-- 3. An outbox ----------------------------------------------------------------------------------------------

-- Makes an outbox, and its schema if need be. One that exists is left as it is.
CREATE FUNCTION create_outbox(name text, shards int DEFAULT 1) RETURNS regclass
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  parts  text[] := parse_ident(name);
  target regclass;
BEGIN
  IF coalesce(array_length(parts, 1), 0) <> 2 THEN
    RAISE EXCEPTION 'name the outbox with its schema, as in catalog.video_outbox (got "%")', name
      USING ERRCODE = 'invalid_parameter_value';
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
  -- fillfactor: taking a lease changes no indexed column, so the new row version stays on its page.
  EXECUTE format($table$
    CREATE TABLE %I.%I (
      sequence       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      event_id       uuid NOT NULL UNIQUE,
      tenant_id      text,
      topic          text NOT NULL,
      aggregate_type text NOT NULL,
      aggregate_id   text NOT NULL,
      event_type     text NOT NULL,
      version        bigint NOT NULL CHECK (version > 0),
      schema_version int NOT NULL DEFAULT 1,
      payload        bytea NOT NULL,
      content_type   text NOT NULL DEFAULT 'application/protobuf',
      attributes     jsonb NOT NULL DEFAULT '{}',
      traceparent    text,
      tracestate     text,
      occurred_at    timestamptz NOT NULL DEFAULT now(),
      created_at     timestamptz NOT NULL DEFAULT now(),
      -- the dispatch state
      published_at   timestamptz,
      message_id     text,
      attempts       int NOT NULL DEFAULT 0 CHECK (attempts >= 0),
      available_at   timestamptz NOT NULL DEFAULT now(),
      lock_token     uuid,
      locked_by      text,
      locked_at      timestamptz,  -- of the last claim: it stays when the lease is given back
      last_error     text,
      error_code     text,
      dead_at        timestamptz,
      quarantined_at timestamptz,
      UNIQUE NULLS NOT DISTINCT (tenant_id, aggregate_type, aggregate_id, version),
      CONSTRAINT lease_is_whole CHECK ((lock_token IS NULL) = (locked_by IS NULL)
                                       AND (lock_token IS NULL OR locked_at IS NOT NULL)),
      CONSTRAINT published_is_over CHECK (published_at IS NULL
        OR (lock_token IS NULL AND dead_at IS NULL AND quarantined_at IS NULL)),
      CONSTRAINT message_is_published CHECK (message_id IS NULL OR published_at IS NOT NULL),
      -- The claim looks at available_at alone.
      CONSTRAINT dead_is_unavailable CHECK ((dead_at IS NULL AND quarantined_at IS NULL)
        OR (lock_token IS NULL AND available_at = 'infinity'))
    ) WITH (fillfactor = 70,
            autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)
    $table$, parts[1], parts[2]);
  -- The claim's order; the earlier versions of an aggregate; the cleaner's order; a tenant's backlog.
  EXECUTE format('CREATE INDEX ON %I.%I (available_at, sequence) WHERE published_at IS NULL', parts[1], parts[2]);
  EXECUTE format('CREATE INDEX ON %I.%I (aggregate_id, version) WHERE published_at IS NULL', parts[1], parts[2]);
  EXECUTE format('CREATE INDEX ON %I.%I (published_at, sequence) WHERE published_at IS NOT NULL', parts[1], parts[2]);
  EXECUTE format('CREATE INDEX ON %I.%I (tenant_id, published_at, sequence)', parts[1], parts[2]);
  target := to_regclass(format('%I.%I', parts[1], parts[2]));
  INSERT INTO lockstep.outboxes (outbox, shards) VALUES (target, create_outbox.shards);
  RETURN target;
END $$;

-- Takes an outbox away; refused while it has unpublished rows, unless forced. Behind a reader it gives up soon:
-- writers would wait behind it.
CREATE FUNCTION drop_outbox(outbox regclass, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
  waiting bigint;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM lockstep.outboxes o WHERE o.outbox = drop_outbox.outbox) THEN
    RAISE EXCEPTION '% is not an outbox', outbox USING ERRCODE = 'wrong_object_type';
  END IF;
  EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', outbox);
  EXECUTE format('SELECT count(*) FROM %s WHERE published_at IS NULL', outbox) INTO waiting;
  IF waiting > 0 AND NOT force THEN
    RAISE EXCEPTION '% has % unpublished rows: let the publisher drain it first, or force it', outbox, waiting
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  DELETE FROM lockstep.outboxes o WHERE o.outbox = drop_outbox.outbox;
  EXECUTE format('DROP TABLE %s', outbox);
END $$;

-- 4. Enqueue ------------------------------------------------------------------------------------------------

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
  IF topic IS NULL OR topic !~ '^[a-z0-9.-]{1,127}$' THEN
    RETURN format('topic %L is not made of a-z, 0-9, "." and "-", or is longer than 127', topic);
  ELSIF event_type IS NULL OR length(event_type) > 255
        OR event_type !~ '^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$' THEN
    RETURN format('event type %L is not a name as in protobuf', left(event_type, 100));
  ELSIF coalesce(octet_length(aggregate_id), 0) NOT BETWEEN 1 AND 1024 THEN
    RETURN 'the aggregate id (the ordering key) must have 1 to 1024 bytes';
  ELSIF coalesce(octet_length(aggregate_type), 0) NOT BETWEEN 1 AND 1024 THEN
    RETURN 'the aggregate type must have 1 to 1024 bytes';
  ELSIF version IS NULL OR version < 1 THEN
    RETURN 'versions start at 1';
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

-- Puts an event into an outbox, in the caller's transaction; answers its sequence. A repeated
-- event_id changes nothing and answers the first one's.
CREATE FUNCTION enqueue(outbox regclass, topic text, aggregate_type text, aggregate_id text,
                        event_type text, version bigint, payload bytea,
                        event_id uuid DEFAULT NULL, tenant_id text DEFAULT NULL,
                        schema_version int DEFAULT 1,
                        content_type text DEFAULT 'application/protobuf',
                        attributes jsonb DEFAULT '{}', traceparent text DEFAULT NULL,
                        tracestate text DEFAULT NULL, occurred_at timestamptz DEFAULT now())
RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  same_tenant text := CASE WHEN tenant_id IS NULL THEN 't.tenant_id IS NULL' ELSE 't.tenant_id = $3' END;
  fault   text;
  result  bigint;
  highest bigint;
  shard   int;
BEGIN
  SELECT lockstep.shard_of(enqueue.aggregate_id, o.shards) INTO shard
    FROM lockstep.outboxes o WHERE o.outbox = enqueue.outbox;
  IF NOT FOUND THEN
    RAISE EXCEPTION '% is not an outbox: make one with lockstep.create_outbox(''schema.name'')', outbox
      USING ERRCODE = 'wrong_object_type';
  END IF;
  fault := lockstep.event_fault(topic, aggregate_type, aggregate_id, event_type, version, payload, tenant_id,
                                content_type, attributes, traceparent, tracestate, occurred_at);
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION 'lockstep.enqueue: %', fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  event_id := coalesce(event_id, lockstep.new_event_id());
  -- Any conflict, not only that of the event's id: of a repeated event whose first transaction is about to
  -- commit, whichever index is looked at first finds it.
  EXECUTE format($insert$
    INSERT INTO %1$s AS t (event_id, topic, tenant_id, aggregate_type, aggregate_id, event_type, version,
                           schema_version, payload, content_type, attributes, traceparent, tracestate, occurred_at)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14
    WHERE NOT EXISTS (SELECT 1 FROM %1$s t WHERE %2$s AND t.aggregate_type = $4 AND t.aggregate_id = $5
                                             AND t.version >= $7)
    ON CONFLICT DO NOTHING
    RETURNING sequence $insert$, outbox, same_tenant)
    INTO result
    USING event_id, topic, tenant_id, aggregate_type, aggregate_id, event_type, version, schema_version, payload,
          content_type, attributes, traceparent, tracestate, coalesce(occurred_at, now());
  IF result IS NULL THEN
    EXECUTE format('SELECT t.sequence FROM %s t WHERE t.event_id = $1', outbox) INTO result USING event_id;
    IF result IS NOT NULL THEN
      RETURN result;
    END IF;
    EXECUTE format('SELECT max(t.version) FROM %s t WHERE %s AND t.aggregate_type = $1 AND t.aggregate_id = $2',
                   outbox, same_tenant)
      INTO highest USING aggregate_type, aggregate_id, tenant_id;
    RAISE EXCEPTION 'lockstep.enqueue: version % of % "%" is not above %, the highest that % holds',
      version, aggregate_type, aggregate_id, highest, outbox USING ERRCODE = 'unique_violation';
  END IF;
  -- An event that a crash could erase must not be published.
  IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  -- NOTIFY takes a database-wide lock at commit, so it is sent to a sleeper only. A sleeping owner
  -- holds this lock exclusively. Holding it shared, until the transaction ends, keeps an owner that is
  -- awake from falling asleep before it has seen this row.
  IF NOT pg_try_advisory_xact_lock_shared(lockstep.lock_key('wake', outbox, shard)) THEN
    PERFORM pg_notify(lockstep.wake_channel(outbox), shard::text);
  END IF;
  RETURN result;
END $$;

-- 5. Rows ---------------------------------------------------------------------------------------------------

-- The rows behind a blocker that is gone (published, replayed, deleted, skipped) become available: the
-- safety net behind what the relay releases itself. Answers how many.
CREATE FUNCTION release_held(outbox regclass, dead_blocks boolean DEFAULT true) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  released bigint;
BEGIN
  EXECUTE format($update$
    WITH held AS (
      SELECT DISTINCT tenant_id, aggregate_type, aggregate_id FROM %1$s
      WHERE published_at IS NULL AND available_at = 'infinity' AND dead_at IS NULL AND quarantined_at IS NULL),
    free AS (
      SELECT h.* FROM held h WHERE NOT EXISTS (
        SELECT 1 FROM %1$s b WHERE b.published_at IS NULL AND b.aggregate_id = h.aggregate_id
           AND b.aggregate_type = h.aggregate_type AND b.tenant_id IS NOT DISTINCT FROM h.tenant_id
           AND (b.available_at < 'infinity' OR b.quarantined_at IS NOT NULL OR (b.dead_at IS NOT NULL AND $1))))
    UPDATE %1$s t SET available_at = now() FROM free f
    WHERE t.published_at IS NULL AND t.available_at = 'infinity' AND t.dead_at IS NULL AND t.quarantined_at IS NULL
      AND t.aggregate_id = f.aggregate_id AND t.aggregate_type = f.aggregate_type
      AND t.tenant_id IS NOT DISTINCT FROM f.tenant_id $update$, outbox) USING dead_blocks;
  GET DIAGNOSTICS released = ROW_COUNT;
  RETURN released;
END $$;

-- What lockstepctl does to rows by hand, with an audit entry each. Answers how many rows changed.
CREATE FUNCTION change_rows(outbox regclass, sequences bigint[], action text, actor text, note text,
                            changes text, condition text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  changed bigint;
BEGIN
  EXECUTE format($update$
    WITH changed AS (
      UPDATE %1$s t SET %2$s WHERE t.sequence = ANY ($1) AND t.published_at IS NULL AND %3$s
      RETURNING t.sequence, t.event_id, t.tenant_id, t.aggregate_type, t.aggregate_id, t.available_at),
    audited AS (
      INSERT INTO lockstep.outbox_audit (actor, action, outbox, sequence, event_id, note)
      SELECT $2, $3, $4, sequence, event_id, $5 FROM changed),
    followers AS (
      UPDATE %1$s t SET available_at = now()
      FROM (SELECT DISTINCT tenant_id, aggregate_type, aggregate_id FROM changed WHERE available_at < 'infinity') c
      WHERE t.published_at IS NULL AND t.available_at = 'infinity' AND t.dead_at IS NULL
        AND t.quarantined_at IS NULL AND t.sequence NOT IN (SELECT sequence FROM changed)
        AND t.aggregate_id = c.aggregate_id AND t.aggregate_type = c.aggregate_type
        AND t.tenant_id IS NOT DISTINCT FROM c.tenant_id)
    SELECT count(*) FROM changed $update$, outbox, changes, condition)
    INTO changed USING sequences, actor, action, lockstep.outbox_name(outbox), note;
  PERFORM pg_notify(lockstep.wake_channel(outbox), '');
  RETURN changed;
END $$;

-- A dead row starts over.
CREATE FUNCTION replay(outbox regclass, sequences bigint[], actor text, note text DEFAULT NULL)
RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT lockstep.change_rows(outbox, sequences, 'replay', actor, note,
    'attempts = 0, available_at = now(), last_error = NULL, error_code = NULL, dead_at = NULL, '
    'lock_token = NULL, locked_by = NULL', 't.dead_at IS NOT NULL AND t.quarantined_at IS NULL')
$$;

-- Kept from every automatic path until it is released.
CREATE FUNCTION quarantine(outbox regclass, sequences bigint[], actor text, note text)
RETURNS bigint LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT lockstep.change_rows(outbox, sequences, 'quarantine', actor, note,
    'quarantined_at = now(), available_at = ''infinity'', lock_token = NULL, locked_by = NULL',
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
  IF NOT has_column_privilege(session_user, clean_audit.outbox, 'attempts', 'UPDATE') THEN
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

-- 6. Rights -------------------------------------------------------------------------------------------------

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
                 'schema_version, payload, content_type, attributes, traceparent, tracestate, occurred_at) '
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
  EXECUTE format('GRANT SELECT, DELETE, UPDATE (published_at, message_id, attempts, available_at, lock_token, '
                 'locked_by, locked_at, last_error, error_code, dead_at) ON %s TO %s', outbox, role);
  EXECUTE format('GRANT SELECT, UPDATE (state, begun_at, ended_at, start_lsn, highest, cursor, last_events, rows_done, '
                 'rows_expected, progress_at, failures, retry_at, last_error, lease_token, lease_owner, lease_until) '
                 'ON lockstep.backfills TO %s', role);
  EXECUTE format('GRANT SELECT, DELETE ON lockstep.backfill_keys TO %s', role);
END $$;

-- Who looks: lockstepctl outbox list, pending, dead, quarantined, show; backfill list, status. Everything but payloads.
CREATE FUNCTION grant_reader(outbox regclass, role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  columns text := (SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
                   WHERE attrelid = outbox AND attnum > 0 AND NOT attisdropped AND attname <> 'payload');
BEGIN
  PERFORM lockstep.grant_entry(outbox, role);
  EXECUTE format('GRANT SELECT ON lockstep.outbox_audit, lockstep.backfills TO %s', role);
  EXECUTE format('GRANT SELECT (%s) ON %s TO %s', columns, outbox, role);
END $$;

-- Who intervenes: a reader that may also replay, quarantine and release rows, and have the publisher send what the
-- publisher may read: backfills. Neither publishes nor deletes.
CREATE FUNCTION grant_operator(outbox regclass, role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM lockstep.grant_reader(outbox, role);
  EXECUTE format('GRANT INSERT (actor, action, outbox, sequence, event_id, note, detail) '
                 'ON lockstep.outbox_audit TO %s', role);
  EXECUTE format('GRANT UPDATE (attempts, available_at, lock_token, locked_by, last_error, error_code, dead_at, '
                 'quarantined_at) ON %s TO %s', outbox, role);
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
  EXECUTE format('REVOKE ALL ON %s FROM %s', outbox, role);
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
    EXECUTE format('REVOKE ALL ON lockstep.outboxes, lockstep.outbox_audit, lockstep.backfills, lockstep.backfill_keys, '
                   'lockstep.schema_migrations FROM %s', role);
    EXECUTE format('REVOKE ALL ON FUNCTION lockstep.clean_audit(regclass, interval, int) FROM %s', role);
    EXECUTE format('REVOKE USAGE ON SCHEMA lockstep FROM %s', role);
  END IF;
END $$;
