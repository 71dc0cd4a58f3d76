-- Aggregate keys are compared byte by byte, as the runner sorts them: transactions lock them in one
-- order whatever the database's language, and no sorting rule of a language is paid for per event.
ALTER TABLE key_state ALTER COLUMN aggregate_key TYPE text COLLATE "C";
ALTER TABLE parked ALTER COLUMN aggregate_key TYPE text COLLATE "C";
ALTER TABLE dead_letters ALTER COLUMN aggregate_key TYPE text COLLATE "C";
