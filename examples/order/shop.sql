-- The shop of docs/sagas.md: its tables, and the functions that the saga `order` (order.yaml) calls. Such a function gets the
-- step's request and returns its result, in the transaction that saves the step: whatever it does is done exactly once.
-- Needs the sets `outbox` and `saga` (lockstepctl migrate up --set …), and the outbox shop.outbox.
CREATE SCHEMA IF NOT EXISTS shop;

CREATE TABLE shop.stock (
  item    text PRIMARY KEY,
  on_hand int NOT NULL CHECK (on_hand >= 0)
);
CREATE TABLE shop.orders (
  id       text PRIMARY KEY,
  customer text NOT NULL,
  saga     uuid NOT NULL,
  state    text NOT NULL DEFAULT 'placed' CHECK (state IN ('placed', 'shipped'))
);
CREATE TABLE shop.reservation (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  order_id text NOT NULL,
  item    text NOT NULL REFERENCES shop.stock,
  count   int NOT NULL CHECK (count > 0),
  state   text NOT NULL DEFAULT 'held' CHECK (state IN ('held', 'released', 'shipped'))
);

-- What the shop's own service calls, in its own transaction: the order and its saga begin together, and a repeated call
-- begins nothing (the key).
CREATE FUNCTION shop.place_order(id text, customer text, item text, count int, cents int, card text)
RETURNS uuid LANGUAGE plpgsql SET search_path = '' AS $$
DECLARE
  saga uuid;
BEGIN
  saga := lockstep.saga_start(
    'order', jsonb_build_object('order', id, 'customer', customer, 'item', item, 'count', count, 'cents', cents, 'card', card),
    key => id);
  INSERT INTO shop.orders (id, customer, saga) VALUES (id, customer, saga) ON CONFLICT DO NOTHING;
  RETURN saga;
END $$;

CREATE FUNCTION shop.reserve_stock(request jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = '' AS $$
DECLARE
  reservation bigint;
BEGIN
  UPDATE shop.stock SET on_hand = on_hand - (request->>'count')::int
   WHERE item = request->>'item' AND on_hand >= (request->>'count')::int;
  IF NOT FOUND THEN
    -- For good: no retry would mend it.
    PERFORM lockstep.saga_refuse(format('there are not %s of %s on hand', request->>'count', request->>'item'));
  END IF;
  INSERT INTO shop.reservation (order_id, item, count)
  VALUES (request->>'order', request->>'item', (request->>'count')::int) RETURNING id INTO reservation;
  RETURN jsonb_build_object('reservation', reservation);
END $$;

CREATE FUNCTION shop.release_stock(request jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = '' AS $$
DECLARE
  released shop.reservation;
BEGIN
  UPDATE shop.reservation SET state = 'released' WHERE id = (request->>'reservation')::bigint AND state = 'held'
  RETURNING * INTO STRICT released;
  UPDATE shop.stock SET on_hand = on_hand + released.count WHERE item = released.item;
  RETURN NULL;
END $$;

CREATE FUNCTION shop.ship(request jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = '' AS $$
BEGIN
  IF EXISTS (SELECT FROM shop.reservation r WHERE r.id = (request->>'reservation')::bigint AND r.item = 'piano') THEN
    PERFORM lockstep.saga_refuse('nobody carries a piano');
  END IF;
  UPDATE shop.reservation SET state = 'shipped' WHERE id = (request->>'reservation')::bigint AND state = 'held';
  IF NOT FOUND THEN PERFORM lockstep.saga_refuse('nothing is held for this order'); END IF;
  UPDATE shop.orders SET state = 'shipped' WHERE id = request->>'order';
  RETURN NULL;
END $$;

CREATE FUNCTION shop.take_back(request jsonb) RETURNS jsonb LANGUAGE plpgsql SET search_path = '' AS $$
BEGIN
  UPDATE shop.reservation SET state = 'held' WHERE id = (request->>'reservation')::bigint AND state = 'shipped';
  UPDATE shop.orders SET state = 'placed' WHERE id = request->>'order';
  RETURN NULL;
END $$;

INSERT INTO shop.stock VALUES ('lamp', 100), ('piano', 3), ('book', 1000);
