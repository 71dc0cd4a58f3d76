#include "web/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "web/note_list.h"
#include "web/saga_notes.h"

namespace lockstep::web {
namespace {

using nlohmann::json;

constexpr int kMostKeys = 5;  // parked keys and dead rows that get a note of their own

constexpr char kWhereVersionsAre[] =
    " They follow by themselves when it arrives. Where is it? Ask the source's database: "
    "lockstepctl outbox list, with --key; or lockstepctl trace.";

constexpr char kSessions[] =
    "SELECT pid, wait_event_type, wait_event, pg_blocking_pids(pid) AS waits_for, left(query, 60) "
    "AS query FROM pg_stat_activity WHERE application_name LIKE 'lockstep%'";

std::string Age(int64_t ms) {
  if (ms < 1'000) return fmt::format("{} ms", ms);
  if (ms < 60'000) return fmt::format("{} s", ms / 1'000);
  if (ms < 3'600'000) return fmt::format("{} min {} s", ms / 60'000, ms / 1'000 % 60);
  return fmt::format("{} h {} min", ms / 3'600'000, ms / 60'000 % 60);
}

class Notes {
 public:
  explicit Notes(const json& document)
      : document_(document),
        database_(PartOf(document, "database")),
        reachable_(!database_.is_object() || database_.value("reachable", true)),
        schema_(TextOf(document, "ctl_schema")),
        ctl_(TextOf(document, "ctl").empty() ? "lockstepctl" : TextOf(document, "ctl")) {}

  json Take() {
    Database();
    for (const json& group : PartOf(document_, "groups")) Group(group);
    for (const json& outbox : PartOf(document_, "outboxes")) Outbox(outbox);
    OtherReasons();
    SagaNotes(document_, ctl_, notes_);
    return notes_.Take();
  }

 private:
  // `kind`: what it is told together with, if there are several.
  void Add(const char* severity, std::string title, std::string detail,
           const std::vector<Step>& steps, NoteList::Kind kind = {}) {
    notes_.Add(Note(severity, std::move(title), std::move(detail), steps), std::move(kind));
  }

  // For a command of lockstepctl: without a file it has to be told the schema.
  std::string InSchema() const { return schema_.empty() ? "" : " --schema " + Quoted(schema_); }
  std::string Of(const std::string& group) const {
    return fmt::format(" --group {}{}", Quoted(group), InSchema());
  }

  void Database() {
    if (reachable_) return;
    const bool runner = TextOf(document_, "role") == "runner";
    Add("bad", "The database is out of reach",
        fmt::format("{} {}", Sentence(TextOf(database_, "error")),
                    TextOf(document_, "role") == "orchestrator"
                        ? "No step is begun meanwhile; what is under way is saved or taken over, "
                          "and sagas go on by themselves when the database is back."
                    : runner ? "Nothing is applied and nothing is acked meanwhile, so nothing is "
                               "lost; it goes on by itself when the database is back."
                             : "Nothing is claimed meanwhile; rows wait in their outbox and "
                               "leave by themselves when the database is back."),
        {{"See whether it is back", Psql("SELECT 1")}});
  }

  // Whatever turns readiness off is told: this for what no other note has told of.
  void OtherReasons() {
    for (const json& reason : PartOf(document_, "reasons")) {
      if (!reason.is_string() || told_.contains(reason.get<std::string>())) continue;
      if (!reachable_ && TextOf(document_, "role") != "runner") continue;  // that is why
      Add("bad", fmt::format("This {} is not ready", TextOf(document_, "role")),
          fmt::format("{} Nothing is lost by it; it goes on when that is mended.",
                      Sentence(reason.get<std::string>())),
          {{"See whether its database answers", Psql("SELECT 1")}});
    }
  }

  // What is in the way of a group: each reason with its note, or told by one that is there anyway.
  void InTheWay(const json& group, const std::string& name) {
    for (const json& found : PartOf(group, "not_ready")) {
      const std::string what = TextOf(found, "what");
      const std::string text = TextOf(found, "text");
      if (what == "halted" || (what == "lane" && TellsOfLanes(group)) ||
          (!reachable_ && what != "stream")) {
        told_.insert(text);  // by its state, by its lanes, or by the database
        continue;
      }
      std::string title;
      const char* severity = "bad";
      const char* more = " It goes on by itself.";
      std::vector<Step> steps = {ShowLag()};
      if (what == "stream") {
        title = fmt::format("Group {} has no stream from Pub/Sub", name);
        more =
            " Nothing comes meanwhile; what is published waits in the subscription, and the stream "
            "opens again by itself. Is Pub/Sub reached from here, is the subscription there, has "
            "this role roles/pubsub.subscriber on it? lockstepctl provision, with the file that "
            "lists your topics, makes what is missing and says which rights are.";
      } else if (what == "waiting") {
        title = fmt::format("Group {} is waiting", name);
        more = " It tries again all the time and goes on by itself.";
      } else if (what == "starting") {
        title = fmt::format("Group {} is starting", name);
        severity = "info";
      } else if (what == "stopped") {
        title = fmt::format("Group {} has stopped", name);
        severity = "info";
        more = " This process is about to end.";
      } else if (what == "database") {
        title = fmt::format("Group {} has lost its database", name);
        more = " Nothing is acked meanwhile, so nothing is lost; it goes on by itself.";
        steps = {{"See whether it answers", Psql("SELECT 1")}};
      } else if (what == "loop") {
        title = fmt::format("The loop of group {} stands still", name);
        more = " It talks to the database once a round: a server that hangs holds it.";
        steps = {{"See what its sessions wait for", Psql(kSessions)}};
      } else {
        continue;  // OtherReasons
      }
      told_.insert(text);
      Add(severity, std::move(title), Sentence(text) + more, steps, {Groups(what)});
    }
  }

  // The same, of several groups.
  static std::string Groups(const std::string& what) {
    if (what == "stream") return "groups have no stream from Pub/Sub";
    if (what == "database") return "groups have lost their database";
    return what == "loop" ? "groups whose loop stands still" : "groups are " + what;
  }

  static bool TellsOfLanes(const json& group) {
    return std::ranges::any_of(PartOf(group, "lanes"), [](const json& lane) {
      return TextOf(lane, "state") == "stuck" || !TextOf(lane, "outage").empty();
    });
  }

  void Group(const json& group) {
    const std::string name = TextOf(group, "name");
    const std::string state = TextOf(group, "state");
    InTheWay(group, name);
    if (state == "halted") {
      Add("bad", fmt::format("Group {} has halted", name),
          fmt::format("{} Nothing is lost: what has not been applied comes again.",
                      Sentence(TextOf(group, "detail"))),
          {{"Compare what the projection wants with the tables", ProjectionCheck(group)},
           ListLetters(name, "See what could not be applied")},
          {"groups have halted"});
    }
    if (state == "paused") {
      Add("warning", fmt::format("Group {} is paused", name),
          fmt::format("{} Nothing is applied and no handler is called; what comes waits in its "
                      "subscription.",
                      Sentence(TextOf(group, "detail"))),
          {{"Let it go on", fmt::format("{} group resume {}{}", ctl_, Quoted(name), InSchema())}},
          {"groups are paused"});
    }
    Lanes(group, name);
    ParkedKeys(group, name);
    OtherDeadLetters(group, name);
    for (const json& table : PartOf(group, "verify")) Compared(group, table, name);
    if (const int64_t back = IntOf(PartOf(group, "counters"), "went_back"); back > 0) {
      Add("warning",
          fmt::format("{} new event{} of group {} had an old version", back, back == 1 ? "" : "s",
                      name),
          "Since this runner began, versions below those applied have come that were not seen "
          "before; they were acked and changed nothing. Was an aggregate deleted and made anew "
          "from version 1, or the source restored? The log names them.",
          {ListLetters(name, "See whether their later versions were refused as conflicts")});
    }
    const int64_t lag = IntOf(group, "lag_ms");
    const int64_t alert = IntOf(group, "lag_alert_ms", 300'000);
    const int64_t silence = IntOf(group, "heartbeat_age_ms", -1);
    const bool silent = silence > IntOf(group, "heartbeat_limit_ms", 30'000);
    if (silent) {
      Add("warning", fmt::format("Group {} hears no heartbeat", name),
          fmt::format("The publisher's last heartbeat came {} ago. This runner has nothing in "
                      "hand: the publisher has stopped, or the topic is out of its reach. Look "
                      "at the publisher's own page, or at what waits in its outbox: "
                      "lockstepctl outbox list, with the source's database and table.",
                      Age(silence)),
          {ShowLag()}, {"groups hear no heartbeat", {}, {ShowLag()}});
    } else if (lag > alert) {
      Add("warning", fmt::format("Group {} is {} behind", name, Age(lag)),
          fmt::format("The limit is {}. See the chart: while the line falls it is catching up.",
                      Age(alert)),
          {ShowLag()}, {"groups are behind", {}, {ShowLag()}});
    }
  }

  // A table that is compared with its source.
  void Compared(const json& group, const json& table, const std::string& name) {
    int64_t rows = 0;
    std::string classes;
    const json& differences = PartOf(table, "differences");
    for (const auto& [kind, count] : differences.items()) {
      if (!count.is_number() || count == 0) continue;
      rows += count.get<int64_t>();
      classes += fmt::format("{}{} {}", classes.empty() ? "" : ", ", count.get<int64_t>(), kind);
    }
    const std::string projection = TextOf(table, "projection");
    const auto command = [&](const char* verb) {
      return fmt::format(
          "{} {} {} --projection {}{}", ctl_, verb, TextOf(table, "arguments"), Quoted(projection),
          schema_.empty()
              ? " --group " + Quoted(name)
              : fmt::format(" --group-file {}{}", Quoted(TextOf(group, "file")), InSchema()));
    };
    if (rows > 0) {
      Add("warning",
          fmt::format("{} row{} of projection {} of group {} differ{} from the source", rows,
                      rows == 1 ? "" : "s", projection, name, rows == 1 ? "s" : ""),
          fmt::format("By class: {}. Each was seen twice, and is looked at again every few "
                      "minutes.",
                      classes),
          {{"See which", command("verify")},
           {"See what would be sent again, and confirm it", command("repair")}},
          {"tables differ from their source"});
    }
    if (const int64_t failures = IntOf(table, "failures"); failures > 1) {
      Add("warning",
          fmt::format("Projection {} of group {} can't be compared with its source", projection,
                      name),
          fmt::format(
              "{} The group is not touched by it; it was tried {} times and is tried again.",
              Sentence(TextOf(table, "last_error")), failures),
          {{"Try it by hand", command("verify")}}, {"tables can't be compared with their source"});
    }
  }

  Step ListLetters(const std::string& group, std::string what) const {
    return {std::move(what), fmt::format("{} dead-letters list{}", ctl_, Of(group))};
  }

  Step ShowLag() const {
    return {"See this group as its database knows it", fmt::format("{} lag{}", ctl_, InSchema())};
  }

  std::string Psql(const std::string& sql) const {
    return fmt::format("psql {} -c {}", Quoted(TextOf(database_, "address")), Quoted(sql));
  }

  // Against the live tables: for that it wants a database by name.
  std::string ProjectionCheck(const json& group) const {
    return fmt::format("lockstepctl --database {} projection check {} --state-schema {}",
                       Quoted(TextOf(database_, "address")), Quoted(TextOf(group, "file")),
                       Quoted(TextOf(database_, "schema")));
  }

  // The runner can't know where the missing version is, nor whether it will ever come.
  std::vector<Step> AboutGap(const json& key, const std::string& group) const {
    const auto command = [&](const char* verb) {
      return fmt::format("{} parked {} {}{}", ctl_, verb, Quoted(TextOf(key, "key")), Of(group));
    };
    return {{"See which versions wait", command("show")},
            {"Or give it up, if it never comes: what waits is applied without it",
             command("skip") + " --reason 'why it never comes'"}};
  }

  void Lanes(const json& group, const std::string& name) {
    if (!reachable_) return;  // that is why
    std::string locked;       // all lanes wait for the same: told once
    std::string outage;
    for (const json& lane : PartOf(group, "lanes")) {
      if (const std::string answer = TextOf(lane, "outage"); !answer.empty()) {
        outage = answer;
        continue;
      }
      if (const std::string waits_for = TextOf(lane, "waits_for"); !waits_for.empty()) {
        locked = waits_for;
        continue;
      }
      if (TextOf(lane, "state") != "stuck") continue;
      const std::string error = TextOf(lane, "last_error");
      Add("bad", fmt::format("Lane {} of group {} is stuck", IntOf(lane, "lane"), name),
          fmt::format("It has {} event{} in hand, the oldest for {}, and commits nothing.{} The "
                      "other lanes go on.",
                      IntOf(lane, "queued"), IntOf(lane, "queued") == 1 ? "" : "s",
                      Age(IntOf(lane, "oldest_ms")),
                      error.empty() ? "" : fmt::format(" Last error: {}", Sentence(error))),
          {{"See whom it waits for; pg_terminate_backend(pid) ends the one in the way",
            Psql(kSessions)}},
          {fmt::format("lanes of group {} are stuck", name),
           error,
           {{"See whom they wait for", Psql(kSessions)}}});
    }
    if (!locked.empty()) LockedTable(name, locked);
    if (outage.empty()) return;
    Add("bad", fmt::format("A handler of group {} does not accept events", name),
        fmt::format("{} No event is blamed for it and nothing is lost; it is called again until it "
                    "does. What comes meanwhile waits.",
                    Sentence(outage)),
        {{"Let the group rest while the handler is mended",
          fmt::format("{} group pause {}{} --reason 'why'", ctl_, Quoted(name), InSchema())}});
  }

  void LockedTable(const std::string& group, const std::string& waits_for) {
    Add("bad", fmt::format("Group {} waits for a lock on a table", group),
        fmt::format("{} No event is blamed for it and nothing is lost; the group goes on by itself "
                    "when the lock is gone.",
                    Sentence(waits_for)),
        {{"See what that session does; pg_terminate_backend(pid) ends it",
          Psql(
              "SELECT pid, usename, application_name, state, xact_start, left(query, 60) AS query "
              "FROM pg_stat_activity WHERE pid IN (SELECT pid FROM pg_locks WHERE mode IN "
              "('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))")}});
  }

  void ParkedKeys(const json& group, const std::string& name) {
    const std::string many = fmt::format("keys of group {} are parked", name);
    const std::vector<Step> all = {
        {"See which keys wait, and for what", fmt::format("{} parked list{}", ctl_, Of(name))},
        ListLetters(name, "See what could not be applied")};
    int told = 0;
    for (const json& key : PartOf(group, "parked_keys")) {
      if (++told > kMostKeys) break;
      const int64_t letter = IntOf(key, "dead_letter", -1);
      const int64_t events = IntOf(key, "events");
      const std::string code = TextOf(key, "code");
      Add("warning", fmt::format("Key {} of group {} is parked", TextOf(key, "key"), name),
          fmt::format("{} {} event{} wait{} behind it, in order; other keys go on.{}",
                      Sentence(TextOf(key, "why")), events, events == 1 ? "" : "s",
                      events == 1 ? "s" : "", letter >= 0 ? "" : kWhereVersionsAre),
          letter >= 0 ? AboutLetter(letter, name) : AboutGap(key, name),
          {many,
           letter < 0     ? "A version has not arrived"
           : code.empty() ? "A dead letter is in the way"
                          : fmt::format("A dead letter is in the way, {}", code),
           all});
    }
    const int64_t more = IntOf(group, "parked_keys_total") - std::min(told, kMostKeys);
    if (more > 0) {
      notes_.More(more,
                  Note("warning", fmt::format("{} {}", more, many),
                       "They wait for a version, or behind a dead letter.", all),
                  {many, {}, all});
    }
  }

  // Whoever looks at it decides: it comes in after all, or is given up.
  std::vector<Step> AboutLetter(int64_t letter, const std::string& group) const {
    const auto command = [&](const char* verb, const char* reason) {
      return fmt::format("{} dead-letters {} {}{} --reason '{}'", ctl_, verb, letter, Of(group),
                         reason);
    };
    return {{"See the event and why it failed",
             fmt::format("{} dead-letters show {}{}", ctl_, letter, Of(group))},
            {"Once the cause is mended: apply it, and then what waits behind it",
             command("replay", "why it works now")},
            {"Or give it up: what waits behind it is applied without it",
             command("discard", "why it is not needed")}};
  }

  void OtherDeadLetters(const json& group, const std::string& name) {
    int64_t blocking = 0;
    for (const json& key : PartOf(group, "parked_keys")) {
      if (IntOf(key, "dead_letter", -1) >= 0) ++blocking;
    }
    const int64_t others = IntOf(group, "dead_letters_open") - blocking;
    if (others <= 0) return;
    Add("warning",
        fmt::format("{} dead letter{} in group {}", others, others == 1 ? "" : "s", name),
        "Messages that could not be applied are kept whole until you decide.",
        {ListLetters(name, "See which, and why")});
  }

  void Outbox(const json& outbox) {
    const std::string table = TextOf(outbox, "table");
    const std::string state = TextOf(outbox, "state");
    if (state == "stuck") {
      const std::string detail = TextOf(outbox, "detail");
      Add("bad", fmt::format("The relay of {} stands still", table),
          detail.empty() ? "Rows that may go have waited for more than a minute." : detail,
          {Pending(table)});
    } else if (state == "off" && IntOf(outbox, "pending") > 0) {
      Add("warning", fmt::format("The relay of {} is switched off", table),
          fmt::format("{} row{} wait{}. relay.enabled (OUTBOX_RELAY_ENABLED) is false.",
                      IntOf(outbox, "pending"), IntOf(outbox, "pending") == 1 ? "" : "s",
                      IntOf(outbox, "pending") == 1 ? "s" : ""),
          {Pending(table)});
    }
    for (const json& topic : PartOf(outbox, "topics")) {
      if (TextOf(topic, "outage").empty()) continue;
      Add("bad", fmt::format("Topic {} is out of reach", TextOf(topic, "topic")),
          fmt::format("{} Its rows wait and spend no attempt; other topics go on. A topic that "
                      "is missing is made by lockstepctl provision, with the file that lists "
                      "your topics; a right that is missing: lockstepctl provision --print-iam.",
                      Sentence(TextOf(topic, "outage"))),
          {Pending(table)},
          {fmt::format("topics of {} are out of reach", table), {}, {Pending(table)}});
    }
    for (const json& backfill : PartOf(outbox, "backfills")) Backfill(backfill);
    DeadRows(outbox, table);
  }

  void Backfill(const json& backfill) {
    if (TextOf(backfill, "state") != "failed") return;
    const std::string id = Quoted(TextOf(backfill, "id"));
    Add("bad", fmt::format("Backfill {} has failed", TextOf(backfill, "backfill")),
        fmt::format("{} What was sent stays sent; once this is mended it goes on behind the last "
                    "row that Pub/Sub has taken.",
                    Sentence(TextOf(backfill, "last_error"))),
        {{"See how far it has come", fmt::format("{} backfill status {}", ctl_, id)},
         {"Let it go on", fmt::format("{} backfill resume {}", ctl_, id)}},
        {"backfills have failed"});
  }

  Step Pending(const std::string& table) const {
    return {"See which rows wait",
            fmt::format("{} outbox list {} --state pending", ctl_, Quoted(table))};
  }

  void DeadRows(const json& outbox, const std::string& table) {
    const std::string many = fmt::format("rows of {} are dead", table);
    const std::vector<Step> all = {
        {"See which, and why", fmt::format("{} outbox list {} --state dead", ctl_, Quoted(table))}};
    int told = 0;
    for (const json& row : PartOf(outbox, "dead_rows")) {
      if (++told > kMostKeys) break;
      const std::string event = TextOf(row, "event_id");
      const int64_t held = IntOf(row, "held");
      Add("warning",
          fmt::format("Row {} of {} is dead (key {})", IntOf(row, "sequence"), table,
                      TextOf(row, "aggregate_id")),
          fmt::format("{} {}{}", TextOf(row, "code"), Sentence(TextOf(row, "reason")),
                      held > 0 ? fmt::format(" {} later row{} of its key wait{} behind it.", held,
                                             held == 1 ? "" : "s", held == 1 ? "s" : "")
                               : ""),
          {{"See the row and why it was refused",
            fmt::format("{} outbox show {} {}", ctl_, Quoted(table), event)},
           {"Once the cause is mended: send it again, and then what waits behind it",
            fmt::format("{} outbox replay {} {}", ctl_, Quoted(table), event)}},
          {many, TextOf(row, "code"), all});
    }
    const int64_t more = IntOf(outbox, "dead") - std::min(told, kMostKeys);
    if (more > 0) {
      const bool one = more == 1;
      notes_.More(
          more,
          Note("warning",
               one ? fmt::format("A row of {} is dead", table) : fmt::format("{} {}", more, many),
               "Rows that Pub/Sub has refused for good are kept until you decide.", all),
          {many, {}, all});
    }
  }

  const json& document_;
  const json& database_;
  const bool reachable_;
  const std::string schema_;  // for lockstepctl, where no file says it
  const std::string ctl_;
  NoteList notes_;
  std::set<std::string> told_;  // of the reasons why this process is not ready
};

}  // namespace

json Attention(const json& document) { return Notes(document).Take(); }

}  // namespace lockstep::web
