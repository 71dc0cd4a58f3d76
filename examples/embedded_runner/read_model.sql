CREATE SCHEMA shop_read;
-- What the projection of main.cc writes.
CREATE TABLE shop_read.orders_by_state (state text PRIMARY KEY, orders bigint NOT NULL DEFAULT 0);
-- What the offset provider of offsets.cc writes.
CREATE TABLE shop_read.offsets (
  consumer_group text NOT NULL,
  instance text NOT NULL,
  lane int NOT NULL,
  subscription text NOT NULL,
  publish_time timestamptz NOT NULL,
  message_id text NOT NULL,
  epoch bigint NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer_group, instance, lane)
);
