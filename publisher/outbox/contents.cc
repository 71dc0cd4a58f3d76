#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "platform/status.h"
#include "publisher/outbox/outbox_store.h"

// Content dedup: which of the rows that have the same content for the same space is sent.
namespace lockstep::publisher {
namespace {

using postgres::Array;
using postgres::Result;
using postgres::Row;

// A row takes the place of its content, if that is free. In the order of the key, in which others
// do it at the same time. $1 the outbox, $2 sequences, $3 spaces, $4 digests, of one row per
// content.
constexpr char kTakePlaces[] = R"sql(
INSERT INTO lockstep.outbox_contents (outbox, target_space, payload_sha, sequence)
SELECT o.outbox, m.space, m.sha, m.sequence
FROM lockstep.outboxes o, unnest($2::bigint[], $3::text[], $4::bytea[]) WITH ORDINALITY AS m(sequence, space, sha, n)
WHERE o.outbox = $1::regclass AND o.dedup_window IS NOT NULL
ORDER BY m.n
ON CONFLICT DO NOTHING
RETURNING sequence)sql";

// Whether the space has heard something else of the row's aggregate since the first one was sent:
// then it has to hear the old again (A, B, A). The version before tells: had it the same content,
// it was sent or told already.
constexpr char kHeardAnother[] = R"sql(
(SELECT h.payload_sha IS DISTINCT FROM m.sha
        AND (hb.published_at IS NULL OR hb.published_at > b.published_at OR h.sequence > c.sequence)
 FROM {outbox} h LEFT JOIN {published} hb ON hb.sequence = h.sequence
 WHERE h.aggregate_id = n.aggregate_id AND h.version < n.version AND h.aggregate_type = n.aggregate_type
   AND h.tenant_id IS NOT DISTINCT FROM n.tenant_id AND (h.target_space IS NULL OR h.target_space = m.space)
 ORDER BY h.version DESC LIMIT 1))sql";

// What becomes of each row, by whose place it is. A statement of its own: it sees the row of every
// place that it sees. (Who is dead, quarantined or held behind such a one is not to be waited for.)
// $1 … $4 as above, of all rows.
constexpr char kJudge[] = R"sql(
SELECT m.sequence, c.sequence AS first, b.message_id,
       CASE WHEN c.sequence IS NULL OR c.sequence = m.sequence THEN 'send'
            WHEN b.published_at > statement_timestamp() - o.dedup_window AND NOT coalesce({heard_another}, false) THEN 'hit'
            WHEN p.sequence IS NULL OR p.available_at = 'infinity' THEN 'free'
            ELSE 'wait' END AS verdict
FROM unnest($2::bigint[], $3::text[], $4::bytea[]) AS m(sequence, space, sha)
JOIN lockstep.outboxes o ON o.outbox = $1::regclass
LEFT JOIN {outbox} n ON n.sequence = m.sequence
LEFT JOIN lockstep.outbox_contents c
  ON c.outbox = o.outbox AND c.target_space = m.space AND c.payload_sha = m.sha AND o.dedup_window IS NOT NULL
LEFT JOIN {outbox} e ON e.sequence = c.sequence
LEFT JOIN {pending} p ON p.aggregate_hash = lockstep.aggregate_hash(e.aggregate_id, e.aggregate_type, e.tenant_id)
                     AND p.version = e.version AND p.sequence = e.sequence
LEFT JOIN {published} b ON b.sequence = c.sequence)sql";

std::string JudgeSql() { return postgres::FillNames(kJudge, {{"heard_another", kHeardAnother}}); }

// The places of rows that will not be published soon, or were too long ago. $1 … $4 as above, $5
// whose places they are.
constexpr char kTakeOver[] = R"sql(
UPDATE lockstep.outbox_contents c SET sequence = m.sequence
FROM unnest($2::bigint[], $3::text[], $4::bytea[], $5::bigint[]) AS m(sequence, space, sha, first)
WHERE c.outbox = $1::regclass AND c.target_space = m.space AND c.payload_sha = m.sha AND c.sequence = m.first
RETURNING c.sequence)sql";

