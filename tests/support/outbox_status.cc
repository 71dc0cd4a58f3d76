#include "tests/support/outbox_status.h"

#include "postgres/identifier.h"

namespace lockstep::testing {
namespace {

constexpr char kWrite[] = R"sql(
CREATE FUNCTION {outbox}_write_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.published_at IS NOT NULL AND OLD.published_at IS NULL THEN
    INSERT INTO {outbox}_published (sequence, published_at, attempts) VALUES (NEW.sequence, NEW.published_at, NEW.attempts);
    DELETE FROM {outbox}_pending WHERE sequence = NEW.sequence;
  ELSIF NEW.published_at IS NULL AND OLD.published_at IS NOT NULL THEN
    DELETE FROM {outbox}_published WHERE sequence = NEW.sequence;
    INSERT INTO {outbox}_pending (sequence, aggregate_hash, version)
    SELECT sequence, lockstep.aggregate_hash(aggregate_id, aggregate_type, tenant_id), version
    FROM {outbox} WHERE sequence = NEW.sequence;
    NEW.available_at := coalesce(NEW.available_at, now());
    NEW.locked_at := coalesce(NEW.locked_at, OLD.published_at);  -- it was claimed once
  END IF;
  UPDATE {outbox}_published SET published_at = NEW.published_at, message_id = NEW.message_id WHERE sequence = NEW.sequence;
  UPDATE {outbox}_pending
  SET available_at = NEW.available_at, attempts = NEW.attempts, last_error = NEW.last_error, error_code = NEW.error_code,
      dead_at = NEW.dead_at, quarantined_at = NEW.quarantined_at,
      locked_at = CASE WHEN OLD.lock_token IS NULL THEN NEW.locked_at ELSE locked_at END
  WHERE sequence = NEW.sequence;
  IF NEW.lock_token IS DISTINCT FROM OLD.lock_token THEN
    UPDATE {outbox}_leases SET sequences = array_remove(sequences, NEW.sequence) WHERE token = OLD.lock_token;
    INSERT INTO {outbox}_leases (token, owner, claimed_at, locked_at, sequences)
    SELECT NEW.lock_token, coalesce(NEW.locked_by, 'another'), now(), coalesce(NEW.locked_at, now()), ARRAY[NEW.sequence]
    WHERE NEW.lock_token IS NOT NULL;
  ELSE
    UPDATE {outbox}_leases SET locked_at = NEW.locked_at, owner = NEW.locked_by WHERE token = NEW.lock_token;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER write INSTEAD OF UPDATE ON {outbox}_status
FOR EACH ROW EXECUTE FUNCTION {outbox}_write_status();
)sql";

}  // namespace

std::string StatusCanBeWritten(const std::string& outbox) {
  return postgres::FillNames(kWrite, {{"outbox", outbox}});
}

}  // namespace lockstep::testing
