#include "tests/chaos/system/source.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"
#include "postgres/sql_error.h"

namespace lockstep::chaos {
namespace {

constexpr int kBuckets = 16;

constexpr postgres::Statement kEnqueue{
    "enqueue",
    "SELECT lockstep.enqueue($1::regclass, $2, $8, $3, $4, $5, convert_to($6, 'UTF8'), "
    "event_id => $7::uuid, content_type => 'application/json')"};
// The row and its version, in the transaction that enqueues. Made again, it changes nothing.
constexpr postgres::Statement kPut{
    "put",
    "INSERT INTO shop.items (id, version, a, b) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE "
    "SET version = excluded.version, a = excluded.a, b = excluded.b"};
constexpr postgres::Statement kDelete{"delete", "DELETE FROM shop.items WHERE id = $1"};

// Aggregates that meet poison are no rows of the source's table: a snapshot would pass the poison.
bool IsItem(const Event& event) { return !event.key.starts_with("p"); }

std::string Payload(const Event& event) {
  if (event.poison == Poison::kGarbage) return "{\"id\": \"cut off";
  nlohmann::json payload = {{"id", event.key}, {"bucket", event.bucket}, {"amount", event.amount}};
  // No number, as Postgres will say; a CHECK on a value would not do, for the next event of the key
  // may replace it within the same batch.
  if (event.poison == Poison::kRefused) payload["amount"] = "many";
  if (event.poison == Poison::kRefusedByConsumer) payload["refuse"] = true;
  if (event.a) payload["a"] = *event.a;
  if (event.b) payload["b"] = *event.b;
  if (event.full_a) payload["full_a"] = *event.full_a;
  if (event.full_b) payload["full_b"] = *event.full_b;
  return payload.dump();
}

}  // namespace

Source::Source(SourceOptions options, Ledger& ledger)
    : options_(std::move(options)), ledger_(ledger), random_(options_.seed) {
  for (const auto& [key, row] : RowsBefore()) states_[key] = {row.version, true, row.a, row.b};
}

Source::~Source() { Stop(); }

void Source::Start() {
  thread_ = std::thread([this] {
    Run();
    connection_.reset();
    ended_ = true;
  });
}

void Source::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Source::Wait(Millis time) {
  const SteadyTime until = Clock::System().Steady() + time;
  while (!stop_ && Clock::System().Steady() < until) std::this_thread::sleep_for(Millis(2));
}

void Source::Run() {
  SteadyTime due = Clock::System().Steady();
  while (!stop_) {
    std::vector<Event> events;
    States next = states_;
    if (poison_wanted_ > 0) {
      --poison_wanted_;
      events = Poisoned();
    } else {
      events = Change(next);
    }
    if (random_() % 30 == 0) {
      auto given_up = events;
      for (Event& event : given_up) event.id = NewId();
      if (Write(given_up, /*commit=*/false)) ++rolled_back_;
    }
    const auto count = static_cast<int64_t>(events.size());
    if (!Write(events, /*commit=*/true)) return;
    states_ = std::move(next);
    ledger_.Commit(std::move(events));
    // What an outage kept from being written is not made up for.
    due = std::max(due, Clock::System().Steady() - Millis(500));
    due += Millis(1000 * count / options_.rate);
    Wait(std::chrono::duration_cast<Millis>(due - Clock::System().Steady()));
  }
}

std::string Source::NewId() {
  const uint64_t high = random_(), low = random_();
  return fmt::format("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", high >> 32, (high >> 16) & 0xffff,
                     high & 0xfff, low >> 52, low & 0xffffffffffff);
}

std::string Source::Word() { return fmt::format("{:x}", random_() & 0xffffffff); }

Event Source::Blank(const std::string& key, State& state) {
  return {.id = NewId(),
          .key = key,
          .version = ++state.version,
          .bucket = fmt::format("b{}", random_() % kBuckets),
          .amount = static_cast<int64_t>(random_() % 100)};
}

Event Source::Next(const std::string& key, State& state) {
  Event event = Blank(key, state);
  const uint64_t roll = random_() % 20;
  if (state.there && roll == 0) {
    event.type = "Remove";
    state = {.version = state.version};
  } else if (!state.there || roll < 5) {
    event.type = "Set";
    state.a = event.a = Word();
    state.b = event.b = Word();
    state.there = true;
  } else {
    event.type = "Patch";
    if (random_() % 2 == 0) {
      state.a = event.a = Word();
    } else {
      state.b = event.b = Word();
    }
  }
  event.gone = !state.there;
  event.full_a = state.a;
  event.full_b = state.b;
  return event;
}

// One to four events; a few keys are much in demand, and one transaction may change a key twice.
std::vector<Event> Source::Change(States& states) {
  std::vector<Event> events;
  const uint64_t count = 1 + random_() % 4;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t among = random_() % 4 == 0 ? 5 : static_cast<uint64_t>(options_.keys);
    const std::string key = random_() % 8 == 0 ? fmt::format("r{}", random_() % kRowsThatChange)
                                               : fmt::format("k{}", random_() % among);
    events.push_back(Next(key, states[key]));
  }
  return events;
}

