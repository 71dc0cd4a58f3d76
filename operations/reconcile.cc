#include "operations/reconcile.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "platform/status.h"
#include "state/positions/offsets.h"

namespace lockstep::operations {
namespace {

constexpr std::string_view kClasses[] = {
    "applied",        "superseded", "ignored",     "settled",     "parked",         "dead",
    "discarded",      "on_its_way", "unpublished", "quarantined", "left_out",       "covered",
    "dead_at_source", "missing",    "entries",     "snapshots",   "no_longer_kept", "orphans"};

// Where the group goes by versions, to look for orphans reads all of key_state.
constexpr size_t kSeldom = 200'000;

// A backfill makes its event ids of what they are about (UUID version 5): no outbox has them.
bool IsSnapshot(const std::string& event_id) { return event_id.size() > 14 && event_id[14] == '5'; }

// When an id of version 7 was made; the others don't tell.
std::optional<WallTime> MadeAt(const std::string& event_id) {
  if (event_id.size() != 36 || event_id[14] != '7') return std::nullopt;
  const std::string digits = event_id.substr(0, 8) + event_id.substr(9, 4);
  int64_t millis = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), millis, 16);
  return WallTime(Millis(millis));
}

class Reconciler {
 public:
  Reconciler(postgres::Connection& connection, const state::Schema& schema,
             const ConsumerGroup& group, const SourceLedger& source,
             const ReconcileOptions& options)
      : connection_(connection),
        epochs_(schema, group),
        offsets_(schema),
        fates_(schema, group),
        source_(source),
        options_(options) {}

  absl::StatusOr<Reconciliation> Run() {
    for (const std::string_view name : kClasses) result_.counts[std::string(name)] = 0;
    ASSIGN_OR_RETURN(under_, epochs_.Load(connection_));
    RETURN_IF_ERROR(ReadOffset());
    RETURN_IF_ERROR(ReadEdge());
    std::string last, looked;  // for orphans, up to there
    std::set<std::string> known;
    while (true) {
      ASSIGN_OR_RETURN(const std::vector<SourceEvent> page, source_.next());
      if (page.empty()) break;
      for (const SourceEvent& event : page) {
        if (event.event_id <= last) {
          return InvalidArgument("the events are not in the order of their ids (at {})",
                                 event.event_id);
        }
        last = event.event_id;
        known.insert(last);
      }
      RETURN_IF_ERROR(Judge(page));
      if (under_.by_versions && known.size() < kSeldom) continue;
      RETURN_IF_ERROR(FindOrphans(std::exchange(looked, last), last, std::exchange(known, {})));
    }
    RETURN_IF_ERROR(FindOrphans(looked, "", known));
    if (result_.counts["missing"] == 0) result_.unconfirmed.clear();
    return std::move(result_);
  }

 private:
  absl::Status ReadOffset() {
    ASSIGN_OR_RETURN(const auto rows, offsets_.OfGroup(connection_, epochs_.group()));
    if (rows.empty()) return absl::OkStatus();
    result_.offset_message = rows[0].String("message_id");
    result_.offset_time = rows[0].Time("publish_time");
    return absl::OkStatus();
  }

  // A row that is cleaned away may have been received a little after the next was published. What a
  // file leaves out can't be asked for.
  absl::Status ReadEdge() {
    ASSIGN_OR_RETURN(const WallTime oldest, source_.oldest());
    edge_ = (source_.kept ? oldest : std::max(oldest, source_.since)) + options_.grace;
    return absl::OkStatus();
  }

  static std::vector<state::EventFates::Event> Questions(const std::vector<SourceEvent>& events) {
    std::vector<state::EventFates::Event> questions;
    for (const SourceEvent& event : events) {
      questions.push_back({event.event_id, event.aggregate_key, event.version, event.message_id});
    }
    return questions;
  }

  absl::Status Judge(const std::vector<SourceEvent>& page) {
    const auto questions = Questions(page);
    ASSIGN_OR_RETURN(auto fates, fates_.Of(connection_, under_.generation, questions));
    if (!passed_ && AnyMissing(page, fates)) {
      Pass();
      ASSIGN_OR_RETURN(fates, fates_.Of(connection_, under_.generation, questions));
    }
    for (size_t i = 0; i < page.size(); ++i) {
      if (!page[i].message_id.empty() && page[i].message_id == result_.offset_message) {
        result_.offset_event = page[i].event_id;
      }
      const std::string fate = ClassOf(page[i], fates[i]);
      ++result_.counts[fate];
      if (fate == "missing" && result_.missing.size() < options_.most_listed) {
        result_.missing.push_back(page[i]);
      }
    }
    return absl::OkStatus();
  }

