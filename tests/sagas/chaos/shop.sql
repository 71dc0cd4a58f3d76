-- What the sql: steps of the saga under attack do. Each effect is a row that nobody takes away; each now and then fails in a way
-- that a database fails, and takes a while, so that whoever is killed is killed in the middle.
CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE shop.effect (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  saga uuid NOT NULL,
  step text NOT NULL,
  undo boolean NOT NULL
);
CREATE TABLE shop.shelf (id int PRIMARY KEY, taken int NOT NULL DEFAULT 0);
INSERT INTO shop.shelf SELECT generate_series(0, 31);

CREATE FUNCTION shop.note(request jsonb, step text, undo boolean) RETURNS jsonb LANGUAGE plpgsql SET search_path = '' AS $$
DECLARE
  luck float8 := random();
BEGIN
  IF NOT undo AND request->>'refuse' = step THEN
    PERFORM lockstep.saga_refuse('as it was told');
  END IF;
  INSERT INTO shop.effect (saga, step, undo) VALUES ((request->>'saga')::uuid, step, undo);
  UPDATE shop.shelf SET taken = taken + CASE WHEN undo THEN -1 ELSE 1 END
   WHERE id = hashtext(request->>'saga') & 31 AND step = 'reserve';
  IF luck < 0.02 THEN RAISE EXCEPTION 'a passing fault' USING ERRCODE = '40001'; END IF;
  IF luck < 0.03 THEN RAISE EXCEPTION 'a fault of the data' USING ERRCODE = '22000'; END IF;
  IF luck < 0.1 THEN PERFORM pg_sleep(luck / 2); END IF;
  RETURN jsonb_build_object('step', step);
END $$;
CREATE FUNCTION shop.reserve(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT shop.note(request, 'reserve', false) $$;
CREATE FUNCTION shop.release(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT shop.note(request, 'reserve', true) $$;
CREATE FUNCTION shop.ship(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT shop.note(request, 'ship', false) $$;
