-- The outbox as it was before events and dispatch state were parted (docs/adr/0014): one wide row, updated by claim
-- and mark. A peer for bench/outbox_bench.cc, in a schema of its own.
CREATE SCHEMA landed;
SET search_path = landed;
CREATE TABLE outboxes (outbox regclass PRIMARY KEY, shards int NOT NULL DEFAULT 1, dedup_window interval);
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

-- Makes an outbox, and its schema if need be. One that exists is left as it is.
CREATE FUNCTION create_outbox(name text, shards int DEFAULT 1, dedup_window interval DEFAULT NULL) RETURNS regclass
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
    IF EXISTS (SELECT 1 FROM landed.outboxes o WHERE o.outbox = target) THEN
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
      -- Content dedup, where the outbox has a dedup_window: the same payload is sent to a space once.
      target_space   text CHECK (octet_length(target_space) BETWEEN 1 AND 1024),
      payload_sha    bytea GENERATED ALWAYS AS (CASE WHEN target_space IS NOT NULL THEN sha256(payload) END) STORED,
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
      taken_by       jsonb NOT NULL DEFAULT '{}',  -- of several routes: those that have it, with their message ids
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
  INSERT INTO landed.outboxes (outbox, shards, dedup_window) VALUES (target, create_outbox.shards, create_outbox.dedup_window);
  RETURN target;
END $$;

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
                        tracestate text DEFAULT NULL, occurred_at timestamptz DEFAULT now(),
                        target_space text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  same_tenant text := CASE WHEN tenant_id IS NULL THEN 't.tenant_id IS NULL' ELSE 't.tenant_id = $3' END;
  fault   text;
  result  bigint;
  highest bigint;
  shard   int;
BEGIN
  SELECT landed.shard_of(enqueue.aggregate_id, o.shards) INTO shard
    FROM landed.outboxes o WHERE o.outbox = enqueue.outbox;
  IF NOT FOUND THEN
    RAISE EXCEPTION '% is not an outbox: make one with landed.create_outbox(''schema.name'')', outbox
      USING ERRCODE = 'wrong_object_type';
  END IF;
  fault := landed.event_fault(topic, aggregate_type, aggregate_id, event_type, version, payload, tenant_id,
                                content_type, attributes, traceparent, tracestate, occurred_at);
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION 'lockstep.enqueue: %', fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF octet_length(target_space) NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION 'lockstep.enqueue: the target space must have 1 to 1024 bytes' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  event_id := coalesce(event_id, landed.new_event_id());
  -- Any conflict, not only that of the event's id: of a repeated event whose first transaction is about to
  -- commit, whichever index is looked at first finds it.
  EXECUTE format($insert$
    INSERT INTO %1$s AS t (event_id, topic, tenant_id, aggregate_type, aggregate_id, event_type, version,
                           schema_version, payload, content_type, attributes, traceparent, tracestate, occurred_at,
                           target_space)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15
    WHERE NOT EXISTS (SELECT 1 FROM %1$s t WHERE %2$s AND t.aggregate_type = $4 AND t.aggregate_id = $5
                                             AND t.version >= $7)
    ON CONFLICT DO NOTHING
    RETURNING sequence $insert$, outbox, same_tenant)
    INTO result
    USING event_id, topic, tenant_id, aggregate_type, aggregate_id, event_type, version, schema_version, payload,
          content_type, attributes, traceparent, tracestate, coalesce(occurred_at, now()), target_space;
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
  IF NOT pg_try_advisory_xact_lock_shared(landed.lock_key('wake', outbox, shard)) THEN
    PERFORM pg_notify(landed.wake_channel(outbox), shard::text);
  END IF;
  RETURN result;
END $$;
RESET search_path;
