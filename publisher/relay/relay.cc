#include "publisher/relay/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

// How long answers under way are waited for before the sleep protocol is worth its queries.
constexpr Millis kAnswerGrace{20};
// With full hands there is nothing to do but to wait; the watchdog wants to see turns.
constexpr Millis kLongestTurn{1'000};

std::string NewToken() {
  thread_local std::mt19937_64 engine(std::random_device{}());
  const uint64_t high = engine();
  const uint64_t low = engine();
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}", high >> 32, (high >> 16) & 0xffff,
                     high & 0xfff, 0x8000 | ((low >> 48) & 0x3fff), low & 0xffffffffffff);
}

}  // namespace

Relay::Relay(RelayOptions options, Environment environment, Dispatcher& dispatcher,
             RelayEvents& events)
    : options_(std::move(options)),
      environment_(std::move(environment)),
      dispatcher_(dispatcher),
      events_(events),
      reconnect_(RetryPolicy{.max_attempts = 0, .base = Millis(250), .cap = Millis(15'000)},
                 environment_.random),
      settlement_(environment_.instance, events),
      pauses_(options_.retry, environment_.random),
      sleeper_(options_.poll_floor, options_.poll_interval, environment_.random),
      health_(absl::UnavailableError("starting")) {
  NoteTurn();
}

Relay::~Relay() { Stop(); }

absl::Status Relay::Start() {
  return thread_.Start([this] { Run(); });
}

void Relay::Stop() {
  thread_.Stop([this] {
    stop_ = true;
    mailbox_->Wake();
  });
}

int64_t Relay::SetShards(std::vector<int> shards, int count) {
  int64_t change = 0;
  {
    std::scoped_lock lock(mu_);
    new_shards_ = {std::move(shards), count};
    change = ++changes_;
  }
  mailbox_->Wake();
  return change;
}

void Relay::StandBy() {
  NoteStuck(absl::UnavailableError("another publisher relays it, and this one stands by"));
}

bool Relay::LeftBehind(int64_t change) const {
  std::scoped_lock lock(mu_);
  return followed_ >= change && !leaving_;
}

absl::Status Relay::health() const {
  std::scoped_lock lock(mu_);
  return health_;
}

absl::Status Relay::WaitUntilDrained() {
  std::unique_lock lock(mu_);
  // Two rounds: the first may have begun before the caller's rows were there.
  const int64_t enough = idle_turns_ + 2;
  const int64_t too_many = stuck_turns_ + 2;
  awaited_turns_ = std::max(awaited_turns_, enough);
  mailbox_->Wake();
  idle_changed_.wait(lock, [&] {
    return gave_up_ || (idle_ && idle_turns_ >= enough) || stuck_turns_ >= too_many;
  });
  if (gave_up_) return Unavailable("{} was not drained: it was stopped", options_.table);
  if (stuck_turns_ < too_many) return absl::OkStatus();
  return Unavailable("{} was not drained: {}", options_.table, lockstep::MessageOf(stuck_));
}

void Relay::SetHealth(absl::Status health) {
  std::scoped_lock lock(mu_);
  health_ = std::move(health);
}

void Relay::NoteTurn() { last_turn_ = environment_.clock->Steady().time_since_epoch().count(); }

void Relay::NoteIdle(bool idle) {
  std::scoped_lock lock(mu_);
  idle_ = idle;
  if (idle) ++idle_turns_;
  idle_changed_.notify_all();
}

bool Relay::Awaited() const {
  std::scoped_lock lock(mu_);
  return idle_turns_ < awaited_turns_;
}

void Relay::NoteStuck(absl::Status why) {
  std::scoped_lock lock(mu_);
  stuck_ = std::move(why);
  ++stuck_turns_;
  idle_changed_.notify_all();
}

void Relay::Run() {
  while (!stop_) {
    NoteTurn();
    TakeShards();
    FollowOptions();
    if (!Connect()) continue;
    const absl::Status turned = Turn();
    if (turned.ok()) {
      reconnect_.Reset();
      database_failures_ = 0;
      continue;
    }
    events_.OnDatabaseError(turned);
    SetHealth(turned);
    if (++database_failures_ > 1) NoteStuck(turned);
    // Whatever it was: a fresh session has no half-done state.
    store_.reset();
    connection_.reset();
    sleeper_.Forget();
    plan_ = {};
    look_ = true;
    mailbox_->Wait(-1, reconnect_.Next());
  }
  Finish();
  std::scoped_lock lock(mu_);
  gave_up_ = true;
  idle_changed_.notify_all();
}

bool Relay::Connect() {
  if (store_ != nullptr) return true;
  postgres::ConnectionOptions options;
  options.url = environment_.database;
  options.application_name = "lockstep-publisher";
  options.statement_timeout = Millis(20'000);  // below the watchdog's patience
  auto opened = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(connection_, postgres::Connection::Open(options));
    ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options_.table));
    ASSIGN_OR_RETURN(store_, OutboxStore::Open(*connection_, table));
    return connection_->Listen(store_->channel());
  }();
  if (opened.ok()) {
    SetHealth(absl::OkStatus());
    return true;
  }
  store_.reset();
  connection_.reset();
  events_.OnDatabaseError(opened);
  if (++database_failures_ > 1) NoteStuck(opened);
  SetHealth(std::move(opened));
  TakeAnswers();
  mailbox_->Wait(-1, reconnect_.Next());
  return false;
}

