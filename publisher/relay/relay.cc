#include "publisher/relay/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include "platform/status.h"
#include "publisher/outbox/lease_token.h"

namespace lockstep::publisher {
namespace {

// How long answers under way are waited for before the sleep protocol is worth its queries.
constexpr Millis kAnswerGrace{20};
// With full hands there is nothing to do but to wait; the watchdog wants to see turns.
constexpr Millis kLongestTurn{1'000};

// Until a row is looked at again whose content another row is to send.
constexpr Millis kContentWait{1'000};

// A relay that was stopped must not hold its wake locks for ever. One that rests speaks once in a
// poll.
Millis LongestSilence(const RelayOptions& options) {
  return std::max(options.lock_ttl, 2 * options.poll_interval);
}

std::optional<Millis> Earliest(std::initializer_list<std::optional<Millis>> times) {
  std::optional<Millis> earliest;
  for (const auto& time : times) {
    if (time.has_value()) earliest = std::min(earliest.value_or(*time), *time);
  }
  return earliest;
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
      lately_(environment_.remember),
      marks_(environment_.instance, events),
      pauses_(options_.retry, environment_.random),
      answers_({.options = options_,
                .clock = *environment_.clock,
                .random = environment_.random,
                .events = events,
                .leased = leased_,
                .lately = lately_,
                .marks = marks_,
                .pauses = pauses_}),
      sleeper_(options_, environment_.random),
      draining_(options_.table),
      health_(absl::UnavailableError("starting")) {
  NoteTurn();
}

Relay::~Relay() { Stop(); }

absl::Status Relay::Start() {
  return thread_.Start([this] { Run(); });
}

void Relay::Stop() {
  thread_.RequestStop();
  mailbox_->Wake();
  thread_.Stop();
}

int64_t Relay::SetShards(std::vector<int> shards, int count) {
  const int64_t change = shards_.Set(std::move(shards), count);
  mailbox_->Wake();
  return change;
}

void Relay::StandBy() {
  draining_.Stuck(absl::UnavailableError("another publisher relays it, and this one stands by"));
}

void Relay::Reconfigure(const FollowedRelayOptions& fresh) {
  {
    std::scoped_lock lock(mu_);
    new_options_ = fresh;
  }
  mailbox_->Wake();
}

absl::Status Relay::health() const {
  std::scoped_lock lock(mu_);
  return health_;
}

absl::Status Relay::WaitUntilDrained() {
  return draining_.Wait([this] { mailbox_->Wake(); });
}

void Relay::SetHealth(absl::Status health) {
  std::scoped_lock lock(mu_);
  health_ = std::move(health);
}

void Relay::NoteTurn() { last_turn_ = environment_.clock->Steady().time_since_epoch().count(); }

void Relay::Run() {
  while (!thread_.stopping()) {
    NoteTurn();
    FollowShards();
    FollowOptions();
    absl::Status turned = Connect();
    if (turned.ok()) turned = Turn();
    if (turned.ok()) {
      reconnect_.Reset();
      database_failures_ = 0;
    } else {
      LoseSession(std::move(turned));
    }
  }
  Finish();
  draining_.GiveUp();
}

void Relay::FollowShards() {
  if (!shards_.Follow()) return;
  plan_ = {};
  events_.OnShards(shards_.shards(), shards_.count());
  GiveBackWaiting([&](const OutboxRow& row) { return !shards_.Has(row.shard); });
  NoteLeaving();
}

void Relay::NoteLeaving() {
  // Of which shard a mark is, is not worth knowing.
  if (!shards_.leaving() || !marks_.empty()) return;
  if (leased_.AnyUnderWay([&](const OutboxRow& row) { return !shards_.Has(row.shard); })) return;
  shards_.NoneLeft();
}

void Relay::FollowOptions() {
  std::optional<FollowedRelayOptions> fresh;
  {
    std::scoped_lock lock(mu_);
    fresh.swap(new_options_);
  }
  if (!fresh.has_value()) return;
  plan_.LookAgain();
  static_cast<FollowedRelayOptions&>(options_) = *fresh;
  dispatcher_.SetMaxRequests(options_.table, options_.max_requests);
  if (connection_ == nullptr) return;
  // A session that is lost is found so by whoever uses it next.
  connection_->Run(fmt::format("SET idle_session_timeout = {}", LongestSilence(options_).count()))
      .IgnoreError();
}

absl::Status Relay::Connect() {
  if (store_ != nullptr) return absl::OkStatus();
  postgres::ConnectionOptions options;
  options.url = environment_.database;
  options.application_name = "lockstep-publisher";
  options.statement_timeout = Millis(20'000);  // below the watchdog's patience
  options.idle_session_timeout = LongestSilence(options_);
  ASSIGN_OR_RETURN(connection_, postgres::Connection::Open(options));
  ASSIGN_OR_RETURN(const auto table, postgres::QualifiedName::Parse(options_.table));
  ASSIGN_OR_RETURN(store_, OutboxStore::Open(*connection_, table));
  RETURN_IF_ERROR(connection_->Listen(store_->channel()));
  ASSIGN_OR_RETURN(const int64_t gone,
                   lately_.AuditGone(*store_, environment_.instance, environment_.clock->Steady()));
  if (gone > 0) events_.OnGone(gone);
  SetHealth(absl::OkStatus());
  return absl::OkStatus();
}

void Relay::LoseSession(absl::Status why) {
  events_.OnDatabaseError(why);
  if (++database_failures_ > 1) draining_.Stuck(why);
  SetHealth(std::move(why));
  // Whatever it was: a fresh session has no half-done state.
  store_.reset();
  connection_.reset();
  sleeper_.Forget();
  plan_ = {};
  TakeAnswers();
  // The next server may lack them: what is sent was claimed from the one that has it.
  GiveBackWaiting([](const OutboxRow&) { return true; });
  mailbox_->Wait(-1, reconnect_.Next());
}

absl::Status Relay::Turn() {
  TakeAnswers();
  const SteadyTime now = environment_.clock->Steady();
  if (draining_.Awaited() || MayPassOverLess(now)) plan_.LookAgain();
  const bool room = HasRoom();
  const bool due = marks_.Left(now) == Millis(0);
  if (plan_.more() || due || !room || draining_.Awaited()) RETURN_IF_ERROR(WriteMarks());
  RETURN_IF_ERROR(RenewLeases());
  const bool looks = room && plan_.wanted() && !shards_.shards().empty();
  if (looks) RETURN_IF_ERROR(Claim());
  Send();
  if (looks && plan_.more()) return absl::OkStatus();
  if (room) return Rest(looks);
  mailbox_->Wait(-1, std::min(options_.lock_ttl / 6, kLongestTurn));
  return absl::OkStatus();
}

void Relay::TakeAnswers() {
  for (Mailbox::Answer& answer : mailbox_->Take()) {
    auto request = leased_.Answered(answer.request);
    if (request.has_value()) answers_.Handle(*std::move(request), std::move(answer.results));
  }
}

bool Relay::HasRoom() const {
  return leased_.rows() + options_.batch_size <=
         static_cast<size_t>(std::max(options_.max_in_flight, options_.batch_size));
}

bool Relay::MayPassOverLess(SteadyTime now) const {
  return !shards_.shards().empty() && pauses_.Changed(now, InHand());
}

TopicPauses::InHand Relay::InHand() const {
  return [this, topics = std::optional<std::set<std::string>>()](const std::string& topic) mutable {
    if (!topics.has_value()) topics = leased_.Topics();  // as a rule nobody asks
    return topics->contains(topic);
  };
}

absl::Status Relay::WriteMarks() {
  if (marks_.empty()) return absl::OkStatus();
  if (marks_.urgent()) plan_.LookAgain();  // they may free others
  RETURN_IF_ERROR(marks_.Write(
      *store_, [this](const OutboxRow& row) { leased_.Marked(row); },
      [this](const std::string& lease) { return leased_.Unmarked(lease); }));
  NoteLeaving();  // now: their next owner waits, and we may be about to sleep
  return absl::OkStatus();
}

absl::Status Relay::RenewLeases() {
  ASSIGN_OR_RETURN(auto lost,
                   leased_.Renew(*store_, options_.lock_ttl, environment_.clock->Steady()));
  // Given back by its token: one that is lost is counted there.
  answers_.GiveBack(std::move(lost));
  return absl::OkStatus();
}

ClaimRequest Relay::NewClaimRequest() const {
  return {.token = NewLeaseToken(),
          .owner = environment_.instance,
          .lock_ttl = options_.lock_ttl,
          .rows = options_.batch_size,
          .shards = shards_.shards(),
          .shard_count = shards_.count(),
          .live_tokens = leased_.live_tokens(),
          .paused_topics = pauses_.ToPassOver(environment_.clock->Steady(), InHand()),
          .dead_blocks = options_.on_dead == OnDead::kHoldKey};
}

absl::Status Relay::Claim() {
  const SteadyTime before = environment_.clock->Steady();
  ClaimRequest request = NewClaimRequest();
  request.few = sleeper_.TakeTold();
  if (request.few) request.rest_token = NewLeaseToken();
  ASSIGN_OR_RETURN(publisher::Claim claim, store_->ClaimRows(request, plan_.Next(before)));
  const bool full = claim.candidates >= request.rows;
  plan_.Looked(before, environment_.clock->Steady(), full, claim.a_second_ago);
  pauses_.PassedOver(request.paused_topics);
  if (claim.rows.empty()) return absl::OkStatus();
  events_.OnClaimed(claim.rows);
  draining_.FoundRows();
  RETURN_IF_ERROR(SetDuplicatesAside(claim.rows));
  leased_.Add(std::move(claim.rows), before);
  Send();
  return sleeper_.Awake(*store_, full);
}

absl::Status Relay::SetDuplicatesAside(std::vector<OutboxRow>& rows) {
  const auto none = [](const OutboxRow& row) { return row.target_space.empty(); };
  if (std::ranges::all_of(rows, none)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto verdicts, store_->JudgeContents(rows));
  using Verdict = ContentVerdict::Kind;
  const auto verdict_of = [&](const OutboxRow& row) {
    const auto found = verdicts.find(row.sequence);
    return found == verdicts.end() ? ContentVerdict() : found->second;
  };
  std::map<std::string, int64_t> waiting;  // key -> the version that its others wait behind
  for (const OutboxRow& row : rows) {
    if (verdict_of(row).kind != Verdict::kWait) continue;
    const auto [first, is_new] = waiting.try_emplace(row.aggregate_id, row.version);
    if (!is_new) first->second = std::min(first->second, row.version);
  }
  const SteadyTime now = environment_.clock->Steady();
  std::vector<OutboxRow> kept;
  std::vector<RowPtr> behind;  // not sent, although they might be
  for (OutboxRow& row : rows) {
    const ContentVerdict verdict = verdict_of(row);
    const auto key = waiting.find(row.aggregate_id);
    const bool waits =
        verdict.kind == Verdict::kWait || (key != waiting.end() && row.version > key->second);
    if (!waits && verdict.kind == Verdict::kSend) {
      kept.push_back(std::move(row));
      continue;
    }
    leased_.SetAside(row);
    const auto aside = std::make_shared<const OutboxRow>(std::move(row));
    if (waits) {
      if (verdict.kind == Verdict::kSend) behind.push_back(aside);
      marks_.Failed({.row = aside, .delay = kContentWait});
    } else {
      events_.OnRow(
          {.kind = RowEvent::Kind::kDedupHit, .row = *aside, .message_id = verdict.message_id});
      marks_.Published(aside, verdict.message_id, now, /*dedup_hit=*/true);
    }
  }
  rows = std::move(kept);
  return store_->LeaveContents(behind);
}

void Relay::Send() {
  const auto shape_of = [this](const std::string& topic) { return dispatcher_.Shape(topic); };
  while (true) {
    const auto id = leased_.Send(environment_.clock->Steady(), shape_of, options_.max_requests);
    if (!id.has_value()) return;
    std::vector<RowPtr> rows;
    for (const KeyQueues::Entry& entry : leased_.entries(*id)) rows.push_back(entry.row);
    const std::string topic = rows.front()->topic;
    dispatcher_.Dispatch(options_.table, topic, std::move(rows),
                         [mailbox = mailbox_, id = *id](std::vector<DispatchResult> results) {
                           mailbox->Post({id, std::move(results)});
                         });
  }
}

// Until an answer, a writer's notification, or the first of what is due: a topic's next try, a
// lease's renewal, a look from the start, marks that have gathered, the poll.
absl::Status Relay::Rest(bool looked) {
  const SteadyTime now = environment_.clock->Steady();
  if (MayPassOverLess(now)) return absl::OkStatus();
  const bool in_hand = leased_.rows() > 0 || !marks_.empty();
  const std::optional<Millis> marks_due = marks_.Left(now);
  if (in_hand && !sleeper_.armed()) {
    plan_.LookAgain();
    const bool answered =
        mailbox_->Wait(-1, std::min(kAnswerGrace, marks_due.value_or(kAnswerGrace)));
    if (answered || marks_due.has_value()) return absl::OkStatus();
  }
  const ClaimRequest request = NewClaimRequest();
  if (looked && !in_hand && plan_.whole()) {
    if (!request.paused_topics.empty()) {
      draining_.Stuck(answers_.outage());
    } else {
      draining_.FoundNothing();
      if (draining_.Awaited()) return absl::OkStatus();
    }
  }
  const auto renewal = in_hand ? std::optional<Millis>(options_.lock_ttl / 6) : std::nullopt;
  const auto look_due = Earliest({pauses_.NextEnd(now), renewal, plan_.UntilStart(now)});
  ASSIGN_OR_RETURN(const bool something, sleeper_.Rest(*store_, *mailbox_, request, plan_.floor(),
                                                       Earliest({look_due, marks_due}), [this] {
                                                         NoteTurn();
                                                         return !thread_.stopping();
                                                       }));
  if (something || (look_due.has_value() && environment_.clock->Steady() - now >= *look_due)) {
    plan_.LookAgain();
  }
  return absl::OkStatus();
}

void Relay::GiveBackWaiting(const std::function<bool(const OutboxRow&)>& pick) {
  answers_.GiveBack(leased_.queues().TakeWaiting(
      [&](const KeyQueues::Entry& entry) { return pick(*entry.row); }));
}

void Relay::Finish() {
  const auto all = [](const OutboxRow&) { return true; };
  GiveBackWaiting(all);
  const SteadyTime end = std::chrono::steady_clock::now() + environment_.stop_timeout;
  while (leased_.requests() > 0 && std::chrono::steady_clock::now() < end) {
    mailbox_->Wait(-1, Millis(100));
    TakeAnswers();
    GiveBackWaiting(all);
  }
  if (store_ != nullptr) {
    if (const absl::Status marked = WriteMarks(); !marked.ok()) events_.OnDatabaseError(marked);
  }
  store_.reset();
  connection_.reset();
}

}  // namespace lockstep::publisher
