-- What functions of the service get to do with (docs/handlers.md): the events, and a way to refuse one.

-- An event as a function gets it, in an array, those of an aggregate in the order of their versions.
CREATE TYPE event AS (
  event_id uuid,
  event_type text,
  tenant_id text,  -- NULL where there is none
  aggregate_type text,
  aggregate_id text,
  version bigint,
  schema_version int,
  occurred_at timestamptz,
  publish_time timestamptz,
  content_type text,
  payload bytea,     -- untouched
  data jsonb,        -- the payload, where it is JSON, or protobuf of a message that the group's file knows; else NULL
  attributes jsonb,  -- the message's others: topic, sequence, traceparent, those of the row
  kind text,         -- event, or snapshot: how the aggregate stands, not what happened
  replay boolean     -- the group has handled it before
);

-- Refuses one event of those that the function was called with: it becomes a dead letter, with this
-- reason, and the others are given to the function again without it. Nothing that it did remains.
CREATE FUNCTION refuse(event_id uuid, reason text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF event_id IS NULL THEN
    RAISE EXCEPTION 'event_id must not be NULL' USING ERRCODE = 'null_value_not_allowed';
  END IF;
  RAISE EXCEPTION '%: %', event_id, coalesce(nullif(reason, ''), 'no reason was given') USING ERRCODE = 'LS001';
END $$;
