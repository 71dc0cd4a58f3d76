-- What projections keep besides their tables.

-- The version of every row of a table that is deleted from hard: a late older update must not bring
-- a deleted row back. A row with deleted_at is a tombstone; it lives as long as inbox rows do.
CREATE TABLE row_versions (
  consumer_group text NOT NULL,
  generation bigint NOT NULL,
  projection text NOT NULL,
  row_key text NOT NULL,
  version bigint NOT NULL,
  -- The first version of the batch that wrote last: lets one statement refuse a batch of which a part is stale.
  first_version bigint NOT NULL,
  deleted_at timestamptz,
  aggregate text,  -- whose row it is, where the projection says to remember it
  PRIMARY KEY (consumer_group, generation, projection, row_key),
  CHECK (first_version <= version)
);
CREATE INDEX row_versions_tombstones ON row_versions (deleted_at) WHERE deleted_at IS NOT NULL;

-- The message fields that a group's mappings used at its last start: a field that was renumbered or
-- retyped since is refused, for the messages in the subscription still have the old shape.
CREATE TABLE projection_fields (
  consumer_group text NOT NULL,
  message text NOT NULL,
  field text NOT NULL,
  number text NOT NULL,
  type text NOT NULL,
  PRIMARY KEY (consumer_group, message, field)
);