  bool AnyMissing(const std::vector<SourceEvent>& page,
                  const std::vector<state::EventFates::Fate>& fates) const {
    for (size_t i = 0; i < page.size(); ++i) {
      if (ClassOf(page[i], fates[i]) == "missing") return true;
    }
    return false;
  }

  // Keys overtake each other, so that an event may come after the offset has passed it. Once is
  // enough: all that can be missing was published before the offset that was read first.
  void Pass() {
    passed_ = true;
    if (!options_.pass) return;
    const absl::Status passed = options_.pass();
    result_.unconfirmed = std::string(MessageOf(passed));
  }

  std::string ClassOf(const SourceEvent& event, const state::EventFates::Fate& fate) const {
    if (!fate.name.empty()) return fate.name;
    if (!event.published) {
      if (event.state == "dead") return "dead_at_source";
      return event.state == "quarantined" ? "quarantined" : "unpublished";
    }
    const auto before = [&](const std::optional<WallTime>& time) {
      return time && *event.published < *time - options_.grace;
    };
    // A reset leaves what was published before it out; so does a subscription made later.
    if (before(under_.skip_before) || before(under_.first_publish_time)) return "left_out";
    if (!before(result_.offset_time)) return "on_its_way";
    return fate.covered ? "covered" : "missing";
  }

  // Of the inbox between two ids, against the source's events between them.
  absl::Status FindOrphans(std::string after, const std::string& last,
                           const std::set<std::string>& known) {
    const WallTime from = std::max(source_.since, edge_);
    // What came meanwhile is asked for, if that is possible.
    const WallTime until = source_.as_of + (source_.kept ? options_.grace : -options_.grace);
    while (true) {
      ASSIGN_OR_RETURN(const auto rows, fates_.Entries(connection_, under_.generation,
                                                       {after, last, from, until}, options_.page));
      std::map<std::string, WallTime> strangers;
      for (const postgres::Row row : rows) {
        after = row.String("event_id");
        ++result_.counts["entries"];
        if (!known.contains(after)) strangers[after] = row.Time("received_at");
      }
      RETURN_IF_ERROR(AddOrphans(std::move(strangers)));
      if (rows.rows() < options_.page) return absl::OkStatus();
    }
  }

  absl::Status AddOrphans(std::map<std::string, WallTime> strangers) {
    if (strangers.empty()) return absl::OkStatus();
    if (source_.kept) {
      std::vector<std::string> ids;
      for (const auto& [id, unused] : strangers) ids.push_back(id);
      ASSIGN_OR_RETURN(const auto kept, source_.kept(ids));
      for (const std::string& id : kept) strangers.erase(id);
      // After that: what the source has deleted by then is older than what it has now.
      RETURN_IF_ERROR(ReadEdge());
    }
    for (const auto& [id, received_at] : strangers) {
      const bool orphan = !IsSnapshot(id) && !MayBeDeleted(id, received_at);
      ++result_.counts[orphan ? "orphans" : IsSnapshot(id) ? "snapshots" : "no_longer_kept"];
      if (orphan && result_.orphans.size() < options_.most_listed) {
        result_.orphans.emplace_back(id, received_at);
      }
    }
    return absl::OkStatus();
  }

  // A group that catches up receives today what was made, and published, long ago.
  bool MayBeDeleted(const std::string& event_id, WallTime received_at) const {
    return std::min(received_at, MadeAt(event_id).value_or(received_at)) < edge_;
  }

  postgres::Connection& connection_;
  const state::Epochs epochs_;
  const state::Offsets offsets_;
  const state::EventFates fates_;
  const SourceLedger& source_;
  const ReconcileOptions& options_;
  state::GroupEpoch under_;
  WallTime edge_;        // rows from before it may be deleted
  bool passed_ = false;  // what is not received by now is missing
  Reconciliation result_;
};

}  // namespace

absl::StatusOr<Reconciliation> Reconcile(postgres::Connection& connection,
                                         const state::Schema& schema, const ConsumerGroup& group,
                                         const SourceLedger& source,
                                         const ReconcileOptions& options) {
  return Reconciler(connection, schema, group, source, options).Run();
}

}  // namespace lockstep::operations
