-- Sagas: work that spans services, a step at a time, and is undone when a step fails. A service starts one in its own
-- transaction; orchestrators (any number) take sagas under a lease, run their steps and save each. docs/sagas.md.
-- No role but the owner writes a table: everybody has functions, which run with the owner's rights and ask nobody's
-- search_path; what they do is plain SQL, with no text made at run time.
--
--   1. Tables
--   2. States               the only place that lets one change, and writes the audit
--   3. Services             start, signal, refuse
--   4. Definitions
--   5. Orchestrators        claim, renew, hold, save, end, release, clean
--   6. Operators            pause, resume, cancel, skip, retry, compensate, replay, quarantine
--   7. Rights               for starter, orchestrator, reader and operator

-- 1. Tables ------------------------------------------------------------------------------------------------

CREATE TABLE saga_definitions (
  name          text NOT NULL CHECK (name ~ '^[a-z][a-z0-9_-]{0,63}$'),
  version       int NOT NULL CHECK (version > 0),
  hash          text NOT NULL,  -- SHA-256 of the canonical JSON
  body          jsonb NOT NULL,
  steps         text[] NOT NULL CHECK (cardinality(steps) BETWEEN 1 AND 64),  -- their names, in order
  timeout       interval CHECK (timeout > interval '0'),  -- of the whole saga; NULL = none
  registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  registered_by text NOT NULL,
  role          text NOT NULL DEFAULT session_user,
  PRIMARY KEY (name, version)
);