absl::Status Relay::Turn() {
  TakeAnswers();
  const SteadyTime now = environment_.clock->Steady();
  if (Awaited() || PassedOverOthers(now)) look_ = true;
  const bool room = queues_.waiting() + rows_under_way_ + options_.batch_size <=
                    static_cast<size_t>(std::max(options_.max_in_flight, options_.batch_size));
  const bool due = settlement_.Left(now) == Millis(0);
  if (more_ || due || !room || Awaited()) RETURN_IF_ERROR(Settle());
  RETURN_IF_ERROR(RenewLeases());
  more_ = false;
  const bool looks = room && look_ && !shards_.empty();
  if (looks) RETURN_IF_ERROR(Claim());
  Send();
  if (more_) return absl::OkStatus();
  if (!room) {
    mailbox_->Wait(-1, std::min(options_.lock_ttl / 6, kLongestTurn));
    return absl::OkStatus();
  }
  return Rest(looks);
}

ClaimRequest Relay::NewClaimRequest() const {
  ClaimRequest request;
  request.token = NewToken();
  request.owner = environment_.instance;
  request.lock_ttl = options_.lock_ttl;
  request.rows = options_.batch_size;
  request.shards = shards_;
  request.shard_count = shard_count_;
  for (const auto& [token, rows] : live_tokens_) request.live_tokens.push_back(token);
  request.paused_topics = pauses_.Paused(environment_.clock->Steady());
  request.dead_blocks = options_.on_dead == OnDead::kHoldKey;
  return request;
}

absl::Status Relay::Claim() {
  const SteadyTime before = environment_.clock->Steady();
  ClaimRequest request = NewClaimRequest();
  request.few = std::exchange(told_, false);
  if (request.few) request.rest_token = NewToken();
  ASSIGN_OR_RETURN(publisher::Claim claim, store_->ClaimRows(request, plan_.Next(before)));
  more_ = claim.candidates >= request.rows;
  look_ = more_;
  passed_over_ = request.paused_topics;
  plan_.Looked(before, environment_.clock->Steady(), more_, claim.a_second_ago);
  if (claim.rows.empty()) return absl::OkStatus();
  for (const OutboxRow& row : claim.rows) ++live_tokens_[row.lock_token];
  events_.OnClaimed(claim.rows);
  NoteIdle(false);
  queues_.Add(std::move(claim.rows), before);
  Send();
  return sleeper_.Awake(*store_, more_);
}

void Relay::Send() {
  while (static_cast<int>(under_way_.size()) < options_.max_requests) {
    auto entries = queues_.Next(KeyQueues::Limits());
    if (!entries.has_value()) return;
    std::vector<RowPtr> rows;
    rows.reserve(entries->size());
    for (const KeyQueues::Entry& entry : *entries) rows.push_back(entry.row);
    const std::string topic = rows.front()->topic;
    const int64_t id = next_request_++;
    rows_under_way_ += rows.size();
    under_way_[id] = {*std::move(entries), environment_.clock->Steady()};
    dispatcher_.Dispatch(options_.table, topic, std::move(rows),
                         [mailbox = mailbox_, id](std::vector<DispatchResult> results) {
                           mailbox->Post({id, std::move(results)});
                         });
  }
}

