DROP TABLE audit, checkpoints, dead_letters, parked, key_state;
DROP VIEW group_offsets;
DROP TABLE offsets, instances, inbox, slots;
DROP SEQUENCE generations;
DROP TABLE consumer_groups;
