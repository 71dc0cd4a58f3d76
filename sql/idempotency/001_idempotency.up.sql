-- Idempotency keys: requests that must not be done twice. A caller puts its key before the work and finishes it after;
-- whoever comes with the same key meanwhile or later learns what became of it. In the caller's own transaction (effect
-- and record commit together) or outside of it. docs/idempotency.md.
-- A function runs with the rights of its owner, for whom it was granted to; none asks the caller's search_path.
--
--   1. Tables
--   2. What callers call     check and put, finish, fail, renew
--   3. Upkeep                clean, release
--   4. Rights                for caller, reader and operator

-- 1. Tables ------------------------------------------------------------------------------------------------

-- Nobody but the functions below writes it, and they look at what they are given: a CHECK would be read anew by every
-- statement, and cost more than all of their looking.
CREATE TABLE idempotency_keys (
  tenant      text,
  key         text NOT NULL,
  hash        text NOT NULL,  -- of the request
  state       text NOT NULL,  -- InFlight, Succeeded, Failed
  token       uuid NOT NULL,  -- of who took it last; who finishes shows it
  taken_in    xid8 NOT NULL,  -- the transaction that took it: there it is finished without the token
  attempts    int NOT NULL DEFAULT 1,  -- how often it was taken
  lease       interval NOT NULL,
  lease_until timestamptz,    -- while in flight
  ttl         interval NOT NULL,
  -- When it is as if it had never been: a TTL after the end of the lease, or of the work if that came later. So that
  -- finishing in time changes no indexed column (the new row version stays on its page), and the answer is kept for a
  -- whole TTL.
  expires_at  timestamptz NOT NULL,
  digest      text,  -- of the result, never the result itself
  error       text,
  created_at  timestamptz NOT NULL,
  updated_at  timestamptz NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
-- A NULL tenant is one like any other; an empty one is none.
CREATE UNIQUE INDEX idempotency_key_of_tenant ON idempotency_keys ((coalesce(tenant, '')), key);
CREATE INDEX ON idempotency_keys (expires_at);  -- the cleaner's

-- What operators did by hand. The actor is what he says, the role is whom Postgres let in.
CREATE TABLE idempotency_audit (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor  text NOT NULL,
  role   text NOT NULL DEFAULT session_user,
  action text NOT NULL CHECK (action IN ('release')),
  tenant text,
  key    text NOT NULL,
  state  text NOT NULL,  -- as it was
  note   text
);
CREATE INDEX ON idempotency_audit ((coalesce(tenant, '')), key);

-- 2. What callers call ---------------------------------------------------------------------------------------

-- Takes the key, or says what became of it. `outcome`:
--   go        the key is the caller's, until its lease ends: do the work, then finish or fail with `token`
--   done      the work was done: `digest`
--   busy      somebody is at it (TX.IDEMPOTENT_BUSY): come again later. Never waits, not for an open transaction either
--   failed    it failed (TX.IDEMPOTENT_LAST_FAILED): `error`. With retry_failed the caller gets `go` in its place
--   conflict  the key belongs to a request with another hash (STORAGE.CONFLICT): a mistake of the caller's
-- Times are the database's. Whatever its clock did meanwhile, nothing is held for longer than a whole lease and a whole
-- TTL from now on.
CREATE FUNCTION idempotency_check_and_put(
  tenant text, key text, hash text, ttl interval DEFAULT '24 hours', lease interval DEFAULT '60 seconds',
  retry_failed boolean DEFAULT false,
  OUT outcome text, OUT code text, OUT digest text, OUT error text, OUT token uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  at   timestamptz := clock_timestamp();
  held lockstep.idempotency_keys;
BEGIN
  IF octet_length(tenant) NOT BETWEEN 1 AND 1024 OR coalesce(octet_length(key), 0) NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION 'idempotency: a key has 1 to 1024 bytes, and so has a tenant unless it is NULL'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF coalesce(octet_length(hash), 0) NOT BETWEEN 1 AND 256 THEN
    RAISE EXCEPTION 'idempotency: the hash of the request has 1 to 256 bytes, as SHA-256 in hex has'
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF (ttl > interval '0' AND ttl <= interval '366 days' AND lease > interval '0' AND lease <= interval '24 hours')
        IS NOT TRUE THEN
    RAISE EXCEPTION 'idempotency: the TTL must be above 0 and at most 366 days, the lease at most 24 hours (got % and %)',
      ttl, lease USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- A second and a third look where another's commit came between; then it is busy.
  FOR look IN 1..3 LOOP
    SELECT * INTO held FROM lockstep.idempotency_keys t
      WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key;
    IF NOT FOUND THEN
      -- A row that another transaction has not committed is seen by nobody, and an INSERT would wait for it: whoever
      -- inserts holds this lock until his transaction ends.
      IF NOT pg_try_advisory_xact_lock(hashtextextended(key, hashtextextended(coalesce(tenant, ''), 6912081721))) THEN
        EXIT;
      END IF;
      token := gen_random_uuid();
      INSERT INTO lockstep.idempotency_keys (tenant, key, hash, state, token, taken_in, lease, lease_until, ttl,
                                             expires_at, created_at, updated_at)
        VALUES (tenant, key, hash, 'InFlight', token, pg_current_xact_id(), lease, at + lease, ttl, at + lease + ttl, at, at)
        ON CONFLICT DO NOTHING;
      IF FOUND THEN
        outcome := 'go';
        RETURN;
      END IF;
      token := NULL;
      CONTINUE;
    END IF;
    -- The clock was set back, or ran far ahead when this was written.
    IF held.lease_until > at + held.lease OR held.expires_at > at + held.lease + held.ttl THEN
      UPDATE lockstep.idempotency_keys t
         SET lease_until = CASE WHEN t.lease_until IS NOT NULL THEN least(t.lease_until, at + t.lease) END,
             expires_at = least(t.expires_at, at + t.lease + t.ttl)
       WHERE t.ctid = (SELECT s.ctid FROM lockstep.idempotency_keys s
                        WHERE coalesce(s.tenant, '') = coalesce(tenant, '') AND s.key = key AND s.token = held.token
                          FOR UPDATE SKIP LOCKED);
    END IF;
    IF held.expires_at > at THEN
      IF held.hash <> hash THEN
        outcome := 'conflict';
        code := 'STORAGE.CONFLICT';
        RETURN;
      ELSIF held.state = 'Succeeded' THEN
        outcome := 'done';
        digest := held.digest;
        RETURN;
      ELSIF held.state = 'Failed' AND retry_failed IS NOT TRUE THEN
        outcome := 'failed';
        code := 'TX.IDEMPOTENT_LAST_FAILED';
        error := held.error;
        RETURN;
      END IF;
      EXIT WHEN held.lease_until > at;
    END IF;
    -- Its caller has died, it has expired, or it failed and is tried again: it is the caller's, unless somebody was
    -- faster or is at it in an open transaction.
    PERFORM 1 FROM lockstep.idempotency_keys t
      WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key AND t.token = held.token
        AND t.updated_at = held.updated_at FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    token := gen_random_uuid();
    UPDATE lockstep.idempotency_keys t
       SET hash = hash, state = 'InFlight', token = token, taken_in = pg_current_xact_id(),
           attempts = CASE WHEN held.expires_at > at THEN t.attempts + 1 ELSE 1 END,
           created_at = CASE WHEN held.expires_at > at THEN t.created_at ELSE at END,
           lease = lease, lease_until = at + lease, ttl = ttl, expires_at = at + lease + ttl,
           digest = NULL, error = NULL, updated_at = at
     WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key;
    outcome := 'go';
    RETURN;
  END LOOP;
  outcome := 'busy';
  code := 'TX.IDEMPOTENT_BUSY';
END $$;

-- For finish, fail and renew that found nothing of theirs: the caller's work must not commit beside another's.
CREATE FUNCTION idempotency_refuse(tenant text, key text, token uuid) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  there text := (SELECT t.state FROM lockstep.idempotency_keys t
                  WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key);
BEGIN
  RAISE EXCEPTION 'idempotency: STORAGE.CONFLICT: the key % is not (or no longer) the caller''s: %; %', left(key, 200),
    CASE WHEN there IS NULL THEN 'it is not there' WHEN there = 'InFlight' THEN 'it is in flight under another token'
         ELSE format('it is %s already', there) END,
    CASE WHEN token IS NULL THEN 'outside of the transaction that took it the token is needed'
         ELSE 'its lease ended before the work, or it was released: undo the work' END
    USING ERRCODE = 'LS002';
END $$;

-- The work is done. `token` is what check_and_put answered; in the same transaction it may be left away. A caller that
-- has lost its key is refused (SQLSTATE LS002), which spoils its transaction; the same finish again is none.
CREATE FUNCTION idempotency_finish(tenant text, key text, digest text, token uuid DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  at timestamptz := clock_timestamp();
BEGIN
  IF octet_length(digest) > 4096 THEN
    RAISE EXCEPTION 'idempotency: the digest has % bytes and may have 4096: keep the result elsewhere, and here where it is',
      octet_length(digest) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  UPDATE lockstep.idempotency_keys t
     SET state = 'Succeeded', digest = digest, lease_until = NULL, updated_at = at,
         expires_at = greatest(t.expires_at, at + t.ttl)
   WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key AND t.state = 'InFlight'
     AND (t.token = token OR (token IS NULL AND t.taken_in = pg_current_xact_id()));
  IF NOT FOUND THEN
    PERFORM 1 FROM lockstep.idempotency_keys t
      WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key AND t.state = 'Succeeded'
        AND t.digest IS NOT DISTINCT FROM digest
        AND (t.token = token OR (token IS NULL AND t.taken_in = pg_current_xact_id()));
    IF NOT FOUND THEN
      PERFORM lockstep.idempotency_refuse(tenant, key, token);
    END IF;
  END IF;
END $$;

-- The work failed, for good as far as the caller can tell. The error is cut at 2 KiB; it is kept and shown: no payload.
CREATE FUNCTION idempotency_fail(tenant text, key text, error text, token uuid DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  at    timestamptz := clock_timestamp();
  brief text := left(coalesce(error, ''), 2048);
BEGIN
  WHILE octet_length(brief) > 2048 LOOP  -- characters of several bytes
    brief := left(brief, -greatest(1, (octet_length(brief) - 2048) / 4));
  END LOOP;
  UPDATE lockstep.idempotency_keys t
     SET state = 'Failed', error = brief, lease_until = NULL, updated_at = at,
         expires_at = greatest(t.expires_at, at + t.ttl)
   WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key AND t.state = 'InFlight'
     AND (t.token = token OR (token IS NULL AND t.taken_in = pg_current_xact_id()));
  IF NOT FOUND THEN
    PERFORM 1 FROM lockstep.idempotency_keys t
      WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key AND t.state = 'Failed' AND t.error = brief
        AND (t.token = token OR (token IS NULL AND t.taken_in = pg_current_xact_id()));
    IF NOT FOUND THEN
      PERFORM lockstep.idempotency_refuse(tenant, key, token);
    END IF;
  END IF;
END $$;

-- The work goes on: the lease begins anew. Refused like a finish when the key is another's. Answers its new end.
CREATE FUNCTION idempotency_renew(tenant text, key text, lease interval DEFAULT '60 seconds', token uuid DEFAULT NULL)
RETURNS timestamptz LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  at     timestamptz := clock_timestamp();
  result timestamptz;
BEGIN
  IF (lease > interval '0' AND lease <= interval '24 hours') IS NOT TRUE THEN
    RAISE EXCEPTION 'idempotency: a lease is above 0 and at most 24 hours (got %)', lease
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  UPDATE lockstep.idempotency_keys t
     SET lease = lease, lease_until = at + lease, updated_at = at,
         expires_at = greatest(t.expires_at, at + lease + t.ttl)
   WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key AND t.state = 'InFlight'
     AND (t.token = token OR (token IS NULL AND t.taken_in = pg_current_xact_id()))
  RETURNING t.lease_until INTO result;
  IF result IS NULL THEN
    PERFORM lockstep.idempotency_refuse(tenant, key, token);
  END IF;
  RETURN result;
END $$;

-- 3. Upkeep ----------------------------------------------------------------------------------------------------

-- Deletes what has expired, a batch at a time; answers how many rows. (check_and_put takes no notice of them anyway.)
-- What a clock gone wrong has written for times that no TTL reaches gets a whole TTL from now.
CREATE FUNCTION idempotency_clean(at_most int DEFAULT 1000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  at   timestamptz := clock_timestamp();
  gone bigint;
BEGIN
  UPDATE lockstep.idempotency_keys t
     SET lease_until = CASE WHEN t.lease_until IS NOT NULL THEN least(t.lease_until, at + t.lease) END,
             expires_at = least(t.expires_at, at + t.lease + t.ttl)
   WHERE t.ctid = ANY (ARRAY (
     SELECT s.ctid FROM lockstep.idempotency_keys s WHERE s.expires_at > at + interval '368 days'
      ORDER BY s.expires_at DESC LIMIT at_most FOR UPDATE SKIP LOCKED));
  DELETE FROM lockstep.idempotency_keys t
   WHERE t.ctid = ANY (ARRAY (
     SELECT s.ctid FROM lockstep.idempotency_keys s WHERE s.expires_at <= at
      ORDER BY s.expires_at LIMIT at_most FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END $$;

-- Frees a key by hand, with an audit entry: as if it had never been. Answers the state that it had; NULL = it is not
-- there. One whose caller may be at work is refused, unless forced: its finish will be refused then.
CREATE FUNCTION idempotency_release(tenant text, key text, actor text, note text DEFAULT NULL, force boolean DEFAULT false)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  held lockstep.idempotency_keys;
BEGIN
  DELETE FROM lockstep.idempotency_keys t
   WHERE coalesce(t.tenant, '') = coalesce(tenant, '') AND t.key = key
  RETURNING t.* INTO held;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF held.lease_until > clock_timestamp() AND force IS NOT TRUE THEN
    RAISE EXCEPTION 'idempotency: the key % is in flight until %: wait for its end, or force it', left(key, 200),
      held.lease_until USING ERRCODE = 'object_in_use';
  END IF;
  INSERT INTO lockstep.idempotency_audit (actor, action, tenant, key, state, note)
    VALUES (actor, 'release', tenant, key, held.state, note);
  RETURN held.state;
END $$;

-- 4. Rights ----------------------------------------------------------------------------------------------------

-- Functions are nobody's until they are granted. The roles are the user's own; whoever calls these owns the tables.
REVOKE ALL ON FUNCTION idempotency_check_and_put(text, text, text, interval, interval, boolean),
  idempotency_finish(text, text, text, uuid), idempotency_fail(text, text, text, uuid),
  idempotency_renew(text, text, interval, uuid), idempotency_refuse(text, text, uuid), idempotency_clean(int),
  idempotency_release(text, text, text, text, boolean) FROM PUBLIC;

-- A service that calls check_and_put, finish, fail and renew. It reads nothing.
CREATE FUNCTION idempotency_grant_caller(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA lockstep TO %s', role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION lockstep.idempotency_check_and_put(text, text, text, interval, interval, boolean), '
                 'lockstep.idempotency_finish(text, text, text, uuid), lockstep.idempotency_fail(text, text, text, uuid), '
                 'lockstep.idempotency_renew(text, text, interval, uuid) TO %s', role);
END $$;

-- Who looks: lockstepctl idempotency list, show.
CREATE FUNCTION idempotency_grant_reader(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA lockstep TO %s', role);
  EXECUTE format('GRANT SELECT ON lockstep.idempotency_keys, lockstep.idempotency_audit TO %s', role);
END $$;

-- Who intervenes: a reader that may also release and clean. It finishes nothing.
CREATE FUNCTION idempotency_grant_operator(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM lockstep.idempotency_grant_reader(role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION lockstep.idempotency_release(text, text, text, text, boolean), '
                 'lockstep.idempotency_clean(int) TO %s', role);
END $$;

-- Takes back what the functions above gave, and the schema where the role has nothing else in it.
CREATE FUNCTION idempotency_revoke_rights(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  one regprocedure;
BEGIN
  EXECUTE format('REVOKE ALL ON lockstep.idempotency_keys, lockstep.idempotency_audit FROM %s', role);
  FOR one IN SELECT p.oid FROM pg_proc p
             WHERE p.pronamespace = 'lockstep'::regnamespace AND p.proname LIKE 'idempotency\_%' LOOP
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
