DROP TABLE rebuilds;
ALTER TABLE instances
  DROP COLUMN handled, DROP COLUMN queued, DROP COLUMN publish_lag_ms, DROP COLUMN receive_lag_ms,
  DROP COLUMN commit_lag_ms, DROP COLUMN lag_ms, DROP COLUMN lag_basis, DROP COLUMN state;
DROP TABLE retired_generations;
ALTER TABLE consumer_groups DROP COLUMN seek_not_before;
