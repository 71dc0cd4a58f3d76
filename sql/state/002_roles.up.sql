-- The least rights on a service's state and on its read model. The roles are the user's own; these
-- functions grant to them, and revoke_rights takes everything back. Their search_path is this schema, so
-- that current_schema() is the state that they speak of. Grant again after a migration that adds tables or columns.

-- The read model's tables, to a role that writes them.
CREATE FUNCTION grant_read_model(role regrole, read_model regclass[], rights text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  target regclass;
BEGIN
  FOREACH target IN ARRAY read_model LOOP
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', (SELECT n.nspname FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = target), role);
    EXECUTE format('GRANT %s ON %s TO %s', rights, target, role);
  END LOOP;
END $$;

-- Takes old audits away: the one change of the audit that a runner may make, with its owner's right. What
-- is younger than 30 days stays, whatever it asks for.
CREATE FUNCTION clean_audit(older_than interval, at_most int) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  gone bigint;
BEGIN
  -- By its whole name: a temporary table of the caller's would come first.
  EXECUTE format('DELETE FROM %1$I.audit WHERE id = ANY (ARRAY (SELECT id FROM %1$I.audit WHERE at < $1 LIMIT $2))',
                 current_schema()) USING least(now() - older_than, now() - interval '30 days'), at_most;
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END $$;
REVOKE ALL ON FUNCTION clean_audit(interval, int) FROM PUBLIC;

-- A runner: rows of the state and of the read model, and no DDL. What was audited stays as it is.
CREATE FUNCTION grant_runner(role regrole, read_model regclass[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', current_schema(), role);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO %s', current_schema(), role);
  EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON audit FROM %s', role);
  EXECUTE format('GRANT INSERT (group_name, action, operator, reason, old, new) ON audit TO %s', role);
  EXECUTE format('GRANT EXECUTE ON FUNCTION clean_audit(interval, int) TO %s', role);
  EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON schema_migrations FROM %s', role);
  EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO %s', current_schema(), role);
  PERFORM grant_read_model(role, read_model, 'SELECT, INSERT, UPDATE, DELETE');
END $$;

-- Who intervenes: resets, also those that empty the read model, and dead letters. A replay of dead
-- letters applies events, so that an operator has a runner's rights.
CREATE FUNCTION grant_operator(role regrole, read_model regclass[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM grant_runner(role, read_model);
  PERFORM grant_read_model(role, read_model, 'TRUNCATE');
END $$;

-- Who looks: lockstepctl lag, offsets, dead-letters, checkpoint list. Everything but payloads; nothing
-- of the read model.
CREATE FUNCTION grant_reader(role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  target  regclass;
  columns text;
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', current_schema(), role);
  FOR target, columns IN
    SELECT c.oid, string_agg(quote_ident(a.attname), ', ') FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relkind IN ('r', 'p', 'v')
      AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> 'payload'
    GROUP BY c.oid LOOP
    EXECUTE format('GRANT SELECT (%s) ON %s TO %s', columns, target, role);
  END LOOP;
END $$;

-- Takes back what the functions above gave.
CREATE FUNCTION revoke_rights(role regrole, read_model regclass[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  target regclass;
  home   oid;
BEGIN
  EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %s', current_schema(), role);
  EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA %I FROM %s', current_schema(), role);
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM %s', current_schema(), role);
  EXECUTE format('REVOKE ALL ON SCHEMA %I FROM %s', current_schema(), role);
  FOREACH target IN ARRAY read_model LOOP
    EXECUTE format('REVOKE ALL ON %s FROM %s', target, role);
    home := (SELECT relnamespace FROM pg_class WHERE oid = target);
    IF NOT EXISTS (SELECT 1 FROM pg_class c, aclexplode(c.relacl) a
                   WHERE c.relnamespace = home AND a.grantee = role) THEN
      EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM %s',
                     (SELECT nspname FROM pg_namespace WHERE oid = home), role);
    END IF;
  END LOOP;
END $$;
