#include "operations/shadow_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "platform/status.h"
#include "postgres/identifier.h"

namespace lockstep::operations {
namespace {

// $1 = the live tables, $2 = the suffix.
constexpr std::string_view kObstacles = R"(
WITH wanted AS (SELECT name, to_regclass(name)::oid AS t FROM unnest($1::text[]) AS name),
live AS (SELECT w.t, c.relname, c.relkind, c.relowner, c.relnamespace, c.reltype, c.relispartition,
                c.relrowsecurity, n.nspname || '.' || c.relname AS name
           FROM wanted w JOIN pg_class c ON c.oid = w.t JOIN pg_namespace n ON n.oid = c.relnamespace)
SELECT format('table %s does not exist', name) FROM wanted WHERE t IS NULL
UNION ALL
SELECT format('%s is %s, not a plain table', name,
              CASE relkind WHEN 'p' THEN 'partitioned' WHEN 'f' THEN 'a foreign table'
                           WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view'
                           ELSE 'something else' END)
  FROM live WHERE relkind <> 'r'
UNION ALL
SELECT format('%s is part of an inheritance or partitioning with %s', name,
              CASE WHEN i.inhrelid = t THEN i.inhparent ELSE i.inhrelid END::regclass)
  FROM live JOIN pg_inherits i ON t IN (i.inhrelid, i.inhparent)
UNION ALL
SELECT DISTINCT format('%s %s reads %s and would stay with the old table',
                       CASE v.relkind WHEN 'm' THEN 'materialized view' ELSE 'view' END,
                       v.oid::regclass, name)
  FROM live
  JOIN pg_depend d ON d.refobjid = t AND d.refclassid = 'pg_class'::regclass
                  AND d.classid = 'pg_rewrite'::regclass
  JOIN pg_rewrite r ON r.oid = d.objid
  JOIN pg_class v ON v.oid = r.ev_class
 WHERE v.oid <> t
UNION ALL
SELECT format('%s has the rule %s', name, r.rulename)
  FROM live JOIN pg_rewrite r ON r.ev_class = t WHERE relkind = 'r'
UNION ALL
SELECT format('%s has the trigger %s', name, g.tgname)
  FROM live JOIN pg_trigger g ON g.tgrelid = t WHERE NOT g.tgisinternal
UNION ALL
SELECT format('%s refers to %s by its foreign key %s', c.conrelid::regclass, name, c.conname)
  FROM live JOIN pg_constraint c ON c.confrelid = t WHERE c.contype = 'f'
UNION ALL
SELECT format('%s has row security or policies', name)
  FROM live WHERE relrowsecurity OR EXISTS (SELECT FROM pg_policy WHERE polrelid = t)
UNION ALL
SELECT format('%s is in the publication %s', name, p.pubname)
  FROM live JOIN pg_namespace n ON n.oid = relnamespace
  JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = relname
UNION ALL
SELECT DISTINCT format('function %s depends on %s', d.objid::regprocedure, name)
  FROM live JOIN pg_depend d ON d.classid = 'pg_proc'::regclass
                            AND (d.refobjid = t OR d.refobjid = reltype)
UNION ALL
SELECT DISTINCT format('%s uses the row type of %s', d.objid::regclass, name)
  FROM live JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.refobjid = reltype
            AND d.refclassid = 'pg_type'::regclass
UNION ALL
SELECT format('%s owns the sequence %s (a serial column; an identity column works)', name,
              d.objid::regclass)
  FROM live JOIN pg_depend d ON d.refobjid = t AND d.refclassid = 'pg_class'::regclass
            AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
  JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
UNION ALL
SELECT format('%s belongs to %s, and %s has not its rights', name, pg_get_userbyid(relowner),
              current_user)
  FROM live WHERE NOT pg_has_role(relowner, 'USAGE')
UNION ALL
SELECT DISTINCT format('%s may not create tables in schema %s', current_user,
                       relnamespace::regnamespace)
  FROM live WHERE NOT has_schema_privilege(relnamespace, 'CREATE')
UNION ALL
SELECT format('the name %s is too long to get the suffix %s', r.relname, $2::text)
  FROM live
  JOIN pg_class r ON r.oid = t OR r.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = t)
 WHERE octet_length(r.relname) + octet_length($2::text) > 63
UNION ALL
SELECT format('%s%s is there already', name, $2::text)
  FROM live JOIN pg_class o ON o.relnamespace = live.relnamespace AND o.relname = live.relname || $2::text)";

