#include "operations/reconcile.h"

#include <algorithm>
#include <set>
#include <utility>

#include "platform/status.h"
#include "state/positions/offsets.h"

namespace lockstep::operations {
namespace {

constexpr std::string_view kClasses[] = {
    "handled",     "parked",      "dead",           "discarded", "on_its_way",
    "unpublished", "quarantined", "dead_at_source", "left_out",  "missing",
    "entries",     "snapshots",   "orphans"};

// A backfill makes its event ids of what they are about (UUID version 5): no outbox has them.
bool IsSnapshot(const std::string& event_id) { return event_id.size() > 14 && event_id[14] == '5'; }

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
    std::string last;
    while (true) {
      ASSIGN_OR_RETURN(const std::vector<SourceEvent> page, source_.next());
      if (page.empty()) break;
      for (const SourceEvent& event : page) {
        if (event.event_id <= last) {
          return InvalidArgument("the events are not in the order of their ids (at {})",
                                 event.event_id);
        }
        const std::string before = std::exchange(last, event.event_id);
        if (&event == &page.front()) first_before_ = before;
      }
      RETURN_IF_ERROR(Judge(page));
      RETURN_IF_ERROR(FindOrphans(first_before_, last, page));
    }
    RETURN_IF_ERROR(FindOrphans(last, "", {}));
    RETURN_IF_ERROR(LookAgain());
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

  static std::vector<state::EventFates::Event> Questions(const std::vector<SourceEvent>& events) {
    std::vector<state::EventFates::Event> questions;
    for (const SourceEvent& event : events) {
      questions.push_back({event.event_id, event.aggregate_key, event.version, event.message_id});
    }
    return questions;
  }

  absl::Status Judge(const std::vector<SourceEvent>& page) {
    ASSIGN_OR_RETURN(const auto fates, fates_.Of(connection_, under_.generation, Questions(page)));
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

  std::string ClassOf(const SourceEvent& event, const state::EventFates::Fate& fate) const {
    if (fate.dead == "discarded") return "discarded";
    if (fate.dead == "dead" || fate.dead == "quarantined") return "dead";
    if (fate.parked) return "parked";
    if (fate.received_at) return "handled";
    if (!event.published) {
      if (event.state == "dead") return "dead_at_source";
      return event.state == "quarantined" ? "quarantined" : "unpublished";
    }
    const auto before = [&](const std::optional<WallTime>& time) {
      return time && *event.published < *time - options_.grace;
    };
    // A reset leaves what was published before it out; so does a subscription made later.
    if (before(under_.skip_before) || before(under_.first_publish_time)) return "left_out";
    return before(result_.offset_time) ? "missing" : "on_its_way";
  }

  // Of the inbox between two ids, against the source's events between them.
  absl::Status FindOrphans(std::string after, const std::string& last,
                           const std::vector<SourceEvent>& page) {
    std::set<std::string_view> known;
    for (const SourceEvent& event : page) known.insert(event.event_id);
    if (!source_.oldest) return absl::OkStatus();  // it keeps nothing
    // A row that is cleaned away may have been received a little after the next was published.
    WallTime from = std::max(source_.since, *source_.oldest + options_.grace);
    WallTime until = source_.as_of;
    if (source_.kept) {
      until += options_.grace;  // what came meanwhile is asked for
    } else {
      from = std::max(from, source_.since + options_.grace);
      until -= options_.grace;
    }
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
    }
    for (const auto& [id, received_at] : strangers) {
      ++result_.counts[IsSnapshot(id) ? "snapshots" : "orphans"];
      if (IsSnapshot(id) || result_.orphans.size() >= options_.most_listed) continue;
      result_.orphans.emplace_back(id, received_at);
    }
    return absl::OkStatus();
  }

  // What was being received while the first look went on.
  absl::Status LookAgain() {
    if (result_.missing.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto fates,
                     fates_.Of(connection_, under_.generation, Questions(result_.missing)));
    std::vector<SourceEvent> still;
    for (size_t i = 0; i < fates.size(); ++i) {
      const std::string fate = ClassOf(result_.missing[i], fates[i]);
      if (fate == "missing") {
        still.push_back(result_.missing[i]);
        continue;
      }
      --result_.counts["missing"];
      ++result_.counts[fate];
    }
    result_.missing = std::move(still);
    return absl::OkStatus();
  }

  postgres::Connection& connection_;
  const state::Epochs epochs_;
  const state::Offsets offsets_;
  const state::EventFates fates_;
  const SourceLedger& source_;
  const ReconcileOptions& options_;
  state::GroupEpoch under_;
  std::string first_before_;  // the last id of the page before
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