// $1 the outbox, $2 … $4 of rows that are not sent after all.
constexpr char kLeavePlaces[] = R"sql(
DELETE FROM lockstep.outbox_contents c
USING unnest($2::bigint[], $3::text[], $4::bytea[]) AS m(sequence, space, sha)
WHERE c.outbox = $1::regclass AND c.target_space = m.space AND c.payload_sha = m.sha AND c.sequence = m.sequence)sql";

struct Columns {
  Array sequences;
  Array spaces;
  Array digests;
  Array firsts;

  void Add(const OutboxRow& row, int64_t first = 0) {
    sequences.Add(row.sequence);
    spaces.Add(row.target_space);
    digests.AddBytea(row.payload_sha);
    firsts.Add(first);
  }
};

auto ContentOf(const OutboxRow& row) { return std::tie(row.target_space, row.payload_sha); }

// By content, of one content by version: of one key, the first has to be sent first.
std::vector<const OutboxRow*> InOrder(const std::vector<OutboxRow>& rows) {
  std::vector<const OutboxRow*> ordered;
  for (const OutboxRow& row : rows) {
    if (!row.target_space.empty()) ordered.push_back(&row);
  }
  std::ranges::stable_sort(ordered, [](const OutboxRow* a, const OutboxRow* b) {
    return std::tuple_cat(ContentOf(*a), std::tie(a->version)) <
           std::tuple_cat(ContentOf(*b), std::tie(b->version));
  });
  return ordered;
}

}  // namespace

absl::StatusOr<std::map<int64_t, ContentVerdict>> OutboxStore::JudgeContents(
    const std::vector<OutboxRow>& rows) {
  std::map<int64_t, ContentVerdict> verdicts;
  const std::vector<const OutboxRow*> ordered = InOrder(rows);
  if (ordered.empty()) return verdicts;
  Columns all;
  Columns first_of_each;
  for (size_t i = 0; i < ordered.size(); ++i) {
    all.Add(*ordered[i]);
    if (i == 0 || ContentOf(*ordered[i]) != ContentOf(*ordered[i - 1])) {
      first_of_each.Add(*ordered[i]);
    }
  }
  ASSIGN_OR_RETURN(
      const Result taken,
      connection_.Execute(About("take_places", kTakePlaces), quoted_table_, first_of_each.sequences,
                          first_of_each.spaces, first_of_each.digests));
  static const std::string judge = JudgeSql();
  ASSIGN_OR_RETURN(const Result judged,
                   connection_.Execute(About("judge_contents", judge), quoted_table_, all.sequences,
                                       all.spaces, all.digests));
  std::map<int64_t, int64_t> free;  // row -> whose place it is
  for (const Row row : judged) {
    const std::string verdict = row.String("verdict");
    ContentVerdict& into = verdicts[row.Int("sequence")];
    using Kind = ContentVerdict::Kind;
    into.kind = verdict == "send" ? Kind::kSend : verdict == "hit" ? Kind::kHit : Kind::kWait;
    if (into.kind == Kind::kHit) into.message_id = row.OptionalText("message_id").value_or("");
    if (verdict == "free") free[row.Int("sequence")] = row.Int("first");
  }
  if (free.empty()) return verdicts;
  Columns over;
  const OutboxRow* last = nullptr;
  for (const OutboxRow* row : ordered) {
    const auto found = free.find(row->sequence);
    if (found == free.end() || (last != nullptr && ContentOf(*last) == ContentOf(*row))) continue;
    over.Add(*row, found->second);
    last = row;
  }
  ASSIGN_OR_RETURN(const Result took_over,
                   connection_.Execute(About("take_over", kTakeOver), quoted_table_, over.sequences,
                                       over.spaces, over.digests, over.firsts));
  for (const Row row : took_over) {
    verdicts[row.Int("sequence")].kind = ContentVerdict::Kind::kSend;
  }
  return verdicts;
}

absl::Status OutboxStore::LeaveContents(const std::vector<RowPtr>& rows) {
  Columns columns;
  for (const RowPtr& row : rows) {
    if (!row->target_space.empty()) columns.Add(*row);
  }
  if (columns.sequences.size() == 0) return absl::OkStatus();
  return connection_.Run(About("leave_places", kLeavePlaces), quoted_table_, columns.sequences,
                         columns.spaces, columns.digests);
}

}  // namespace lockstep::publisher
