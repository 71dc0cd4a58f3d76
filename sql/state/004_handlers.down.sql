DROP FUNCTION refuse(uuid, text);
DROP TYPE event;