// A key of its own: one sound event, the poison, and one that must wait behind it.
std::vector<Event> Source::Poisoned() {
  State state;
  const std::string key = fmt::format("p{}", ++poisoned_);
  std::vector<Event> events = {Next(key, state)};
  const State before = state;
  Event poison = Blank(key, state);
  poison.type = "Set";
  poison.poison = static_cast<Poison>(1 + random_() % 4);
  poison.a = poison.full_a = Word();
  poison.b = poison.full_b = Word();
  if (poison.poison == Poison::kRefusedByConsumer) {  // sound elsewhere: what comes next fits both
    poison.type = "Patch";
    poison.b = std::nullopt;
    poison.full_b = before.b;
  }
  if (poison.poison == Poison::kUnknownType) poison.type = "Unheard";
  events.push_back(std::move(poison));
  state.a = before.a;
  state.b = before.b;
  Event later = Blank(key, state);
  later.type = "Patch";
  later.a = later.full_a = Word();
  later.full_b = before.b;
  events.push_back(std::move(later));
  return events;
}

bool Source::Write(std::vector<Event>& events, bool commit) {
  while (!stop_ || commit) {
    const absl::Status done = Try(events, commit);
    if (done.ok()) {
      for (Event& event : events) event.committed = Clock::System().Now();
      return true;
    }
    ++failed_;
    const auto kind = postgres::Classify(done);
    if (kind == postgres::ErrorClass::kInDoubt) ++in_doubt_;
    if (kind == postgres::ErrorClass::kConfiguration || kind == postgres::ErrorClass::kData) {
      log::Error("the source can't write", {{"error", done}});
    }
    connection_.reset();
    if (!commit) return false;  // rolled back either way
    std::this_thread::sleep_for(Millis(50));
  }
  return false;
}

absl::Status Source::Try(const std::vector<Event>& events, bool commit) {
  if (connection_ == nullptr) {
    ASSIGN_OR_RETURN(connection_, postgres::Connection::Open({.url = options_.database,
                                                              .application_name = "source",
                                                              .statement_timeout = Millis(5'000)}));
  }
  ASSIGN_OR_RETURN(postgres::Transaction transaction, connection_->Begin());
  for (const Event& event : events) {
    RETURN_IF_ERROR(transaction
                        .Execute(kEnqueue, options_.outbox, options_.topic, event.key, event.type,
                                 event.version, Payload(event), event.id,
                                 IsItem(event) ? "item" : "poisoned")
                        .status());
    if (!IsItem(event)) continue;
    RETURN_IF_ERROR(
        event.gone ? transaction.Execute(kDelete, event.key).status()
                   : transaction.Execute(kPut, event.key, event.version, event.full_a, event.full_b)
                         .status());
  }
  return commit ? transaction.Commit() : transaction.Rollback();
}

}  // namespace lockstep::chaos
