-- What resets and `lockstepctl lag` need besides.

-- An ack or a Seek sent under the old epoch may still be on its way: the new epoch's waits for it.
ALTER TABLE consumer_groups ADD COLUMN seek_not_before timestamptz;

-- Generations that no slot has any longer, because a reset emptied their tables.
-- The cleaner takes their rows away, a few at a time.
CREATE TABLE retired_generations (
  generation int PRIMARY KEY,
  group_name text NOT NULL,
  retired_at timestamptz NOT NULL DEFAULT now()
);

-- What an instance says about itself each second.
ALTER TABLE instances
  ADD COLUMN handled bigint NOT NULL DEFAULT 0,  -- messages brought to an end under this epoch
  ADD COLUMN queued bigint NOT NULL DEFAULT 0,   -- in hand, not yet in a transaction
  ADD COLUMN publish_lag_ms bigint,              -- occurred -> published, of the last commit
  ADD COLUMN receive_lag_ms bigint,              -- published -> received
  ADD COLUMN commit_lag_ms bigint,               -- received -> committed
  ADD COLUMN lag_ms bigint,                      -- how old its read model is: idle is 0, stuck grows
  ADD COLUMN lag_basis text NOT NULL DEFAULT '', -- what that is measured by, in words
  ADD COLUMN state text NOT NULL DEFAULT '';     -- the word on its status page

-- The rebuild of a group that is under way, or that can still be rolled back: all of its state, so
-- that every step can be repeated by whoever comes next. While it fills, the shadow slot belongs to
-- a group of its own, `<group>~rebuild`, with its own epoch and Seek; the swap hands the slot over.
CREATE TABLE rebuilds (
  group_name text PRIMARY KEY REFERENCES consumer_groups ON DELETE CASCADE,
  state text NOT NULL DEFAULT 'preparing'
    CHECK (state IN ('preparing', 'filling', 'swapped', 'discarding')),
  old_slot int NOT NULL,
  new_slot int NOT NULL CHECK (new_slot > old_slot),
  discard_slot int CHECK (discard_slot IN (old_slot, new_slot)),  -- which one goes
  old_subscription text NOT NULL,
  new_subscription text NOT NULL,
  tables text[] NOT NULL,  -- as declared
  seek_time timestamptz,   -- where the shadow begins: one of the two
  seek_snapshot text,
  accept_missing boolean NOT NULL,
  keep_old_ms bigint NOT NULL CHECK (keep_old_ms >= 0),
  operator text NOT NULL,
  reason text NOT NULL,
  began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  swapped_at timestamptz,
  old_skip_before timestamptz,  -- of the old slot, for a rollback
  CHECK ((seek_time IS NULL) <> (seek_snapshot IS NULL)),
  CHECK ((state = 'discarding') = (discard_slot IS NOT NULL)),
  CHECK (state <> 'swapped' OR swapped_at IS NOT NULL)
);
