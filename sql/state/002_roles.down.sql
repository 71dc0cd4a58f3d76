DROP FUNCTION revoke_rights(regrole, regclass[]);
DROP FUNCTION grant_reader(regrole);
DROP FUNCTION grant_operator(regrole, regclass[]);
DROP FUNCTION grant_runner(regrole, regclass[]);
DROP FUNCTION clean_audit(interval, int);
DROP FUNCTION grant_read_model(regrole, regclass[], text);