// What CREATE TABLE … LIKE leaves out, as statements. $1 = live, $2 = shadow, $3 = suffix.
constexpr std::string_view kRest = R"(
WITH l AS (SELECT * FROM pg_class WHERE oid = $1::regclass),
s AS (SELECT * FROM pg_class WHERE oid = $2::regclass),
indexes AS (
  SELECT indrelid, c.relname,
         (indisunique, indisprimary, indimmediate, indisexclusion,
          regexp_replace(pg_get_indexdef(indexrelid), '^.*? USING ', ''))::text AS what,
         row_number() OVER (PARTITION BY indrelid, indisunique, indisprimary, indimmediate,
                              indisexclusion,
                              regexp_replace(pg_get_indexdef(indexrelid), '^.*? USING ', '')
                            ORDER BY indexrelid) AS n
    FROM pg_index JOIN pg_class c ON c.oid = indexrelid
   WHERE indrelid IN ($1::regclass, $2::regclass)),
sequences AS (
  SELECT d.refobjid AS of, a.attname, q.relname
    FROM pg_depend d
    JOIN pg_class q ON q.oid = d.objid AND q.relkind = 'S'
    JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
   WHERE d.deptype = 'i' AND d.refobjid IN ($1::regclass, $2::regclass)),
statements AS (
  SELECT 1 AS step, format('ALTER TABLE %s ADD CONSTRAINT %I %s', $2, conname,
                           pg_get_constraintdef(oid)) AS sql
    FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'f'
  UNION ALL
  SELECT 2, format('ALTER INDEX %I.%I RENAME TO %I', (SELECT nspname FROM pg_namespace WHERE oid = l.relnamespace),
                   b.relname, a.relname || $3::text)
    FROM l, indexes a JOIN indexes b USING (what, n)
   WHERE a.indrelid = $1::regclass AND b.indrelid = $2::regclass AND b.relname <> a.relname || $3::text
  UNION ALL
  SELECT 3, format('ALTER SEQUENCE %I.%I RENAME TO %I', (SELECT nspname FROM pg_namespace WHERE oid = l.relnamespace),
                   b.relname, a.relname || $3::text)
    FROM l, sequences a JOIN sequences b USING (attname)
   WHERE a.of = $1::regclass AND b.of = $2::regclass AND b.relname <> a.relname || $3::text
  UNION ALL
  SELECT 4, format('COMMENT ON TABLE %s IS %L', $2, obj_description($1::regclass, 'pg_class'))
   WHERE obj_description($1::regclass, 'pg_class') IS NOT NULL
  UNION ALL
  SELECT 5, format('ALTER TABLE %s SET (%s)', $2, array_to_string(reloptions, ', '))
    FROM l WHERE reloptions IS NOT NULL
  UNION ALL
  SELECT 6, format('ALTER TABLE %s REPLICA IDENTITY %s', $2,
                   CASE relreplident WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING'
                     ELSE format('USING INDEX %I', (SELECT c.relname || $3::text FROM pg_index i
                                  JOIN pg_class c ON c.oid = i.indexrelid
                                 WHERE i.indrelid = l.oid AND i.indisreplident)) END)
    FROM l WHERE relreplident <> 'd'
  UNION ALL  -- default privileges may have added some
  SELECT 7, format('REVOKE ALL ON %s FROM %s', $2,
                   CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END)
    FROM s, aclexplode(s.relacl) g WHERE g.grantee <> s.relowner
  UNION ALL
  SELECT 8, format('GRANT %s ON %s TO %s%s', g.privilege_type, $2,
                   CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
                   CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
    FROM l, aclexplode(l.relacl) g WHERE g.grantee <> l.relowner
  UNION ALL
  SELECT 8, format('GRANT %s (%I) ON %s TO %s%s', g.privilege_type, a.attname, $2,
                   CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
                   CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
    FROM pg_attribute a, aclexplode(a.attacl) g
   WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT 9, format('ALTER TABLE %s OWNER TO %s', $2, l.relowner::regrole)
    FROM l, s WHERE l.relowner <> s.relowner)
SELECT sql FROM statements ORDER BY step)";

// What a table is made of, a line each, names without the suffix: two that are alike answer the
// same. $1 = table, $2 = its suffix.
constexpr std::string_view kStructure = R"(
SELECT format('column %s %s%s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
              CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END,
              CASE WHEN d.adbin IS NULL THEN '' ELSE ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid) END,
              CASE WHEN a.attidentity <> '' THEN ' IDENTITY' ELSE '' END,
              CASE WHEN a.attgenerated <> '' THEN ' GENERATED' ELSE '' END)
  FROM pg_attribute a
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT format('index %s %s%s', CASE WHEN $2 <> '' AND right(c.relname, length($2)) = $2
                                    THEN left(c.relname, -length($2)) ELSE c.relname END,
              CASE WHEN indisprimary THEN 'PRIMARY ' WHEN indisunique THEN 'UNIQUE ' ELSE '' END,
              regexp_replace(pg_get_indexdef(indexrelid), '^.*? USING ', ''))
  FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = $1::regclass
