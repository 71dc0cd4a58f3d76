// lockstepctl reconcile | reconcile export | reconcile compare: whether a group has received what
// an outbox has published, and nothing else.
#include "operations/reconcile.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "ctl/command/command.h"
#include "ctl/command/print.h"
#include "ctl/command/when.h"
#include "ctl/group/runner_context.h"
#include "ctl/source/source_database.h"
#include "platform/duration.h"
#include "platform/status.h"
#include "publisher/outbox/event_ledger.h"
#include "verify/passage.h"

namespace lockstep::ctl {
namespace {

using envelope::SourceEvent;
using operations::Reconciliation;
using operations::SourceLedger;

constexpr int kLedgerPage = 5'000;
// Between two events of a large outbox or inbox there may be very many that are older.
constexpr Millis kLedgerTimeout{3'600'000};
constexpr char kFileFormat[] = "lockstep-reconcile-1";

struct ReconcileArguments {
  SourceDatabase source;
  std::vector<std::string> topics;
  std::string group, schema, since = "24h", grace = "1m", wait = "30s", file;
};

// A duration before now, or a time.
// The rows of several outboxes as one list, in the order of their ids.
class LedgerReader {
 public:
  LedgerReader(postgres::Connection& connection, std::vector<postgres::QualifiedName> tables,
               publisher::LedgerFilter filter)
      : connection_(connection), tables_(std::move(tables)), filter_(std::move(filter)) {}

  absl::StatusOr<std::vector<SourceEvent>> Next() {
    std::vector<SourceEvent> page;
    for (const postgres::QualifiedName& table : tables_) {
      ASSIGN_OR_RETURN(const auto rows,
                       publisher::ReadLedger(connection_, table, filter_, after_, kLedgerPage));
      page.insert(page.end(), rows.begin(), rows.end());
    }
    std::ranges::sort(page, {}, &SourceEvent::event_id);
    if (page.size() > kLedgerPage) page.resize(kLedgerPage);
    if (!page.empty()) after_ = page.back().event_id;
    return page;
  }

  absl::StatusOr<std::vector<std::string>> Kept(const std::vector<std::string>& ids) const {
    std::vector<std::string> kept;
    for (const postgres::QualifiedName& table : tables_) {
      ASSIGN_OR_RETURN(const auto some, publisher::KeptEvents(connection_, table, ids));
      kept.insert(kept.end(), some.begin(), some.end());
    }
    return kept;
  }

  // Since when all of them keep what they published, and their time.
  absl::StatusOr<publisher::LedgerTimes> Times() const {
    publisher::LedgerTimes times;
    for (const postgres::QualifiedName& table : tables_) {
      ASSIGN_OR_RETURN(const auto one, publisher::ReadLedgerTimes(connection_, table));
      times.oldest = std::max(times.oldest, one.oldest);
      times.now = one.now;
    }
    return times;
  }

 private:
  postgres::Connection& connection_;
  const std::vector<postgres::QualifiedName> tables_;
  const publisher::LedgerFilter filter_;
  std::string after_;
};

Json SourceJson(const SourceEvent& event) {
  return {{"event_id", event.event_id},
          {"aggregate", event.aggregate_key},
          {"version", event.version},
          {"event_type", event.event_type},
          {"message_id", event.message_id},
          {"state", event.state},
          {"published_at", OrNull(event.published)}};
}

absl::Status ExportLedger(const Context& context, const ReconcileArguments& options) {
  std::unique_ptr<postgres::Connection> connection;
  if (options.source.given()) {
    ASSIGN_OR_RETURN(connection, options.source.Connect(kLedgerTimeout));
  } else {
    ASSIGN_OR_RETURN(connection, context.Connect(kLedgerTimeout));
  }
  ASSIGN_OR_RETURN(auto tables, options.source.Tables(*connection));
  ASSIGN_OR_RETURN(const WallTime since, ParseWhen("--since", options.since));
  LedgerReader reader(*connection, tables, {since, options.topics});
  ASSIGN_OR_RETURN(const auto times, reader.Times());
  std::ofstream file(options.file, std::ios::trunc);
  file << Json({{"format", kFileFormat},
                {"since", FormatTimestamp(since)},
                {"as_of", FormatTimestamp(times.now)},
                {"oldest", FormatTimestamp(times.oldest)}})
              .dump()
       << '\n';
  int64_t events = 0;
  while (true) {
    ASSIGN_OR_RETURN(const auto page, reader.Next());
    if (page.empty()) break;
    for (const SourceEvent& event : page) {
      file << SourceJson(event).dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
    }
    events += static_cast<int64_t>(page.size());
  }
  // The last line says that the file is whole.
  file << Json({{"events", events}}).dump() << '\n';
  file.close();
  if (!file) return Unavailable("{} could not be written: is the disk full?", options.file);
  return context.Answer({{"file", options.file}, {"events", events}}, [&] {
    Print("{}: {} events; take it to the consumer and run lockstepctl reconcile compare\n",
          options.file, events);
  });
}

// As Postgres writes one: it goes into SQL as it is, and files are in the order of these texts.
bool IsEventId(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
    const char c = text[i];
    if (hyphen ? c != '-' : (c < '0' || c > '9') && (c < 'a' || c > 'f')) return false;
  }
  return true;
}

// A file of ExportLedger, a page at a time.
class LedgerFile {
 public:
  static absl::StatusOr<std::unique_ptr<LedgerFile>> Open(const std::string& name,
                                                          SourceLedger& ledger) {
    std::unique_ptr<LedgerFile> file(new LedgerFile(name));
    std::string line;
    if (!std::getline(file->in_, line)) return NotFound("{} can't be read", name);
    const Json head = Json::parse(line, nullptr, false);
    try {
      if (!head.is_object() || head.value("format", "") != kFileFormat) return file->Foreign();
      ASSIGN_OR_RETURN(ledger.since, ParseTimestamp(head.value("since", "")));
      ASSIGN_OR_RETURN(ledger.as_of, ParseTimestamp(head.value("as_of", "")));
      ASSIGN_OR_RETURN(const WallTime oldest, ParseTimestamp(head.value("oldest", "")));
      ledger.oldest = [oldest] { return oldest; };
    } catch (const Json::exception&) {  // a value of another kind
      return file->Foreign();
    }
    return file;
  }

