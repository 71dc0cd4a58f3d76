-- Read your writes: whether the read model has an aggregate's version, and a wait for it. They read
-- what a batch commits together with the read model's rows, with the owner's right: whoever may ask
-- need not be able to read anything of the state.

-- The version that a group has settled for the aggregate, and all before it; NULL = it has seen none.
CREATE FUNCTION settled_version(group_name text, aggregate_type text, aggregate_id text, tenant text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  slot    record;
  settled bigint;
BEGIN
  IF group_name IS NULL OR aggregate_type IS NULL OR aggregate_id IS NULL THEN
    RAISE EXCEPTION 'group_name, aggregate_type and aggregate_id must not be NULL' USING ERRCODE = 'null_value_not_allowed';
  END IF;
  -- By their whole names: a temporary table of the caller's would come first.
  EXECUTE format('SELECT generation, follows_versions FROM %I.active_slots WHERE group_name = $1', current_schema())
    INTO slot USING group_name;
  IF slot.generation IS NULL THEN
    RAISE EXCEPTION 'there is no group "%" in schema "%"', group_name, current_schema() USING ERRCODE = 'undefined_object';
  END IF;
  IF NOT slot.follows_versions THEN
    RAISE EXCEPTION 'group "%" does not follow the versions of its aggregates', group_name
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Set follow_versions: true for the group and restart its runners. One whose events park on a gap follows them once a runner has started it.';
  END IF;
  -- As envelope::AggregateKey writes it.
  EXECUTE format('SELECT settled_version FROM %I.key_state WHERE generation = $1 AND aggregate_key = $2', current_schema())
    INTO settled
    USING slot.generation,
          replace(replace(replace(aggregate_type, '%', '%25'), '/', '%2F'), '@', '%40')
            || coalesce('@' || replace(replace(replace(tenant, '%', '%25'), '/', '%2F'), '@', '%40'), '')
            || '/' || aggregate_id;
  RETURN settled;
END $$;

-- Whether the read model has that version of the aggregate, or a later one.
CREATE FUNCTION reached(group_name text, aggregate_type text, aggregate_id text, version bigint, tenant text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
  IF version IS NULL THEN
    RAISE EXCEPTION 'version must not be NULL' USING ERRCODE = 'null_value_not_allowed';
  END IF;
  RETURN coalesce(settled_version(group_name, aggregate_type, aggregate_id, tenant) >= version, false);
END $$;

-- Waits for it; false = it was not reached in time. Each look has a snapshot of its own, which a transaction under
-- REPEATABLE READ or SERIALIZABLE does not give: there it would wait in vain, and says so.
CREATE FUNCTION await(group_name text, aggregate_type text, aggregate_id text, version bigint,
                      tenant text DEFAULT NULL, timeout interval DEFAULT '5 seconds')
RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  until timestamptz := clock_timestamp() + least(coalesce(timeout, '0'), interval '5 minutes');
  pause double precision := 0.005;
BEGIN
  LOOP
    IF reached(group_name, aggregate_type, aggregate_id, version, tenant) THEN
      RETURN true;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
      RAISE EXCEPTION 'a transaction that is % sees nothing that commits after it began: it would wait in vain',
                      current_setting('transaction_isolation')
        USING ERRCODE = 'invalid_transaction_state',
              HINT = 'Wait before the transaction begins, or under READ COMMITTED.';
    END IF;
    IF clock_timestamp() >= until THEN
      RETURN false;
    END IF;
    PERFORM pg_sleep(least(pause, extract(epoch FROM until - clock_timestamp())));
    pause := least(pause * 1.5, 0.1);
  END LOOP;
END $$;

REVOKE ALL ON FUNCTION settled_version(text, text, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION reached(text, text, text, bigint, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION await(text, text, text, bigint, text, interval) FROM PUBLIC;

-- Who asks and waits: nothing but these functions.
CREATE FUNCTION grant_waiter(role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', current_schema(), role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION settled_version(text, text, text, text), reached(text, text, text, bigint, text), '
                 'await(text, text, text, bigint, text, interval) TO %s', role);
END $$;
