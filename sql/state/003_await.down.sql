DROP FUNCTION grant_waiter(regrole);
DROP FUNCTION await(text, text, text, bigint, text, interval);
DROP FUNCTION reached(text, text, text, bigint, text);
DROP FUNCTION settled_version(text, text, text, text);