CREATE TABLE sagas (
  id             uuid PRIMARY KEY,
  definition     text NOT NULL,
  version        int NOT NULL,
  tenant         text CHECK (octet_length(tenant) BETWEEN 1 AND 1024),
  key            text CHECK (octet_length(key) BETWEEN 1 AND 1024),
  state          text NOT NULL DEFAULT 'Running'
                 CHECK (state IN ('Running', 'Compensating', 'Completed', 'Failed', 'Cancelled', 'Paused')),
  paused_from    text CHECK (paused_from IN ('Running', 'Compensating')),
  pause_asked    boolean NOT NULL DEFAULT false,  -- by somebody; else a step is in doubt
  reason         text,  -- why it is paused, is being undone, or ended as it did
  cancel_asked   boolean NOT NULL DEFAULT false,
  input          jsonb NOT NULL,
  traceparent    text,
  tracestate     text,
  bus_version    bigint NOT NULL DEFAULT 0,  -- of its events, one after another
  error          text CHECK (octet_length(error) <= 2048),
  error_code     text,
  failed_step    int,
  deadline       timestamptz,
  ttl            interval,  -- what the deadline was made of: a replay gets it anew
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at       timestamptz,
  updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  dead_at        timestamptz,  -- a dead letter of kind saga: it waits for a person
  quarantined_at timestamptz,
  CONSTRAINT paused_from_somewhere CHECK ((state = 'Paused') = (paused_from IS NOT NULL) AND (state = 'Paused' OR NOT pause_asked)),
  CONSTRAINT ended_is_over CHECK ((ended_at IS NOT NULL) = (state IN ('Completed', 'Failed', 'Cancelled'))),
  CONSTRAINT dead_has_failed CHECK (dead_at IS NULL OR (state = 'Failed' AND error IS NOT NULL)),
  CONSTRAINT quarantined_is_dead CHECK (quarantined_at IS NULL OR dead_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
-- A NULL tenant is one like any other; an empty one is none.
CREATE UNIQUE INDEX saga_key_of_tenant ON sagas (definition, (coalesce(tenant, '')), key) WHERE key IS NOT NULL;
CREATE INDEX saga_dead ON sagas (dead_at) WHERE dead_at IS NOT NULL;
CREATE INDEX saga_over ON sagas (ended_at) WHERE ended_at IS NOT NULL AND dead_at IS NULL;  -- the cleaner's

-- A step, and its undoing. One whose compensation is under way, or failed, is `compensating`.
CREATE TABLE saga_steps (
  saga                  uuid NOT NULL,
  step                  int NOT NULL,  -- from 0
  name                  text NOT NULL,
  state                 text NOT NULL DEFAULT 'Ready'
                        CHECK (state IN ('Ready', 'InFlight', 'Succeeded', 'Failed', 'Compensated', 'Skipped')),
  compensating          boolean NOT NULL DEFAULT false,
  attempts              int NOT NULL DEFAULT 0 CHECK (attempts >= 0),  -- answers that blame it
  compensation_attempts int NOT NULL DEFAULT 0 CHECK (compensation_attempts >= 0),
  available_at          timestamptz,  -- the next try, not before
  deadline              timestamptz,  -- of what is in flight
  in_doubt              boolean NOT NULL DEFAULT false,  -- it was begun, and nobody knows what became of it
  maybe_done            boolean NOT NULL DEFAULT false,  -- an earlier try may have been done: it is undone, too
  result                jsonb,
  signal                text CHECK (signal IN ('succeeded', 'failed')),
  signal_result         jsonb,
  last_error            text CHECK (octet_length(last_error) <= 2048),
  error_code            text,
  started_at            timestamptz,
  completed_at          timestamptz,
  compensated_at        timestamptz,
  PRIMARY KEY (saga, step)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- The sagas that have not ended, and nothing else: what has ended costs a claim nothing. Whoever changes an open saga
-- locks its row here first. `revision` counts what others than its holder changed: a holder that has missed a change
-- writes nothing.
CREATE TABLE saga_work (
  saga       uuid PRIMARY KEY,
  definition text NOT NULL,
  -- When somebody may take it; under a lease, the lease's end. infinity = when it is woken.
  run_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  set_at     timestamptz NOT NULL DEFAULT clock_timestamp(),  -- by which clock: one in the future has been set back
  revision   int NOT NULL DEFAULT 0,
  token      uuid,
  owner      text,
  news       text CHECK (news IN ('started', 'replayed')),  -- nobody has counted it yet
  CONSTRAINT lease_is_whole CHECK ((token IS NULL) = (owner IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX saga_work_due ON saga_work (definition, run_at);

-- Each change of a state, and what operators did. The actor is what he says, the role is whom Postgres let in.
CREATE TABLE saga_audit (
  saga       uuid NOT NULL,
  id         bigint GENERATED ALWAYS AS IDENTITY,
  at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  step       int,  -- NULL = the saga itself
  actor      text NOT NULL,
  role       text NOT NULL DEFAULT session_user,
  action     text NOT NULL,
  from_state text,
  to_state   text,
  attempts   int,
  note       text,
  PRIMARY KEY (saga, id)
);

-- 2. States ------------------------------------------------------------------------------------------------

-- Who is at work, for the audit: an orchestrator sets it for its session, an operator's function for its transaction.
CREATE FUNCTION saga_actor() RETURNS text LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('lockstep.saga_actor', true), ''), session_user);

CREATE FUNCTION saga_changes() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT (CASE OLD.state
      WHEN 'Running'      THEN NEW.state IN ('Compensating', 'Completed', 'Failed', 'Cancelled', 'Paused')
      WHEN 'Compensating' THEN NEW.state IN ('Failed', 'Cancelled', 'Paused')
      WHEN 'Paused'       THEN NEW.state = OLD.paused_from
      WHEN 'Failed'       THEN NEW.state IN ('Running', 'Compensating') AND OLD.dead_at IS NOT NULL
      WHEN 'Completed'    THEN NEW.state = 'Compensating'
      ELSE false
    END) THEN
    RAISE EXCEPTION 'sagas: the saga % can''t become % from %', OLD.id, NEW.state, OLD.state USING ERRCODE = 'LS006';
  END IF;
  NEW.paused_from := CASE WHEN NEW.state = 'Paused' THEN OLD.state END;
  NEW.pause_asked := NEW.state = 'Paused' AND NEW.pause_asked;
  IF OLD.state = 'Paused' AND NEW.reason IS NOT DISTINCT FROM OLD.reason THEN
    NEW.reason := NULL;  -- it said why it stood still
  END IF;
  NEW.ended_at := CASE WHEN NEW.state IN ('Completed', 'Failed', 'Cancelled') THEN clock_timestamp() END;
  NEW.updated_at := clock_timestamp();
  INSERT INTO lockstep.saga_audit (saga, actor, action, from_state, to_state, note)
    VALUES (OLD.id, lockstep.saga_actor(), 'state', OLD.state, NEW.state, NEW.reason);
  RETURN NEW;
END $$;
CREATE TRIGGER state_changes BEFORE UPDATE ON sagas
  FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION saga_changes();

CREATE FUNCTION saga_step_changes() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT (CASE OLD.state
      WHEN 'Ready'     THEN NEW.state IN ('InFlight', 'Succeeded', 'Failed', 'Skipped') AND NOT NEW.compensating
      WHEN 'InFlight'  THEN (NEW.compensating OR NOT OLD.compensating)
        AND CASE NEW.state WHEN 'InFlight' THEN OLD.in_doubt AND NEW.compensating  -- undone without being known
                           WHEN 'Ready' THEN NOT NEW.compensating
                           WHEN 'Compensated' THEN NEW.compensating
                           WHEN 'Succeeded' THEN true
                           WHEN 'Failed' THEN true
                           WHEN 'Skipped' THEN true END
      WHEN 'Succeeded' THEN NEW.compensating AND NEW.state IN ('InFlight', 'Compensated', 'Failed', 'Succeeded')
        OR NEW.state = 'Skipped'
      WHEN 'Failed'    THEN NEW.state = 'Skipped'
        OR CASE WHEN OLD.compensating THEN NEW.state IN ('Succeeded', 'Compensated')
                -- One that may have been done after all is undone too.
                WHEN NEW.compensating THEN OLD.maybe_done AND NEW.state IN ('InFlight', 'Succeeded', 'Compensated', 'Failed')
                ELSE NEW.state = 'Ready' END
      ELSE false
    END) THEN
    RAISE EXCEPTION 'sagas: step % of the saga % can''t become % from %', OLD.name, OLD.saga,
      NEW.state || CASE WHEN NEW.compensating THEN ' (compensating)' ELSE '' END,
      OLD.state || CASE WHEN OLD.compensating THEN ' (compensating)' ELSE '' END USING ERRCODE = 'LS006';
  END IF;
  IF OLD.state = 'Ready' THEN
    NEW.started_at := coalesce(OLD.started_at, CASE WHEN NEW.state <> 'Skipped' THEN statement_timestamp() END);
  END IF;
  NEW.completed_at := CASE
    WHEN NEW.state IN ('Ready', 'InFlight') AND NOT NEW.compensating THEN NULL
    WHEN NEW.state IN ('Succeeded', 'Failed', 'Skipped') AND OLD.state IN ('Ready', 'InFlight') AND NOT NEW.compensating
      THEN clock_timestamp()
    ELSE OLD.completed_at END;
  NEW.compensated_at := CASE WHEN NEW.state = 'Compensated' THEN clock_timestamp() END;
  INSERT INTO lockstep.saga_audit (saga, step, actor, action, from_state, to_state, attempts, note)
    VALUES (OLD.saga, OLD.step, lockstep.saga_actor(), CASE WHEN NEW.compensating THEN 'compensation' ELSE 'state' END,
            OLD.state, NEW.state, CASE WHEN NEW.compensating THEN NEW.compensation_attempts ELSE NEW.attempts END,
            NEW.error_code);
  RETURN NEW;
END $$;
CREATE TRIGGER state_changes BEFORE UPDATE ON saga_steps
  FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.compensating IS DISTINCT FROM NEW.compensating)
  EXECUTE FUNCTION saga_step_changes();

-- Everything begins at its beginning.
CREATE FUNCTION saga_begins() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'sagas: a saga begins Running, a step Ready (got %)', NEW.state USING ERRCODE = 'LS006';
END $$;
CREATE TRIGGER state_begins BEFORE INSERT ON sagas
  FOR EACH ROW WHEN (NEW.state <> 'Running') EXECUTE FUNCTION saga_begins();
CREATE TRIGGER state_begins BEFORE INSERT ON saga_steps
  FOR EACH ROW WHEN (NEW.state <> 'Ready') EXECUTE FUNCTION saga_begins();

-- 3. Services ------------------------------------------------------------------------------------------------

-- Time-ordered (version 7): neighbours in time are neighbours in the index.
CREATE FUNCTION saga_new_id() RETURNS uuid LANGUAGE sql VOLATILE
RETURN encode(
  set_bit(set_bit(
    overlay(uuid_send(gen_random_uuid())
            PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
            FROM 1 FOR 6),
    52, 1), 53, 1), 'hex')::uuid;

-- The advisory lock that a sleeping orchestrator holds.
CREATE FUNCTION saga_wake_key() RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN 6912081733::bigint;

-- NOTIFY takes a database-wide lock at commit, so it is sent to a sleeper only: one holds this lock exclusively. Holding
-- it shared, until the transaction ends, keeps the others from falling asleep before they have seen what is written.
CREATE FUNCTION saga_wake() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(lockstep.saga_wake_key()) THEN
    PERFORM pg_notify('lockstep_saga', '');
  END IF;
END $$;

-- Starts a saga in the caller's transaction: it begins if and when that commits. The definition is the newest that is
-- registered under the name; the saga keeps it. `ttl`: of the whole saga, in place of the definition's timeout. With a
-- `key` the same call again answers the same saga; with another input it is refused (SQLSTATE LS004).
CREATE FUNCTION saga_start(name text, input jsonb, tenant text DEFAULT NULL, ttl interval DEFAULT NULL,
                           key text DEFAULT NULL, traceparent text DEFAULT NULL, tracestate text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  at     timestamptz := clock_timestamp();
  chosen lockstep.saga_definitions;
  held   lockstep.sagas;
  result uuid := lockstep.saga_new_id();
BEGIN
  input := coalesce(input, '{}');
  IF octet_length(tenant) NOT BETWEEN 1 AND 1024 OR octet_length(key) NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION 'sagas: a key has 1 to 1024 bytes or is NULL, and so has a tenant' USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(input::text) > 65536 THEN
    RAISE EXCEPTION 'sagas: the input has % bytes and may have 65536: keep it elsewhere, and here where it is',
      octet_length(input::text) USING ERRCODE = 'invalid_parameter_value';
  ELSIF NOT coalesce(ttl > interval '0' AND ttl <= interval '366 days', true) THEN
    RAISE EXCEPTION 'sagas: the TTL must be above 0 and at most 366 days (got %)', ttl USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(traceparent) > 128 OR octet_length(tracestate) > 1024 THEN
    RAISE EXCEPTION 'sagas: traceparent has at most 128 bytes, tracestate 1024' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT * INTO chosen FROM lockstep.saga_definitions d WHERE d.name = name ORDER BY d.version DESC LIMIT 1;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'sagas: no saga % is registered: lockstepctl saga register FILE', left(name, 100) USING ERRCODE = 'no_data_found';
  END IF;
  ttl := coalesce(ttl, chosen.timeout);
  INSERT INTO lockstep.sagas (id, definition, version, tenant, key, input, traceparent, tracestate, ttl, deadline, created_at, updated_at)
    VALUES (result, name, chosen.version, tenant, key, input, traceparent, tracestate, ttl, at + ttl, at, at)
    ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    SELECT * INTO held FROM lockstep.sagas s
      WHERE s.definition = name AND coalesce(s.tenant, '') = coalesce(tenant, '') AND s.key = key;
    IF NOT FOUND THEN  -- the other transaction is not to be seen by this one's snapshot
      RAISE EXCEPTION 'sagas: another transaction starts % under the key % right now: try again', name, left(key, 200)
        USING ERRCODE = 'serialization_failure';
    ELSIF held.input <> input THEN
      RAISE EXCEPTION 'sagas: STORAGE.CONFLICT: the key % belongs to the saga %, which was started with another input: a new saga needs a new key',
        left(key, 200), held.id USING ERRCODE = 'LS004';
    END IF;
    RETURN held.id;
  END IF;
  INSERT INTO lockstep.saga_steps (saga, step, name)
    SELECT result, s.place - 1, s.name FROM unnest(chosen.steps) WITH ORDINALITY AS s (name, place);
  INSERT INTO lockstep.saga_work (saga, definition, run_at, set_at, news) VALUES (result, name, at, at, 'started');
  INSERT INTO lockstep.saga_audit (saga, actor, action, to_state) VALUES (result, lockstep.saga_actor(), 'start', 'Running');
  -- A saga that a crash could erase must not be begun.
  IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  PERFORM lockstep.saga_wake();
  RETURN result;
END $$;

-- Locks an open saga's row of saga_work, then the saga; of one that has ended the saga alone. So does everybody.
CREATE FUNCTION saga_lock(id uuid) RETURNS sagas LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  open boolean;
  held lockstep.sagas;
BEGIN
  LOOP
    PERFORM 1 FROM lockstep.saga_work w WHERE w.saga = id FOR NO KEY UPDATE;
    open := FOUND;
    SELECT * INTO held FROM lockstep.sagas s WHERE s.id = id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'sagas: there is no saga %', id USING ERRCODE = 'no_data_found';
    END IF;
    EXIT WHEN open = (held.ended_at IS NULL);  -- else it has ended, or was opened again, between the two
  END LOOP;
  RETURN held;
END $$;

-- Something of an open saga was changed by another than its holder: it is looked at anew, at once.
CREATE FUNCTION saga_touch(id uuid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  at    timestamptz := clock_timestamp();
  taken uuid;
BEGIN
  UPDATE lockstep.saga_work w
     SET revision = w.revision + 1, run_at = CASE WHEN w.token IS NULL THEN at ELSE w.run_at END,
         set_at = CASE WHEN w.token IS NULL THEN at ELSE w.set_at END
   WHERE w.saga = id RETURNING w.token INTO taken;
  IF taken IS NOT NULL THEN
    PERFORM pg_notify('lockstep_saga', id::text);
  ELSE
    PERFORM lockstep.saga_wake();
  END IF;
END $$;

-- What became of a step that waits for it: of a `wait`, of the answer to a bus: step with `reply`, of one in doubt. Early
-- ones are kept until the step begins. True = it counts (the same again also); false = it came too late. Of a step that
-- asks nobody it is refused (SQLSTATE LS006): kept, it would settle a later doubt unseen.
CREATE FUNCTION saga_signal(id uuid, step text, outcome text, result jsonb DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  held  lockstep.sagas;
  at    lockstep.saga_steps;
  asked jsonb;  -- the action, or its undoing
BEGIN
  IF outcome IS NULL OR outcome NOT IN ('succeeded', 'failed') THEN
    RAISE EXCEPTION 'sagas: a signal''s outcome is succeeded or failed (got %)', left(outcome, 100)
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(result::text) > 16384 THEN
    RAISE EXCEPTION 'sagas: the result has % bytes and may have 16384: keep it elsewhere, and here where it is',
      octet_length(result::text) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  held := lockstep.saga_lock(id);
  SELECT * INTO at FROM lockstep.saga_steps s WHERE s.saga = id AND s.name = step;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'sagas: the saga % has no step %', id, left(step, 100) USING ERRCODE = 'no_data_found';
  END IF;
  IF at.signal IS NOT NULL THEN
    RETURN at.signal = outcome AND at.signal_result IS NOT DISTINCT FROM result;
  END IF;
  -- A compensation in doubt may be settled too.
  IF held.ended_at IS NOT NULL OR NOT (at.state IN ('Ready', 'InFlight')) THEN
    RETURN false;
  END IF;
  SELECT CASE WHEN at.compensating THEN d.body #> ARRAY['steps', at.step::text, 'compensate'] ELSE d.body #> ARRAY['steps', at.step::text] END
    INTO asked FROM lockstep.saga_definitions d WHERE d.name = held.definition AND d.version = held.version;
  IF NOT (at.in_doubt OR asked->>'action' = 'wait' OR coalesce((asked->'reply')::boolean, false)) THEN
    RAISE EXCEPTION 'sagas: step % of the saga % waits for no signal: it is % and not in doubt', step, id, asked->>'action'
      USING ERRCODE = 'LS006';
  END IF;
  UPDATE lockstep.saga_steps s SET signal = outcome, signal_result = result WHERE s.saga = id AND s.name = step;
  INSERT INTO lockstep.saga_audit (saga, step, actor, action, note)
    VALUES (id, at.step, lockstep.saga_actor(), 'signal', outcome);
  PERFORM lockstep.saga_touch(id);
  RETURN true;
END $$;

-- For functions of sql: steps: fails the step for good, whatever was written.
CREATE FUNCTION saga_refuse(reason text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION '%', coalesce(nullif(left(reason, 2000), ''), 'no reason was given') USING ERRCODE = 'LS005';
END $$;

-- 4. Definitions -----------------------------------------------------------------------------------------------

-- True = it is new; false = it was there. The same version with another hash is refused (SQLSTATE LS004).
CREATE FUNCTION saga_register(name text, version int, hash text, body jsonb, steps text[], timeout interval, actor text)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  there text;
BEGIN
  IF octet_length(body::text) > 131072 THEN
    RAISE EXCEPTION 'sagas: a definition has at most 64 KiB' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO lockstep.saga_definitions (name, version, hash, body, steps, timeout, registered_by)
    VALUES (name, version, hash, body, steps, timeout, actor) ON CONFLICT DO NOTHING;
  IF FOUND THEN
    PERFORM lockstep.saga_wake();
    RETURN true;
  END IF;
  SELECT d.hash INTO there FROM lockstep.saga_definitions d WHERE d.name = name AND d.version = version;
  IF there IS DISTINCT FROM hash THEN
    RAISE EXCEPTION 'sagas: version % of % is registered with another content: raise the version', version, name
      USING ERRCODE = 'LS004';
  END IF;
  RETURN false;
END $$;

-- 5. Orchestrators -----------------------------------------------------------------------------------------------

-- Leases sagas that are due, those of each definition in turn of their time. `full_ones` have their own limits in
-- `room`; every other definition may have `at_most`. None is waited for.
CREATE FUNCTION saga_claim(owner text, lease interval, at_most int, full_ones text[] DEFAULT '{}', room int[] DEFAULT '{}')
RETURNS TABLE (saga uuid, token uuid, revision int, news text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  mine uuid := gen_random_uuid();
  name text;
  most int;
  left_over int := at_most;
  took int;
BEGIN
  -- Whoever comes later must not always begin with the same definition.
  FOR name IN SELECT d.name FROM lockstep.saga_definitions d GROUP BY d.name ORDER BY random() LOOP
    most := least(left_over, coalesce(room[array_position(full_ones, name)], at_most));
    CONTINUE WHEN most <= 0;
    RETURN QUERY
      WITH due AS MATERIALIZED (
        SELECT w.saga AS due_saga, w.news AS due_news FROM lockstep.saga_work w
         WHERE w.definition = name AND w.run_at <= clock_timestamp()
         ORDER BY w.run_at LIMIT most FOR NO KEY UPDATE SKIP LOCKED)
      UPDATE lockstep.saga_work w
         SET token = mine, owner = saga_claim.owner, run_at = clock_timestamp() + lease, set_at = clock_timestamp(), news = NULL
        FROM due WHERE w.saga = due.due_saga
      RETURNING w.saga, w.token, w.revision, due.due_news;
    GET DIAGNOSTICS took = ROW_COUNT;
    left_over := left_over - took;
    EXIT WHEN left_over <= 0;
  END LOOP;
END $$;

-- Renews what is the caller's still, and answers it with its revision. What others have locked just now, or the caller
-- itself in a transaction of its own, is not waited for: answered too, but not `renewed`.
CREATE FUNCTION saga_renew(sagas uuid[], tokens uuid[], lease interval) RETURNS TABLE (saga uuid, revision int, renewed boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  mine uuid[] := ARRAY (
    SELECT s.saga FROM lockstep.saga_work s JOIN unnest(sagas, tokens) AS u (saga, token) ON s.saga = u.saga AND s.token = u.token
       FOR NO KEY UPDATE OF s SKIP LOCKED);
BEGIN
  UPDATE lockstep.saga_work w SET run_at = clock_timestamp() + lease, set_at = clock_timestamp() WHERE w.saga = ANY (mine);
  RETURN QUERY SELECT s.saga, s.revision, s.saga = ANY (mine) FROM lockstep.saga_work s
                 JOIN unnest(sagas, tokens) AS u (saga, token) ON s.saga = u.saga AND s.token = u.token;
END $$;

-- Whether the saga is the caller's still and nobody has changed it: then it stays so until the transaction ends. Every
-- transaction of an orchestrator begins with it.
CREATE FUNCTION saga_hold(saga uuid, token uuid, revision int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_variable
BEGIN
  PERFORM 1 FROM lockstep.saga_work w WHERE w.saga = saga AND w.token = token AND w.revision = revision FOR NO KEY UPDATE;
  RETURN FOUND;
END $$;

-- Saves a step as the orchestrator decided it. `result`: NULL leaves what is there. `ends`: the state that the saga ends
-- in with it. Answers the result. REQUIRES: the saga is held.
CREATE FUNCTION saga_save_step(saga uuid, step int, was text, state text, compensating boolean, attempts int,
                               compensation_attempts int, available_at timestamptz, deadline timestamptz, in_doubt boolean, maybe_done boolean,
                               last_error text, error_code text, result jsonb, ends text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_variable
BEGIN
  IF octet_length(result::text) > 16384 THEN
    RAISE EXCEPTION 'the result of the step has % bytes and may have 16384: keep it elsewhere, and answer where it is',
      octet_length(result::text) USING ERRCODE = 'LS005';
  END IF;
  UPDATE lockstep.saga_steps s
     SET state = state, compensating = compensating, attempts = attempts, compensation_attempts = compensation_attempts,
         available_at = available_at, deadline = deadline, in_doubt = in_doubt, maybe_done = maybe_done, last_error = last_error,
         error_code = error_code, result = coalesce(result, s.result),
         -- Of the step; its compensation has its own.
         signal = CASE WHEN s.compensating = compensating THEN s.signal END,
         signal_result = CASE WHEN s.compensating = compensating THEN s.signal_result END
   WHERE s.saga = saga AND s.step = step AND s.state = was;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'sagas: step % of the saga % is not % any more', step, saga, was USING ERRCODE = 'LS006';
  END IF;
  IF ends IS NOT NULL THEN
    PERFORM lockstep.saga_save(saga, ends, NULL, NULL, NULL, NULL, false);
  ELSIF clock_timestamp() > transaction_timestamp() + interval '2 seconds' THEN
    -- A long one: meanwhile nobody could renew the lease, and others would take the saga, and its calls for orphans.
    UPDATE lockstep.saga_work w SET run_at = clock_timestamp() + (w.run_at - w.set_at), set_at = clock_timestamp()
     WHERE w.saga = saga AND w.token IS NOT NULL;
  END IF;
  RETURN result;
END $$;

-- Saves the saga's own state. One that has ended leaves the queue. REQUIRES: as above.
CREATE FUNCTION saga_save(saga uuid, state text, reason text, error text, error_code text, failed_step int, dead boolean)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
  over timestamptz;
BEGIN
  UPDATE lockstep.sagas s
     SET state = state, reason = coalesce(reason, s.reason), error = coalesce(error, s.error),
         error_code = coalesce(error_code, s.error_code), failed_step = coalesce(failed_step, s.failed_step),
         dead_at = CASE WHEN dead THEN clock_timestamp() END, updated_at = clock_timestamp()
   WHERE s.id = saga RETURNING s.ended_at INTO over;
  IF over IS NOT NULL THEN
    DELETE FROM lockstep.saga_work w WHERE w.saga = saga;
  END IF;
END $$;

-- The version of the saga's next event. REQUIRES: as above.
CREATE FUNCTION saga_next_version(saga uuid) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_variable
DECLARE
  result bigint;
BEGIN
  UPDATE lockstep.sagas s SET bus_version = s.bus_version + 1 WHERE s.id = saga RETURNING s.bus_version INTO result;
  RETURN result;
END $$;

-- Gives a lease back; `run_at`: when it is to be looked at again (NULL = when it is woken). False = it is not the
-- caller's, or was changed: look at it once more.
CREATE FUNCTION saga_release(saga uuid, token uuid, revision int, run_at timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_variable
BEGIN
  UPDATE lockstep.saga_work w
     SET token = NULL, owner = NULL, run_at = coalesce(run_at, 'infinity'), set_at = clock_timestamp()
   WHERE w.saga = saga AND w.token = token AND w.revision = revision;
  RETURN FOUND;
END $$;

-- The end of an orchestrator: all of its leases at once, for others to go on now. What somebody has locked is not waited
-- for: its lease ends by itself.
CREATE FUNCTION saga_release_all(sagas uuid[], tokens uuid[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  given bigint;
BEGIN
  UPDATE lockstep.saga_work w SET token = NULL, owner = NULL, run_at = clock_timestamp(), set_at = clock_timestamp()
   WHERE w.saga = ANY (ARRAY (
     SELECT s.saga FROM lockstep.saga_work s JOIN unnest(sagas, tokens) AS u (saga, token) ON s.saga = u.saga AND s.token = u.token
        FOR NO KEY UPDATE OF s SKIP LOCKED));
  GET DIAGNOSTICS given = ROW_COUNT;
  PERFORM lockstep.saga_wake();
  RETURN given;
END $$;

-- Upkeep, in one batch: what a clock that has been set back wrote is looked at anew; what ended so long ago goes (dead
-- ones after `dead_older_than`; NULL = never). Answers how many sagas went.
CREATE FUNCTION saga_clean(older_than interval, at_most int DEFAULT 1000, dead_older_than interval DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at  timestamptz := clock_timestamp();
  ids uuid[];
BEGIN
  UPDATE lockstep.saga_work w SET run_at = at, set_at = at
   WHERE w.saga = ANY (ARRAY (SELECT s.saga FROM lockstep.saga_work s WHERE s.set_at > at + interval '1 minute'
                               LIMIT at_most FOR NO KEY UPDATE SKIP LOCKED));
  ids := ARRAY (SELECT s.id FROM lockstep.sagas s
                 WHERE s.ended_at IS NOT NULL AND s.dead_at IS NULL AND s.ended_at < at - older_than
                 ORDER BY s.ended_at LIMIT at_most FOR UPDATE SKIP LOCKED);
  IF dead_older_than IS NOT NULL THEN
    ids := ids || ARRAY (SELECT s.id FROM lockstep.sagas s
                          WHERE s.dead_at IS NOT NULL AND s.dead_at < at - dead_older_than AND s.quarantined_at IS NULL
                          ORDER BY s.dead_at LIMIT at_most - cardinality(ids) FOR UPDATE SKIP LOCKED);
  END IF;
  DELETE FROM lockstep.saga_audit a WHERE a.saga = ANY (ids);
  DELETE FROM lockstep.saga_steps s WHERE s.saga = ANY (ids);
  DELETE FROM lockstep.sagas s WHERE s.id = ANY (ids);
  RETURN cardinality(ids);
END $$;

-- 6. Operators -----------------------------------------------------------------------------------------------------

-- Who does it, for the rest of the transaction, and that it was done.
CREATE FUNCTION saga_act(saga uuid, step int, actor text, action text, note text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('lockstep.saga_actor', actor, true);
  INSERT INTO lockstep.saga_audit (saga, step, actor, action, note) VALUES (saga, step, actor, action, note);
END $$;

CREATE FUNCTION saga_not_now(held sagas, what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'sagas: the saga % is %: %', held.id,
    held.state || CASE WHEN held.dead_at IS NOT NULL THEN ' and dead' ELSE '' END, what USING ERRCODE = 'LS006';
END $$;

-- An ended saga goes on: forward as if nothing had failed, with a fresh time limit; or back. REQUIRES: locked.
CREATE FUNCTION saga_reopen(held sagas, state text, reason text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  forward boolean := state = 'Running';
BEGIN
  UPDATE lockstep.sagas s
     SET state = state, reason = reason, dead_at = NULL, quarantined_at = NULL,
         error = CASE WHEN NOT forward THEN s.error END, error_code = CASE WHEN NOT forward THEN s.error_code END,
         failed_step = CASE WHEN NOT forward THEN s.failed_step END, cancel_asked = NOT forward AND s.cancel_asked,
         deadline = CASE WHEN forward THEN clock_timestamp() + s.ttl ELSE s.deadline END
   WHERE s.id = held.id;
  INSERT INTO lockstep.saga_work (saga, definition, news) VALUES (held.id, held.definition, 'replayed');
  PERFORM lockstep.saga_wake();
END $$;

-- Nothing new begins; what is in flight is recorded.
CREATE FUNCTION saga_pause(id uuid, actor text, note text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  held lockstep.sagas := lockstep.saga_lock(id);
BEGIN
  IF held.ended_at IS NOT NULL THEN
    PERFORM lockstep.saga_not_now(held, 'there is nothing to pause');
  END IF;
  PERFORM lockstep.saga_act(id, NULL, actor, 'pause', note);
  UPDATE lockstep.sagas s SET state = 'Paused', pause_asked = true, reason = format('paused by %s%s', actor, ': ' || note)
   WHERE s.id = id;
  PERFORM lockstep.saga_touch(id);
  RETURN held.state;
END $$;

CREATE FUNCTION saga_resume(id uuid, actor text, note text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  held  lockstep.sagas := lockstep.saga_lock(id);
  doubt text;
BEGIN
  IF held.state <> 'Paused' THEN
    PERFORM lockstep.saga_not_now(held, 'there is nothing to resume');
  END IF;
  SELECT s.name INTO doubt FROM lockstep.saga_steps s
   WHERE s.saga = id AND s.in_doubt AND s.state = 'InFlight' AND s.signal IS NULL ORDER BY s.step LIMIT 1;
  IF NOT held.pause_asked AND doubt IS NOT NULL THEN
    PERFORM lockstep.saga_not_now(held, format('its step %s is in doubt. Look what became of it, then: lockstepctl saga signal %s %s succeeded|failed, or saga retry, or saga skip',
                                               doubt, id, doubt));
  END IF;
  PERFORM lockstep.saga_act(id, NULL, actor, 'resume', note);
  UPDATE lockstep.sagas s SET state = s.paused_from, reason = NULL WHERE s.id = id;
  PERFORM lockstep.saga_touch(id);
  RETURN held.paused_from;
END $$;

-- Undoes it and ends it, whatever it is at: Cancelled.
CREATE FUNCTION saga_cancel(id uuid, actor text, note text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  held lockstep.sagas := lockstep.saga_lock(id);
BEGIN
  IF held.ended_at IS NOT NULL OR held.state = 'Compensating' OR held.paused_from = 'Compensating' THEN
    PERFORM lockstep.saga_not_now(held, 'there is nothing to cancel');
  END IF;
  PERFORM lockstep.saga_act(id, NULL, actor, 'cancel', note);
  UPDATE lockstep.sagas s SET state = 'Running', cancel_asked = true, reason = format('cancelled by %s%s', actor, ': ' || note)
   WHERE s.id = id;
  PERFORM lockstep.saga_touch(id);
  RETURN held.state;
END $$;

-- The saga goes on without the step, or without its undoing. Answers the state that the step had.
CREATE FUNCTION saga_skip(id uuid, step text, actor text, note text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  held  lockstep.sagas := lockstep.saga_lock(id);
  place lockstep.saga_steps;
  back  boolean;  -- it is being undone
BEGIN
  SELECT * INTO place FROM lockstep.saga_steps s WHERE s.saga = id AND s.name = step;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'sagas: the saga % has no step %', id, left(step, 100) USING ERRCODE = 'no_data_found';
  END IF;
  IF held.quarantined_at IS NOT NULL THEN
    PERFORM lockstep.saga_not_now(held, 'it is in quarantine: release it first');
  END IF;
  back := held.state = 'Compensating' OR held.paused_from = 'Compensating' OR (held.dead_at IS NOT NULL AND place.compensating);
  IF held.ended_at IS NOT NULL AND (held.dead_at IS NULL OR place.state <> 'Failed') THEN
    PERFORM lockstep.saga_not_now(held, format('its step %s is %s; there is nothing to skip', step, place.state));
  ELSIF NOT (CASE WHEN back THEN place.state IN ('Succeeded', 'Failed', 'InFlight')
                  ELSE place.state IN ('Ready', 'InFlight', 'Failed') END) THEN
    PERFORM lockstep.saga_not_now(held, format('its step %s is %s; there is nothing to skip', step, place.state));
  END IF;
  PERFORM lockstep.saga_act(id, place.step, actor, 'skip', note);
  UPDATE lockstep.saga_steps s SET state = 'Skipped', in_doubt = false, available_at = NULL, deadline = NULL
   WHERE s.saga = id AND s.step = place.step;
  IF held.ended_at IS NOT NULL THEN
    PERFORM lockstep.saga_reopen(held, CASE WHEN back THEN 'Compensating' ELSE 'Running' END, NULL);
  ELSE
    PERFORM lockstep.saga_touch(id);
  END IF;
  RETURN place.state;
END $$;

-- A dead saga goes on: `from_step` from the step (or the undoing) that failed, `compensation` undoes what was done.
CREATE FUNCTION saga_replay(id uuid, into_what text, actor text, note text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  held  lockstep.sagas := lockstep.saga_lock(id);
  back  boolean;
BEGIN
  IF into_what IS NULL OR into_what NOT IN ('from_step', 'compensation') THEN
    RAISE EXCEPTION 'sagas: a replay is from_step or compensation (got %)', left(into_what, 100) USING ERRCODE = 'invalid_parameter_value';
  ELSIF held.dead_at IS NULL THEN
    PERFORM lockstep.saga_not_now(held, 'only a dead one is replayed');
  ELSIF held.quarantined_at IS NOT NULL THEN
    PERFORM lockstep.saga_not_now(held, 'it is in quarantine: release it first');
  END IF;
  -- One whose undoing has begun can't go forward.
  back := into_what = 'compensation' OR EXISTS (
    SELECT 1 FROM lockstep.saga_steps s WHERE s.saga = id AND (s.compensating OR s.state = 'Compensated'));
  PERFORM lockstep.saga_act(id, held.failed_step, actor, 'TxReplayRequested', concat_ws(': ', into_what, note));
  UPDATE lockstep.saga_steps s
     SET state = CASE WHEN s.compensating THEN 'Succeeded' ELSE 'Ready' END, compensating = false,
         attempts = CASE WHEN s.compensating THEN s.attempts ELSE 0 END, compensation_attempts = 0, in_doubt = false,
         available_at = NULL, deadline = NULL, last_error = NULL, error_code = NULL, signal = NULL, signal_result = NULL
   WHERE s.saga = id AND s.state = 'Failed' AND (s.compensating OR NOT back);
  IF NOT back THEN
    PERFORM lockstep.saga_reopen(held, 'Running', NULL);
    RETURN 'Running';
  END IF;
  PERFORM lockstep.saga_reopen(held, 'Compensating', coalesce(held.reason, 'replayed'));
  RETURN 'Compensating';
END $$;

-- A step in doubt is run again (whoever asks for it knows that it may be), one that waits for its next try has it now,
-- a dead saga goes on from where it failed. `step` NULL = whichever.
CREATE FUNCTION saga_retry(id uuid, step text, actor text, note text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  held    lockstep.sagas := lockstep.saga_lock(id);
  changed text;
BEGIN
  IF held.dead_at IS NOT NULL THEN
    RETURN lockstep.saga_replay(id, 'from_step', actor, note);
  ELSIF held.ended_at IS NOT NULL THEN
    PERFORM lockstep.saga_not_now(held, 'there is nothing to retry');
  END IF;
  PERFORM set_config('lockstep.saga_actor', actor, true);
  WITH waiting AS (
    UPDATE lockstep.saga_steps s
       SET state = CASE WHEN s.state <> 'InFlight' THEN s.state WHEN s.compensating THEN 'Succeeded' ELSE 'Ready' END,
           in_doubt = false, available_at = NULL, deadline = NULL, signal = NULL, signal_result = NULL,
           attempts = CASE WHEN s.compensating THEN s.attempts ELSE 0 END,
           compensation_attempts = CASE WHEN s.compensating THEN 0 ELSE s.compensation_attempts END
     WHERE s.saga = id AND (step IS NULL OR s.name = step)
       AND CASE s.state WHEN 'InFlight' THEN s.in_doubt ELSE s.state IN ('Ready', 'Succeeded') AND s.available_at IS NOT NULL END
    RETURNING s.step, s.name),
  audited AS (
    INSERT INTO lockstep.saga_audit (saga, step, actor, action, note) SELECT id, w.step, actor, 'retry', note FROM waiting w)
  SELECT string_agg(w.name, ', ') INTO changed FROM waiting w;
  IF changed IS NULL THEN
    PERFORM lockstep.saga_not_now(held, format('no step%s is in doubt or waits for another try', ' ' || step));
  END IF;
  PERFORM lockstep.saga_touch(id);
  RETURN changed;
END $$;

-- Undoes what was done: of a saga under way (as a cancel), of a dead one, of one that is Completed.
CREATE FUNCTION saga_compensate(id uuid, actor text, note text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  held lockstep.sagas := lockstep.saga_lock(id);
BEGIN
  IF held.dead_at IS NOT NULL THEN
    PERFORM lockstep.saga_replay(id, 'compensation', actor, note);
  ELSIF held.state = 'Completed' THEN
    PERFORM lockstep.saga_act(id, NULL, actor, 'compensate', note);
    UPDATE lockstep.sagas s SET cancel_asked = true WHERE s.id = id;
    PERFORM lockstep.saga_reopen(held, 'Compensating', format('undone by %s%s', actor, ': ' || note));
  ELSIF held.ended_at IS NOT NULL THEN
    PERFORM lockstep.saga_not_now(held, 'there is nothing to undo');
  ELSE
    PERFORM lockstep.saga_cancel(id, actor, note);
  END IF;
  RETURN held.state;
END $$;

-- Keeps a dead saga from every replay until it is released.
CREATE FUNCTION saga_quarantine(id uuid, actor text, note text, release boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  held lockstep.sagas := lockstep.saga_lock(id);
BEGIN
  IF held.dead_at IS NULL THEN
    PERFORM lockstep.saga_not_now(held, 'only a dead one is put aside');
  ELSIF (held.quarantined_at IS NULL) = release THEN
    RETURN false;
  END IF;
  PERFORM lockstep.saga_act(id, NULL, actor, CASE WHEN release THEN 'release' ELSE 'quarantine' END, note);
  UPDATE lockstep.sagas s SET quarantined_at = CASE WHEN NOT release THEN clock_timestamp() END WHERE s.id = id;
  RETURN true;
END $$;

-- 7. Rights ----------------------------------------------------------------------------------------------------

-- Functions are nobody's until they are granted, but for those that touch nothing.
REVOKE ALL ON FUNCTION saga_start(text, jsonb, text, interval, text, text, text), saga_signal(uuid, text, text, jsonb),
  saga_lock(uuid), saga_touch(uuid), saga_wake(), saga_act(uuid, int, text, text, text), saga_reopen(sagas, text, text),
  saga_not_now(sagas, text), saga_changes(), saga_step_changes(), saga_begins(), saga_new_id(),
  saga_register(text, int, text, jsonb, text[], interval, text), saga_claim(text, interval, int, text[], int[]),
  saga_renew(uuid[], uuid[], interval), saga_hold(uuid, uuid, int),
  saga_save_step(uuid, int, text, text, boolean, int, int, timestamptz, timestamptz, boolean, boolean, text, text, jsonb, text),
  saga_save(uuid, text, text, text, text, int, boolean), saga_next_version(uuid), saga_release(uuid, uuid, int, timestamptz),
  saga_release_all(uuid[], uuid[]), saga_clean(interval, int, interval), saga_pause(uuid, text, text),
  saga_resume(uuid, text, text), saga_cancel(uuid, text, text), saga_skip(uuid, text, text, text),
  saga_replay(uuid, text, text, text), saga_retry(uuid, text, text, text), saga_compensate(uuid, text, text),
  saga_quarantine(uuid, text, text, boolean) FROM PUBLIC;

-- A service that starts sagas and signals them. It reads nothing.
CREATE FUNCTION saga_grant_starter(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA lockstep TO %s', role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION lockstep.saga_start(text, jsonb, text, interval, text, text, text), '
                 'lockstep.saga_signal(uuid, text, text, jsonb) TO %s', role);
END $$;

-- Who looks: lockstepctl saga list, show; the status page.
CREATE FUNCTION saga_grant_reader(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA lockstep TO %s', role);
  EXECUTE format('GRANT SELECT ON lockstep.saga_definitions, lockstep.sagas, lockstep.saga_steps, lockstep.saga_work, '
                 'lockstep.saga_audit TO %s', role);
END $$;

-- lockstep-orchestrator. What its sql: steps call, and the outbox of its bus: steps, is for their owners to grant to it
-- (EXECUTE; lockstep.grant_writer).
CREATE FUNCTION saga_grant_orchestrator(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM lockstep.saga_grant_reader(role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION lockstep.saga_claim(text, interval, int, text[], int[]), '
    'lockstep.saga_renew(uuid[], uuid[], interval), lockstep.saga_hold(uuid, uuid, int), '
    'lockstep.saga_save_step(uuid, int, text, text, boolean, int, int, timestamptz, timestamptz, boolean, boolean, text, text, jsonb, text), '
    'lockstep.saga_save(uuid, text, text, text, text, int, boolean), lockstep.saga_next_version(uuid), '
    'lockstep.saga_release(uuid, uuid, int, timestamptz), lockstep.saga_release_all(uuid[], uuid[]), '
    'lockstep.saga_clean(interval, int, interval) TO %s', role);
END $$;

-- Who intervenes: a reader that registers definitions, starts sagas, changes the course of those under way and deletes
-- what ended long ago.
CREATE FUNCTION saga_grant_operator(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM lockstep.saga_grant_reader(role);
  PERFORM lockstep.saga_grant_starter(role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION lockstep.saga_register(text, int, text, jsonb, text[], interval, text), '
    'lockstep.saga_pause(uuid, text, text), lockstep.saga_resume(uuid, text, text), lockstep.saga_cancel(uuid, text, text), '
    'lockstep.saga_skip(uuid, text, text, text), lockstep.saga_replay(uuid, text, text, text), '
    'lockstep.saga_retry(uuid, text, text, text), lockstep.saga_compensate(uuid, text, text), '
    'lockstep.saga_quarantine(uuid, text, text, boolean), lockstep.saga_clean(interval, int, interval) TO %s', role);
END $$;

-- Takes back what the functions above gave, and the schema where the role has nothing else in it.
CREATE FUNCTION saga_revoke_rights(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  one regprocedure;
BEGIN
  EXECUTE format('REVOKE ALL ON lockstep.saga_definitions, lockstep.sagas, lockstep.saga_steps, lockstep.saga_work, '
                 'lockstep.saga_audit FROM %s', role);
  FOR one IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'lockstep'::regnamespace AND p.proname LIKE 'saga\_%' LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s', one, role);
  END LOOP;
  IF NOT EXISTS (SELECT 1 FROM pg_class c, aclexplode(c.relacl) a
                 WHERE c.relnamespace = 'lockstep'::regnamespace AND a.grantee = role)
     AND NOT EXISTS (SELECT 1 FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid, aclexplode(t.attacl) a
                     WHERE c.relnamespace = 'lockstep'::regnamespace AND a.grantee = role)
     AND NOT EXISTS (SELECT 1 FROM pg_proc p, aclexplode(p.proacl) a
                     WHERE p.pronamespace = 'lockstep'::regnamespace AND a.grantee = role) THEN
    EXECUTE format('REVOKE USAGE ON SCHEMA lockstep FROM %s', role);
  END IF;
END $$;