  absl::StatusOr<std::vector<SourceEvent>> Next() {
    std::vector<SourceEvent> page;
    std::string line;
    while (!ended_ && page.size() < kLedgerPage) {
      const Json row = std::getline(in_, line) ? Json::parse(line, nullptr, false) : Json(nullptr);
      if (!row.is_object()) return Damaged();
      try {
        if (!row.contains("event_id")) {
          ended_ = row.value("events", int64_t{-1}) == events_;
          if (ended_) break;
          return InvalidArgument("{} does not have as many events as it says; export it again",
                                 name_);
        }
        ASSIGN_OR_RETURN(SourceEvent event, Read(row));
        page.push_back(std::move(event));
      } catch (const Json::exception&) {
        return Damaged();
      }
      ++events_;
    }
    return page;
  }

 private:
  explicit LedgerFile(const std::string& name) : name_(name), in_(name) {}

  absl::Status Foreign() const {
    return InvalidArgument("{} is no file of lockstepctl reconcile export", name_);
  }
  absl::Status Damaged() const {
    return InvalidArgument("{} is cut off or damaged after {} events; export it again", name_,
                           events_);
  }

  absl::StatusOr<SourceEvent> Read(const Json& row) const {
    SourceEvent event{.event_id = row.value("event_id", ""),
                      .aggregate_key = row.value("aggregate", ""),
                      .version = row.value("version", int64_t{0}),
                      .event_type = row.value("event_type", ""),
                      .message_id = row.value("message_id", ""),
                      .state = row.value("state", "")};
    if (!IsEventId(event.event_id)) return Damaged();
    if (row.contains("published_at") && row["published_at"].is_string()) {
      ASSIGN_OR_RETURN(event.published, ParseTimestamp(TextOf(row["published_at"])));
    }
    return event;
  }