UNION ALL
SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid))
  FROM pg_constraint WHERE conrelid = $1::regclass AND contype IN ('c', 'f')
UNION ALL
SELECT format('right of %s to %s%s', CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
              g.privilege_type, CASE WHEN g.is_grantable THEN ', grantable' ELSE '' END)
  FROM pg_class c, aclexplode(c.relacl) g WHERE c.oid = $1::regclass AND g.grantee <> c.relowner
UNION ALL
SELECT format('owner %s', relowner::regrole) FROM pg_class WHERE oid = $1::regclass
 ORDER BY 1)";

// A table with its indexes and identity sequences. $1 = table, $2 = the suffix to take away, $3 =
// the one to add; one of them is empty.
constexpr std::string_view kRename = R"(
WITH parts AS (
  SELECT 2 AS step, 'TABLE' AS kind, $1::regclass::oid AS part
  UNION ALL SELECT 1, 'INDEX', indexrelid FROM pg_index WHERE indrelid = $1::regclass
  UNION ALL SELECT 1, 'SEQUENCE', d.objid
    FROM pg_depend d JOIN pg_class q ON q.oid = d.objid AND q.relkind = 'S'
   WHERE d.refobjid = $1::regclass AND d.deptype = 'i')
SELECT format('ALTER %s %I.%I RENAME TO %I', kind, n.nspname, c.relname,
              CASE WHEN $2 <> '' THEN left(c.relname, -length($2)) ELSE c.relname || $3 END)
  FROM parts JOIN pg_class c ON c.oid = part JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE $2 = '' OR right(c.relname, length($2)) = $2
 ORDER BY step, c.oid)";

absl::StatusOr<std::string> Quoted(const std::string& table, const std::string& suffix = "") {
  ASSIGN_OR_RETURN(auto name, postgres::QualifiedName::Parse(table));
  name.name += suffix;
  return name.Quoted();
}

std::vector<std::string> Column(const postgres::Result& rows) {
  std::vector<std::string> texts;
  for (int i = 0; i < rows.rows(); ++i) texts.emplace_back(rows.Text(i, 0));
  return texts;
}

