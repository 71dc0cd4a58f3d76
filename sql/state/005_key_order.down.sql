ALTER TABLE dead_letters ALTER COLUMN aggregate_key TYPE text COLLATE "default";
ALTER TABLE parked ALTER COLUMN aggregate_key TYPE text COLLATE "default";
ALTER TABLE key_state ALTER COLUMN aggregate_key TYPE text COLLATE "default";