  const std::string name_;
  std::ifstream in_;
  int64_t events_ = 0;
  bool ended_ = false;
};

Json ReconcileJson(const std::string& group, const SourceLedger& source,
                   const Reconciliation& result) {
  Json counts = Json::object();
  for (const auto& [name, count] : result.counts) counts[name] = count;
  return {{"group", group},
          {"since", FormatTimestamp(source.since)},
          {"as_of", FormatTimestamp(source.as_of)},
          {"counts", counts},
          {"offset",
           {{"message_id", result.offset_message},
            {"publish_time", OrNull(result.offset_time)},
            {"event_id", result.offset_event}}},
          {"confirmed", result.unconfirmed.empty()},
          {"unconfirmed", result.unconfirmed},
          {"missing", ListOf(result.missing, SourceJson)},
          {"orphans", ListOf(result.orphans, [](const auto& orphan) -> Json {
             return {{"event_id", orphan.first}, {"received_at", FormatTimestamp(orphan.second)}};
           })}};
}

absl::Status Compare(const Context& context, const ReconcileArguments& options,
                     const SourceLedger& source) {
  ASSIGN_OR_RETURN(const GroupDesk desk,
                   OpenDesk(context, options.group, options.schema, kLedgerTimeout));
  operations::ReconcileOptions how;
  ASSIGN_OR_RETURN(how.grace, ParseDuration(options.grace));
  verify::PassageOptions passage;
  ASSIGN_OR_RETURN(passage.timeout, ParseDuration(options.wait));
  passage.grace = std::min(passage.grace, how.grace);
  const Millis retention = desk.runner.group != nullptr ? desk.runner.group->options.inbox_retention
                                                        : runner::GroupOptions().inbox_retention;
  ASSIGN_OR_RETURN(
      const state::GroupEpoch epoch,
      state::Epochs(desk.runner.schema(), ConsumerGroup(desk.group)).Load(desk.connection()));
  if (!epoch.by_versions && source.since < Clock::System().Now() - retention) {
    return InvalidArgument("the inbox forgets events after {}: ask for a later --since than {}",
                           FormatDuration(retention), FormatTimestamp(source.since));
  }
  // What may be missing is published, and the newest of it may be among that: the group need only
  // have had nothing older in hand.
  const publisher::Declaration none;
  how.pass = [&] {
    return verify::Passage({.silent = true}, none, desk.connection(), desk.runner.schema(),
                           desk.group, passage)
        .Await({});
  };
  ASSIGN_OR_RETURN(const Reconciliation result,
                   operations::Reconcile(desk.connection(), desk.runner.schema(),
                                         ConsumerGroup(desk.group), source, how));
  const Json json = ReconcileJson(desk.group, source, result);
  RETURN_IF_ERROR(context.Answer(json, [&] {
    Print("Group {}, events published since {}:\n", desk.group, FormatTimestamp(source.since));
    for (const auto& [name, count] : result.counts) {
      if (count > 0 || name == "missing" || name == "orphans") Print("{:>12}  {}\n", count, name);
    }
    if (!result.offset_message.empty()) {
      Print("The offset stands at message {} ({}), event {}\n", result.offset_message,
            TextOf(json["offset"]["publish_time"]),
            result.offset_event.empty() ? "not among these" : result.offset_event);
    }
    for (const SourceEvent& event : result.missing) {
      Print("missing  {}  {} v{}  {}  published {}  message {}\n", event.event_id,
            event.aggregate_key, event.version, event.event_type, TextOf(OrNull(event.published)),
            event.message_id);
    }
    if (!result.unconfirmed.empty()) {
      Print("What is missing may be late only: {}\n", result.unconfirmed);
    }
    for (const auto& [id, received_at] : result.orphans) {
      Print("orphan   {}  received {}\n", id, FormatTimestamp(received_at));
    }
  }));
  if (result.clean()) return absl::OkStatus();
  return FailedPrecondition(
      "{} published events never reached group '{}', {} received ones are not in the outbox; "
      "lockstepctl trace EVENT_ID follows one",
      result.counts.at("missing"), desk.group, result.counts.at("orphans"));
}

absl::Status ReconcileBoth(const Context& context, const ReconcileArguments& options) {
  if (!options.source.given() || options.source.outboxes.empty()) {
    return InvalidArgument(
        "name the source's database with --source and every outbox that feeds the group with "
        "--outbox; where only one side can be seen: reconcile export there, reconcile compare "
        "here");
  }
  ASSIGN_OR_RETURN(const auto connection, options.source.Connect(kLedgerTimeout));
  ASSIGN_OR_RETURN(auto tables, options.source.Tables(*connection));
  ASSIGN_OR_RETURN(const WallTime since, ParseWhen("--since", options.since));
  LedgerReader reader(*connection, tables, {since, options.topics});
  ASSIGN_OR_RETURN(const auto times, reader.Times());
  return Compare(context, options,
                 {.since = since,
                  .as_of = times.now,
                  .oldest = [&]() -> absl::StatusOr<WallTime> {
                    ASSIGN_OR_RETURN(const auto now, reader.Times());
                    return now.oldest;
                  },
                  .next = [&] { return reader.Next(); },
                  .kept = [&](const auto& ids) { return reader.Kept(ids); }});
}

absl::Status CompareFile(const Context& context, const ReconcileArguments& options) {
  SourceLedger ledger;
  ASSIGN_OR_RETURN(const auto file, LedgerFile::Open(options.file, ledger));
  ledger.next = [&] { return file->Next(); };
  return Compare(context, options, ledger);
}

}  // namespace

void AddReconcile(const Command& program) {
  const auto o = std::make_shared<ReconcileArguments>();
  const std::vector<Option> source = {
      {"--source", &o->source.url, "the source's Postgres, as postgresql://user@host/database"},
      {"--source-password-file", &o->source.password_file, "a file that has its password"},
      {"--outbox", &o->source.outboxes,
       "an outbox that feeds the group, as schema.name; as often as needed"},
      {"--topic", &o->topics, "only this logical topic; as often as needed"},
      {"--since", &o->since, "published since then: 24h, 24h ago, or RFC 3339",
       Option::kShowsDefault}};
  const std::vector<Option> consumer = {
      {"--group", &o->group, "the consumer group; the file's only one"},
      {"--schema", &o->schema, "the service's state schema; the file's"},
      {"--grace", &o->grace, "by which clocks and deliveries may be apart", Option::kShowsDefault},
      {"--wait", &o->wait, "how long to wait for the group before an event counts as missing",
       Option::kShowsDefault}};
  const Command reconcile = program.Add(
      "reconcile", "whether a group has received every event that was published, and no other", o,
      ReconcileBoth);
  reconcile.With(source).With(consumer);
  reconcile
      .Add("export", "write what an outbox has published into a file, for the consumer's side", o,
           ExportLedger)
      .With({{"file", &o->file, "the file to write", Option::kRequired}})
      .With(source);
  reconcile.Add("compare", "compare such a file with what a group has received", o, CompareFile)
      .With({{"file", &o->file, "a file of reconcile export", Option::kRequired}})
      .With(consumer);
}

}  // namespace lockstep::ctl
