DROP TABLE projection_fields, row_versions, audit, rebuilds, verify_differences, verifications, checkpoints, dead_letters, parked, key_state;
DROP VIEW group_offsets;
DROP TABLE offsets, instances, inbox, retired_generations;
DROP VIEW active_slots;
DROP TABLE slots;
DROP SEQUENCE generations;
DROP TABLE consumer_groups;
