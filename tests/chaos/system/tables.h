#pragma once

// What the run keeps in the databases under attack: the read models, and triggers that write down
// what must never happen, at the moment it does.
namespace lockstep::chaos {

// In the source's database. Whoever marks a row has it under a lease of his own: the sessions of an
// instance are known by the leases that they took.
inline constexpr char kSourceTables[] = R"sql(
CREATE SCHEMA audit;
CREATE TABLE audit.violations (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text NOT NULL,
                               at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE audit.sessions (session text PRIMARY KEY, owner text NOT NULL);
CREATE FUNCTION audit.session() RETURNS text LANGUAGE sql AS $$
  SELECT pid || ' since ' || backend_start FROM pg_stat_get_activity(pg_backend_pid())
$$;
CREATE FUNCTION audit.claimed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO audit.sessions VALUES (audit.session(), NEW.owner) ON CONFLICT DO NOTHING;
  RETURN NEW;
END $$;
CREATE TRIGGER claimed BEFORE INSERT ON shop.outbox_leases FOR EACH ROW EXECUTE FUNCTION audit.claimed();
CREATE FUNCTION audit.marked() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  marker text := (SELECT owner FROM audit.sessions WHERE session = audit.session());
  owners text[] := ARRAY(SELECT owner FROM shop.outbox_leases WHERE OLD.sequence = ANY (sequences));
BEGIN
  IF marker <> ALL (owners) THEN
    INSERT INTO audit.violations (what)
    VALUES (format('row %s, version %s, was marked by %s while the lease was with %s', OLD.sequence, OLD.version,
                   marker, CASE WHEN owners = '{}' THEN 'nobody' ELSE owners::text END));
  END IF;
  RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TRIGGER published BEFORE DELETE ON shop.outbox_pending FOR EACH ROW EXECUTE FUNCTION audit.marked();
CREATE TRIGGER failed BEFORE UPDATE ON shop.outbox_pending FOR EACH ROW WHEN (NEW.attempts > OLD.attempts)
  EXECUTE FUNCTION audit.marked();
-- What the source holds; its rows of before the first event come to the consumer by backfills alone.
CREATE TABLE shop.items (id text PRIMARY KEY, version bigint NOT NULL, a text, b text);
)sql";

// {0} the name, {1} the outbox, {2} the topic, {3} the backfill's number. Slow enough for faults to
// meet each page, and for rows to change between a page's reading and its sending.
inline constexpr char kDeclaration[] = R"(backfill: {0}
outbox: {1}
topic: {2}
table: shop.items
key: [id]
aggregate_type: item
version: version
event_type: Is
schema_version: {3}
payload: {{fields: {{id: id, a: a, b: b, full_a: a, full_b: b}}}}
rows_per_second: 50
)";

// In the read models' database.
inline constexpr char kFeedTables[] = R"sql(
CREATE SCHEMA audit;
CREATE TABLE audit.violations (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text NOT NULL,
                               at timestamptz NOT NULL DEFAULT clock_timestamp());
-- Each write of a read model, in the order in which they were made to a row.
CREATE TABLE audit.writes (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  group_name text NOT NULL, key text NOT NULL, op text NOT NULL, version bigint NOT NULL,
  generation int NOT NULL, epoch bigint NOT NULL);
CREATE FUNCTION audit.write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO audit.writes (group_name, key, op, version, generation, epoch)
  SELECT g.group_name, coalesce(NEW.id, OLD.id), TG_OP, coalesce(NEW.version, OLD.version),
         s.generation, g.epoch
    FROM feed_state.consumer_groups g
    JOIN feed_state.slots s ON s.group_name = g.group_name AND s.slot = g.active_slot
   WHERE g.group_name = TG_ARGV[0];
  RETURN NULL;
END $$;
-- Each batch saves its offset with the epoch that it believes in.
CREATE FUNCTION audit.epoch() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  now_at bigint := (SELECT epoch FROM feed_state.consumer_groups g WHERE g.group_name = NEW.group_name);
BEGIN
  IF NEW.epoch <> now_at THEN
    INSERT INTO audit.violations (what)
    VALUES (format('a batch of %s lane %s committed under epoch %s when the group was at %s',
                   NEW.instance, NEW.lane, NEW.epoch, now_at));
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER epoch AFTER INSERT OR UPDATE ON feed_state.offsets FOR EACH ROW
  EXECUTE FUNCTION audit.epoch();
CREATE SCHEMA read;
)sql";

// Per group; {0} is its name, {1} what follows the columns.
inline constexpr char kReadModel[] = R"sql(
CREATE TABLE read.{0}_item (id text PRIMARY KEY, a text, b text, owner text,
                            version bigint NOT NULL{1});
CREATE TABLE read.{0}_total (bucket text PRIMARY KEY, n bigint NOT NULL DEFAULT 0,
                             amount bigint NOT NULL DEFAULT 0);
CREATE TRIGGER write AFTER INSERT OR UPDATE OR DELETE ON read.{0}_item FOR EACH ROW
  EXECUTE FUNCTION audit.write('{0}');
)sql";

// {0} is the group's name.
inline constexpr char kTotals[] = R"(
  - name: totals
    table: read.{0}_total
    key: bucket
    events:
      Set: {{increment: {{n: {{value: 1}}, amount: amount}}}}
      Patch: {{increment: {{n: {{value: 1}}, amount: amount}}}}
      Remove: {{increment: {{n: {{value: 1}}, amount: amount}}}}
)";
// {0} is the consumer's port.
inline constexpr char kHandler[] = R"(
handlers:
  - name: consumer
    call: http://127.0.0.1:{0}/called
    allow_private: true
    replay: skip
    snapshots: ignore
    timeout: 3s
    concurrency: 8
    events: [Set, Patch, Remove]
)";
inline constexpr char kOrderedProjection[] = R"(group: {0}
subscription: chaos.events.{0}
projections:
  - name: items
    table: read.{0}_item
    key: id
    version: version
    aggregate: owner
    events:
      Is: {{replace: [a, b]}}
      Set: {{replace: [a, b]}}
      Patch: {{merge: [a, b]}}
      Remove: delete
)";
// As the ordered one; without counts, so that what is wrong with an amount must be told here.
inline constexpr char kVersionsProjection[] = R"(group: {0}
subscription: chaos.events.{0}
projections:
  - name: items
    table: read.{0}_item
    key: id
    version: version
    aggregate: owner
    events:
      Is: {{replace: [a, b]}}
      Set: {{replace: [a, b, amount]}}
      Patch: {{merge: [a, b]}}
      Remove: delete
)";
// Every event says all that the aggregate is, so that any order will do.
inline constexpr char kLatestProjection[] = R"(group: {0}
subscription: chaos.events.{0}
projections:
  - name: items
    table: read.{0}_item
    key: id
    version: version
    aggregate: owner
    deleted_at: deleted_at
    events:
      Is: {{replace: {{a: full_a, b: full_b}}}}
      Set: {{replace: {{a: full_a, b: full_b}}}}
      Patch: {{replace: {{a: full_a, b: full_b}}}}
      Remove: delete
)";

}  // namespace lockstep::chaos
