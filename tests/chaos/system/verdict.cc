#include "tests/chaos/system/verdict.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "platform/status.h"
#include "postgres/connection.h"
#include "tests/chaos/system/call_verdict.h"

namespace lockstep::chaos {
namespace {

namespace fs = std::filesystem;
using postgres::Params;
using postgres::Result;

constexpr char kGenerationOf[] =
    "(SELECT s.generation FROM feed_state.consumer_groups g JOIN feed_state.slots s "
    "ON s.group_name = g.group_name AND s.slot = g.active_slot WHERE g.group_name = $1)";

// Snapshots have derived ids (version 5), the source's events random ones.
constexpr char kIsEvent[] = "substr(event_id::text, 15, 1) = '4'";

std::unique_ptr<postgres::Connection> Open(const std::string& url) {
  for (int tries = 0;; ++tries) {
    auto connection = postgres::Connection::Open(
        {.url = url, .application_name = "chaos", .statement_timeout = Millis(120'000)});
    if (connection.ok()) return *std::move(connection);
    if (tries == 300) throw std::runtime_error(std::string(MessageOf(connection.status())));
    std::this_thread::sleep_for(Millis(100));
  }
}

Result Query(postgres::Connection& connection, const std::string& sql, const Params& params = {}) {
  auto result = connection.Execute(sql, params);
  if (!result.ok()) throw std::runtime_error(std::string(MessageOf(result.status())));
  return *std::move(result);
}

std::set<std::string> Ids(postgres::Connection& connection, const std::string& sql,
                          const std::string& group) {
  const Result rows = Query(connection, sql, Params(group));
  std::set<std::string> ids;
  for (int i = 0; i < rows.rows(); ++i) ids.emplace(rows.Text(i, 0));
  return ids;
}

// Of a group that keeps no row per event: those whose version is settled, that wait or that died.
std::optional<std::set<std::string>> SettledEvents(postgres::Connection& source,
                                                   postgres::Connection& feed,
                                                   const std::string& group) {
  const auto settled =
      feed.Execute(fmt::format("SELECT aggregate_key, settled_version FROM feed_state.key_state "
                               "WHERE settled_version IS NOT NULL AND generation = {}",
                               kGenerationOf),
                   group);
  const auto waiting =
      feed.Execute(fmt::format("SELECT event_id FROM feed_state.parked WHERE generation = {0} "
                               "UNION SELECT event_id FROM feed_state.dead_letters "
                               "WHERE generation = {0}",
                               kGenerationOf),
                   group);
  const auto events = source.Execute(
      "SELECT event_id, aggregate_type || '/' || aggregate_id, version FROM shop.outbox");
  if (!settled.ok() || !waiting.ok() || !events.ok()) return std::nullopt;
  std::map<std::string, int64_t, std::less<>> versions;
  for (int i = 0; i < settled->rows(); ++i) {
    versions.emplace(settled->Text(i, 0), settled->Int(i, 1));
  }
  std::set<std::string> ids;
  for (int i = 0; i < waiting->rows(); ++i) ids.emplace(waiting->Text(i, 0));
  for (int i = 0; i < events->rows(); ++i) {
    const auto found = versions.find(events->Text(i, 1));
    if (found != versions.end() && found->second >= events->Int(i, 2)) {
      ids.emplace(events->Text(i, 0));
    }
  }
  return ids;
}

std::vector<std::string> Texts(const Result& rows) {
  std::vector<std::string> texts;
  for (int i = 0; i < rows.rows(); ++i) texts.emplace_back(rows.Text(i, 0));
  return texts;
}

std::vector<std::string> Difference(const std::set<std::string>& expected,
                                    const std::set<std::string>& found) {
  std::vector<std::string> difference;
  for (const std::string& id : expected) {
    if (!found.contains(id)) difference.push_back("missing " + id);
  }
  for (const std::string& id : found) {
    if (!expected.contains(id)) difference.push_back("not expected " + id);
  }
  return difference;
}

std::string Text(const Row& row) {
  return fmt::format("version {} a={} b={}", row.version, row.a.value_or("NULL"),
                     row.b.value_or("NULL"));
}
std::string Text(const Total& total) {
  return fmt::format("n {} amount {}", total.n, total.amount);
}

template <typename Value>
std::vector<std::string> Compare(const std::map<std::string, Value>& expected,
                                 const std::map<std::string, Value>& found) {
  std::vector<std::string> difference;
  for (const auto& [key, value] : expected) {
    const auto at = found.find(key);
    if (at == found.end()) {
      difference.push_back(fmt::format("{} is missing, should be {}", key, Text(value)));
    } else if (!(at->second == value)) {
      difference.push_back(
          fmt::format("{} is {}, should be {}", key, Text(at->second), Text(value)));
    }
  }
  for (const auto& [key, value] : found) {
    if (!expected.contains(key)) {
      difference.push_back(fmt::format("{} is {}, should not be", key, Text(value)));
    }
  }
  return difference;
}

// Programs of this run that are still there: they have its folder in their environment.
std::vector<std::string> StillRunning(const std::string& folder) {
  std::vector<std::string> found;
  const std::string mark = "LOCKSTEP_CHAOS_DIR=" + folder + '\0';
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (pid == std::to_string(::getpid())) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string environment((std::istreambuf_iterator<char>(file)), {});
    if (environment.find(mark) == std::string::npos) continue;
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    found.push_back(fmt::format("{} ({})", name, pid));
  }
  return found;
}

}  // namespace

Verdict::Verdict(World& world, const Ledger& ledger) : world_(world), ledger_(ledger) {}

void Verdict::Note(bool good, const std::string& what, const std::string& seen) {
  ++(good ? passed_ : failed_);
  fmt::print("  {}  {}{}{}\n", good ? "ok  " : "FAIL", what, seen.empty() ? "" : ": ", seen);
}

void Verdict::NoteNone(const std::string& what, const std::vector<std::string>& bad) {
  if (bad.empty()) return Note(true, what, "");
  const size_t shown = std::min<size_t>(bad.size(), 3);
  Note(false, what,
       fmt::format("{} times; {}{}", bad.size(),
                   fmt::join(bad.begin(), bad.begin() + static_cast<std::ptrdiff_t>(shown), "; "),
                   bad.size() > shown ? "; …" : ""));
}

bool Verdict::Look(Progress& progress) {
  const auto source = postgres::Connection::Open({.url = world_.source_url()});
  const auto feed = postgres::Connection::Open({.url = world_.feed_url()});
  if (!source.ok() || !feed.ok()) return false;
  const auto waiting =
      (*source)->Execute("SELECT count(*) FROM shop.outbox_status WHERE published_at IS NULL");
  if (!waiting.ok()) return false;
  progress = {.unpublished = waiting->Int(0, 0)};
  bool done = progress.unpublished == 0;
  for (const auto& [name, ordered, called, by_versions] : Groups()) {
    const auto counts = (*feed)->Execute(
        fmt::format(
            "SELECT (SELECT count(*) FROM feed_state.inbox WHERE generation = {0} AND {1}), "
            "(SELECT count(*) FROM feed_state.dead_letters WHERE generation = {0}), "
            "(SELECT count(*) FROM feed_state.parked WHERE generation = {0})",
            kGenerationOf, kIsEvent),
        name);
    if (!counts.ok()) return false;
    int64_t seen = counts->Int(0, 0);
    if (by_versions) {
      const auto settled = SettledEvents(**source, **feed, name);
      if (!settled) return false;
      seen = static_cast<int64_t>(settled->size());
    }
    // One event waits behind each poison; what waits for a snapshot goes on with it.
    done = done && seen >= ledger_.size() && counts->Int(0, 1) >= ledger_.poison(called) &&
           counts->Int(0, 2) <= (ordered ? ledger_.poison(called) : 0);
    progress.seen += seen;
    progress.dead += counts->Int(0, 1);
    progress.parked += counts->Int(0, 2);
  }
  return done;
}

void Verdict::WaitUntilDone(Millis patience) {
  Progress last;
  SteadyTime moved = Clock::System().Steady();
  while (true) {
    world_.Tick();
    Progress now;
    if (Look(now)) return;
    if (!(now == last)) moved = Clock::System().Steady();
    last = now;
    if (Clock::System().Steady() - moved > patience) {
      fmt::print("chaos: nothing has moved for {} s: {} unpublished, {} of {} seen\n",
                 patience.count() / 1000, now.unpublished, now.seen,
                 ledger_.size() * static_cast<int64_t>(Groups().size()));
      return;
    }
    for (int i = 0; i < 10; ++i) {
      world_.Tick();
      std::this_thread::sleep_for(Millis(50));
    }
  }
}

void Verdict::CheckData(const Adoption& adoption, const Inspector& inspector) {
  CheckEqual();  // first: it waits for snapshots that are still on their way
  NoteNone("verify raised no false alarm", inspector.alarms());
  const std::vector<Witnessed> given = world_.ReadWitness(static_cast<size_t>(ledger_.size()));
  CheckOutbox(given);
  Note(adoption.finished(), "the last backfill came to its end", "");
  CheckBackfills(adoption, given);
  for (const GroupUnderTest& group : Groups())
    CheckGroup(group, ledger_.Expect(group.ordered, group.called));
  CheckAudit();
}

void Verdict::CheckCompared(const Inspector& inspector) {
  Note(inspector.equal() > 0, "verify could tell that replicas are equal while all went on", "");
}

void Verdict::CheckOutbox(const std::vector<Witnessed>& given) {
  const auto source = Open(world_.source_url());
  const Expected expected = ledger_.Expect(/*ordered=*/false, /*called=*/false);
  std::set<std::string> rows;
  for (const std::string& id : Texts(Query(*source, "SELECT event_id FROM shop.outbox")))
    rows.insert(id);
  NoteNone("the outbox holds what committed, and nothing that was rolled back",
           Difference(expected.seen, rows));
  NoteNone(
      "every event was published, and none is dead or leased",
      Texts(Query(*source,
                  "SELECT aggregate_id || ' version ' || version FROM shop.outbox_status WHERE "
                  "published_at IS NULL OR dead_at IS NOT NULL OR lock_token IS NOT NULL")));
  NoteNone("what became of an event stands in one place, and of no other",
           Texts(Query(*source,
                       "SELECT 'row ' || sequence FROM shop.outbox_pending FULL JOIN "
                       "shop.outbox_published USING (sequence) FULL JOIN shop.outbox e USING "
                       "(sequence) GROUP BY sequence HAVING count(*) > 1 OR count(e.event_id) <> 1 "
                       "UNION ALL SELECT 'row ' || p.sequence FROM shop.outbox_pending p JOIN "
                       "shop.outbox_published USING (sequence)")));
  CheckOrder(*source, given);
  NoteNone("nobody marked a row without its lease",
           Texts(Query(*source, "SELECT what FROM audit.violations ORDER BY id")));
}

// By what Pub/Sub was given: an event may come again, but never before the one before it. Neither
// the marks in the outbox nor a runner's inbox can tell: a mark may be lost and made again, and a
// runner that was stopped has later events in its socket when it drops those that it held.
void Verdict::CheckOrder(postgres::Connection& source, const std::vector<Witnessed>& given) {
  struct Place {
    std::string key;
    int64_t number = 0;  // among the key's events
    std::string name;
  };
  std::map<std::string, Place, std::less<>> places;
  const Result outbox = Query(source,
                              "SELECT event_id, aggregate_id, version, row_number() OVER "
                              "(PARTITION BY aggregate_id ORDER BY version) FROM shop.outbox");
  for (int i = 0; i < outbox.rows(); ++i) {
    places[std::string(outbox.Text(i, 0))] = {
        std::string(outbox.Text(i, 1)), outbox.Int(i, 3),
        fmt::format("{} version {}", outbox.Text(i, 1), outbox.Text(i, 2))};
  }
  std::map<std::string, int64_t> reached;
  std::vector<std::string> bad;
  std::set<std::string> came;
  for (const Witnessed& message : given) {
    if (message.backfill > 0) continue;
    const auto place = places.find(message.event_id);
    if (place == places.end()) {
      bad.push_back("not in the outbox: " + message.event_id);
      continue;
    }
    came.insert(message.event_id);
    int64_t& last = reached[place->second.key];
    if (place->second.number > last + 1) bad.push_back(place->second.name);
    last = std::max(last, place->second.number);
  }
  NoteNone("no key was published out of order", bad);
  for (const std::string& id : came) places.erase(id);
  std::vector<std::string> missing;
  for (const auto& [id, place] : places) missing.push_back(place.name);
  NoteNone("Pub/Sub was given every event", missing);
}

// Whatever was done to the publishers meanwhile: one that is done has sent every row. Those that
// nobody changed stand for all.
void Verdict::CheckBackfills(const Adoption& adoption, const std::vector<Witnessed>& given) {
  std::map<int, std::set<std::string>> sent;
  for (const Witnessed& message : given) sent[message.backfill].insert(message.key);
  std::vector<std::string> missing;
  for (const int number : adoption.done()) {
    for (int i = kRowsThatChange; i < kRowsBefore; ++i) {
      const std::string key = fmt::format("r{}", i);
      if (!sent[number].contains(key)) missing.push_back(fmt::format("{} of {}", key, number));
    }
  }
  NoteNone("every backfill that is done has given Pub/Sub every row", missing);
}

void Verdict::CheckEqual() {
  std::vector<std::string> differ;
  std::map<std::string, std::unique_ptr<Child>> commands;
  for (const auto& [name, ordered, called, by_versions] : Groups()) {
    commands[name] = world_.BeginVerify(name, {"--grace", World::kGrace, "--wait", "120s"},
                                        {.log = "equal-" + name + ".log"});
  }
  for (const auto& [name, command] : commands) {
    const int status = command->WaitFor(Millis(300'000)).value_or(-SIGKILL);
    if (status != 0) differ.push_back(fmt::format("{}: status {}", name, status));
  }
  NoteNone("verify --deep says that the replicas are equal to the source", differ);
}

// Rows deleted, changed, set back and made up, each found as what it is, and nothing else.
void Verdict::CheckSpoilt() {
  const auto feed = Open(world_.feed_url());
  for (const auto& [name, ordered, called, by_versions] : Groups()) {
    const std::string table = fmt::format("read.{}_item", name);
    const auto keys = Texts(
        Query(*feed, fmt::format("SELECT id FROM {} WHERE owner LIKE 'item/%'{} ORDER BY md5(id) "
                                 "LIMIT 9",
                                 table, ordered ? "" : " AND deleted_at IS NULL")));
    std::set<std::string> expected;
    const auto spoil = [&](const std::string& kind, const std::string& key,
                           const std::string& sql) {
      Query(*feed, fmt::format("{} WHERE id = '{}'", fmt::format(fmt::runtime(sql), table), key));
      expected.insert(kind + " " + key);
    };
    for (size_t i = 0; i + 2 < keys.size(); i += 3) {
      spoil("missing", keys[i], "DELETE FROM {}");
      spoil("content", keys[i + 1], "UPDATE {} SET a = 'spoilt'");
      spoil("behind", keys[i + 2], "UPDATE {} SET version = version - 1");
    }
    Query(*feed, fmt::format("INSERT INTO {} (id, version, a, owner) VALUES "
                             "('ghost', 1, 'boo', 'item/ghost')",
                             table));
    expected.insert("ghost ghost");
    const std::string output = "spoilt-" + name + ".json";
    const int status = world_
                           .BeginVerify(name, {"--grace", "1s", "--json"},
                                        {.log = "spoilt-" + name + ".log", .output = output})
                           ->WaitFor(Millis(120'000))
                           .value_or(-SIGKILL);
    std::ifstream file(world_.File(output));
    const auto told = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    std::set<std::string> found;
    if (told.is_object()) {
      for (const auto& one : told["tables"][0]["differences"]) {
        found.insert(one["class"].get<std::string>() + " " + one["key"][0].get<std::string>());
      }
    }
    std::vector<std::string> bad = Difference(expected, found);
    if (status != 1) bad.push_back(fmt::format("verify ended with {}", status));
    NoteNone(fmt::format("{}: a replica that was spoilt is found out, to the row", name), bad);
  }
}

void Verdict::CheckGroup(const GroupUnderTest& group, const Expected& expected) {
  const auto feed = Open(world_.feed_url());
  const std::string& name = group.name;
  const auto titled = [&](const std::string& what) { return fmt::format("{}: {}", name, what); };
  const auto ids = [&](const std::string& from) {
    return Ids(
        *feed,
        fmt::format("SELECT event_id FROM feed_state.{} AND generation = {}", from, kGenerationOf),
        name);
  };
  const std::set<std::string> by_ids = ids(fmt::format("inbox WHERE {}", kIsEvent));
  if (group.by_versions) {
    NoteNone(titled("no row is kept of an event"), {by_ids.begin(), by_ids.end()});
  }
  NoteNone(
      titled("nothing is lost: every event came to an end"),
      Difference(expected.seen, group.by_versions
                                    ? SettledEvents(*Open(world_.source_url()), *feed, name).value()
                                    : by_ids));
  std::map<std::string, Row> rows;
  const Result items =
      Query(*feed, fmt::format("SELECT id, version, a, b FROM read.{}_item{}", name,
                               group.ordered ? "" : " WHERE deleted_at IS NULL"));
  for (int i = 0; i < items.rows(); ++i) {
    rows[std::string(items.Text(i, 0))] = {items.Int(i, 1), items.Optional(i, 2),
                                           items.Optional(i, 3)};
  }
  NoteNone(titled("the read model equals the ledger"), Compare(expected.rows, rows));
  std::map<std::string, Total> totals;
  const Result counted =
      Query(*feed, fmt::format("SELECT bucket, n, amount FROM read.{}_total", name));
  for (int i = 0; i < counted.rows(); ++i) {
    totals[std::string(counted.Text(i, 0))] = {counted.Int(i, 1), counted.Int(i, 2)};
  }
  NoteNone(titled("nothing is applied twice: the counts equal the ledger's"),
           Compare(group.by_versions ? decltype(totals)() : expected.totals, totals));
  NoteNone(titled("dead letters are exactly the poison"),
           Difference(expected.dead, ids("dead_letters WHERE state = 'dead'")));
  NoteNone(titled("what waits is exactly what comes after the poison"),
           Difference(expected.parked, ids("parked WHERE true")));
}

void Verdict::CheckCalls(const std::vector<Blow>& blows) {
  const CallFindings found =
      JudgeCalls(ReadCallNotes(world_.File(World::kCalls)),
                 ledger_.Expect(/*ordered=*/true, /*called=*/true).due, blows, World::kInHand);
  fmt::print(
      "chaos: the HTTP consumer was called {} times, {} of them again after a yes ({} when "
      "the inbox could not be asked); answers:",
      found.calls, found.repeated, found.untold);
  for (const auto& [answer, count] : found.answers) fmt::print(" {} {};", count, answer);
  fmt::print("\n");
  NoteNone("the consumer has said yes to every event that is due", found.lost);
  NoteNone("it was called for nothing else, and each call says what it is for", found.uncalled);
  NoteNone("no key's calls came out of order", found.disordered);
  NoteNone("no call was repeated that the inbox knew of", found.known);
  NoteNone("a crash or a lost connection explains every repeated call", found.unexplained);
}

void Verdict::CheckAudit() {
  const auto feed = Open(world_.feed_url());
  NoteNone("no write went back to an older version",
           Texts(Query(
               *feed,
               "SELECT group_name || ' ' || key || ' version ' || version || ' after ' || before "
               "FROM (SELECT *, lag(version) OVER (PARTITION BY group_name, generation, key "
               "ORDER BY id) AS before FROM audit.writes WHERE op <> 'DELETE') w "
               "WHERE version <= before")));
  NoteNone("nothing was written under an older epoch",
           Texts(Query(*feed, "SELECT what FROM audit.violations ORDER BY id")));
}

void Verdict::CheckLeftovers(const std::set<std::string>& before) {
  std::vector<std::string> held;
  for (const std::string& url : {world_.source_url(), world_.feed_url()}) {
    const auto connection = Open(url);
    const auto add = [&](const std::string& sql) {
      for (std::string& text : Texts(Query(*connection, sql))) held.push_back(std::move(text));
    };
    // A session whose client has just gone may take a moment to notice.
    for (int tries = 0; tries < 100; ++tries) {
      held.clear();
      add("SELECT 'session ' || application_name || ' ' || coalesce(state, '') FROM "
          "pg_stat_activity WHERE "
          "backend_type = 'client backend' AND application_name <> 'chaos' "
          "AND datname = current_database()");
      add("SELECT 'lock ' || locktype || ' ' || objid FROM pg_locks WHERE locktype = 'advisory'");
      add("SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts");
      if (held.empty()) break;
      std::this_thread::sleep_for(Millis(100));
    }
    if (!held.empty()) break;
  }
  NoteNone("no session, lock or transaction is left", held);
  NoteNone("tables, subscriptions and snapshots are what they were",
           Difference(before, world_.Inventory()));
}

void Verdict::CheckProcesses(const std::vector<std::string>& complaints, bool postgres_ended_well,
                             const std::string& folder) {
  NoteNone("no program ended by itself, and all stopped when asked", complaints);
  auto left = StillRunning(folder);
  if (!postgres_ended_well) left.emplace_back("Postgres, which did not stop");
  NoteNone("no process is left", left);
}

}  // namespace lockstep::chaos