absl::Status RunAll(postgres::Transaction& transaction, std::string_view statements,
                    const postgres::Params& params) {
  ASSIGN_OR_RETURN(const auto rows, transaction.Execute(statements, params));
  for (const std::string& sql : Column(rows)) RETURN_IF_ERROR(transaction.Run(sql));
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> ShadowTables::names(const std::string& suffix) const {
  std::vector<std::string> names;
  for (const std::string& table : tables_) names.push_back(table + suffix);
  return names;
}

absl::StatusOr<std::vector<std::string>> ShadowTables::Obstacles(postgres::Connection& connection,
                                                                 const std::string& suffix) const {
  std::vector<std::string> quoted;
  for (const std::string& table : tables_) {
    ASSIGN_OR_RETURN(const std::string name, Quoted(table));
    quoted.push_back(name);
  }
  ASSIGN_OR_RETURN(const auto rows, connection.Execute(kObstacles, quoted, suffix));
  return Column(rows);
}

absl::Status ShadowTables::Create(postgres::Transaction& transaction,
                                  const std::string& suffix) const {
  for (const std::string& table : tables_) {
    ASSIGN_OR_RETURN(const std::string live, Quoted(table));
    ASSIGN_OR_RETURN(const std::string shadow, Quoted(table, suffix));
    ASSIGN_OR_RETURN(
        const auto unlogged,
        transaction.Execute("SELECT relpersistence = 'u' FROM pg_class WHERE oid = $1::regclass",
                            live));
    RETURN_IF_ERROR(
        transaction.Run(fmt::format("CREATE {}TABLE {} (LIKE {} INCLUDING ALL)",
                                    unlogged.Bool(0, 0) ? "UNLOGGED " : "", shadow, live)));
    RETURN_IF_ERROR(RunAll(transaction, kRest, postgres::Params(live, shadow, suffix)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ShadowTables::Changes(postgres::Transaction& transaction,
                                                               const std::string& suffix) const {
  std::vector<std::string> changes;
  for (const std::string& table : tables_) {
    ASSIGN_OR_RETURN(const std::string live, Quoted(table));
    ASSIGN_OR_RETURN(const std::string shadow, Quoted(table, suffix));
    ASSIGN_OR_RETURN(const auto of_live, transaction.Execute(kStructure, live, ""));
    ASSIGN_OR_RETURN(const auto of_shadow, transaction.Execute(kStructure, shadow, suffix));
    const auto a = Column(of_live), b = Column(of_shadow);
    const auto lacks = [&](const auto& all, const auto& in, std::string_view what) {
      for (const std::string& line : all) {
        if (std::find(in.begin(), in.end(), line) == in.end()) {
          changes.push_back(fmt::format("{}: {} {}", table, what, line));
        }
      }
    };
    lacks(a, b, "the live table has got");
    lacks(b, a, "the live table no longer has");
  }
  return changes;
}

absl::Status ShadowTables::Swap(postgres::Transaction& transaction, const std::string& old_suffix,
                                const std::string& new_suffix) const {
  std::vector<std::string> all;
  for (const std::string& table : tables_) {
    ASSIGN_OR_RETURN(const std::string live, Quoted(table));
    ASSIGN_OR_RETURN(const std::string shadow, Quoted(table, new_suffix));
    all.push_back(live);
    all.push_back(shadow);
  }
  RETURN_IF_ERROR(
      transaction.Run(fmt::format("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", fmt::join(all, ", "))));
  for (size_t i = 0; i < all.size(); i += 2) {
    RETURN_IF_ERROR(RunAll(transaction, kRename, postgres::Params(all[i], "", old_suffix)));
    RETURN_IF_ERROR(RunAll(transaction, kRename, postgres::Params(all[i + 1], new_suffix, "")));
  }
  return absl::OkStatus();
}

absl::Status ShadowTables::Drop(postgres::Transaction& transaction,
                                const std::string& suffix) const {
  for (const std::string& table : tables_) {
    ASSIGN_OR_RETURN(const std::string name, Quoted(table, suffix));
    RETURN_IF_ERROR(transaction.Run(fmt::format("DROP TABLE IF EXISTS {}", name)));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::operations