absl::Status Relay::Settle() {
  if (settlement_.empty()) return absl::OkStatus();
  look_ = look_ || settlement_.urgent();  // which may free others
  RETURN_IF_ERROR(settlement_.Write(*store_, [this](const OutboxRow& row) {
    const auto live = live_tokens_.find(row.lock_token);
    if (live != live_tokens_.end() && --live->second == 0) live_tokens_.erase(live);
  }));
  NoteLeaving();  // now: their next owner waits, and we may be about to sleep
  return absl::OkStatus();
}

bool Relay::PassedOverOthers(SteadyTime now) const {
  return !shards_.empty() && pauses_.Paused(now) != passed_over_;
}

absl::Status Relay::Rest(bool looked) {
  const SteadyTime now = environment_.clock->Steady();
  if (PassedOverOthers(now)) return absl::OkStatus();
  const bool in_hand = !under_way_.empty() || queues_.waiting() > 0 || !settlement_.empty();
  const std::optional<Millis> gathering =
      settlement_.empty() ? std::nullopt : std::optional(settlement_.Left(now));
  if (in_hand && !sleeper_.armed()) {
    look_ = true;
    const bool answered =
        mailbox_->Wait(-1, std::min(kAnswerGrace, gathering.value_or(kAnswerGrace)));
    if (answered || gathering.has_value()) return absl::OkStatus();
  }
  const ClaimRequest request = NewClaimRequest();
  std::optional<Millis> next_look = pauses_.NextEnd(now);
  if (in_hand) {
    next_look = std::min(next_look.value_or(options_.lock_ttl / 6), options_.lock_ttl / 6);
  }
  if (const auto start = plan_.UntilStart(now); start.has_value()) {
    next_look = std::min(next_look.value_or(*start), *start);
  }
  if (looked && !in_hand && plan_.whole()) {
    if (!request.paused_topics.empty()) {
      NoteStuck(outage_);
    } else {
      NoteIdle(true);
      if (Awaited()) return absl::OkStatus();
    }
  }
  std::optional<Millis> at_most = next_look;
  if (gathering.has_value()) at_most = std::min(next_look.value_or(*gathering), *gathering);
  ASSIGN_OR_RETURN(const bool something,
                   sleeper_.Rest(*store_, *mailbox_, request, plan_.floor(), at_most, [this] {
                     NoteTurn();
                     return !stop_;
                   }));
  told_ = sleeper_.told();
  look_ = look_ || something ||
          (next_look.has_value() && environment_.clock->Steady() - now >= *next_look);
  return absl::OkStatus();
}

void Relay::Reconfigure(const RelayOptions& fresh) {
  {
    std::scoped_lock lock(mu_);
    new_options_ = fresh;
  }
  mailbox_->Wake();
}

void Relay::FollowOptions() {
  std::optional<RelayOptions> fresh;
  {
    std::scoped_lock lock(mu_);
    fresh.swap(new_options_);
  }
  if (!fresh.has_value()) return;
  look_ = true;
  options_.batch_size = fresh->batch_size;
  options_.max_in_flight = fresh->max_in_flight;
  options_.max_requests = fresh->max_requests;
  options_.retry = fresh->retry;
  options_.poll_interval = fresh->poll_interval;
  dispatcher_.SetMaxRequests(options_.table, options_.max_requests);
  pauses_.SetPolicy(options_.retry);
  sleeper_.SetLongestPoll(options_.poll_interval);
}

void Relay::Finish() {
  GiveBack(queues_.TakeWaiting([](const KeyQueues::Entry&) { return true; }), Millis(0));
  const SteadyTime end = std::chrono::steady_clock::now() + environment_.stop_timeout;
  while (!under_way_.empty() && std::chrono::steady_clock::now() < end) {
    mailbox_->Wait(-1, Millis(100));
    TakeAnswers();
    GiveBack(queues_.TakeWaiting([](const KeyQueues::Entry&) { return true; }), Millis(0));
  }
  if (store_ != nullptr) {
    if (const absl::Status settled = Settle(); !settled.ok()) events_.OnDatabaseError(settled);
  }
  store_.reset();
  connection_.reset();
}

}  // namespace lockstep::publisher
