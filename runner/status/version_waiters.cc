#include "runner/status/version_waiters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "platform/duration.h"
#include "platform/status.h"
#include "platform/text.h"
#include "postgres/sql_error.h"

namespace lockstep::runner {
namespace {

constexpr Millis kDefaultTimeout{5'000};
constexpr Millis kMaxTimeout{60'000};
// A database that hangs must not keep those who wait from the end of their time for long.
constexpr Millis kStatementTimeout{1'000};

HttpResponse Refusal(int status, const std::string& sentence) {
  return {.status = status, .body = sentence + "\n"};
}

HttpResponse Answer(bool reached, const std::optional<int64_t>& settled) {
  const nlohmann::json body = {
      {"reached", reached},
      {"version", settled ? nlohmann::json(*settled) : nlohmann::json(nullptr)}};
  return {.status = reached ? 200 : 408,
          .content_type = "application/json; charset=utf-8",
          .body = body.dump() + "\n"};
}

std::optional<int64_t> ParseVersion(const std::string& text) {
  int64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return version;
}

}  // namespace

VersionWaiters::VersionWaiters(Options options, HttpServer& http)
    : options_(std::move(options)), keys_(state::Schema(options_.state_schema)) {
  http.HandleLater("/api/await", [this](const HttpRequest& request, const HttpReply& reply) {
    Enter(request, reply);
  });
}

absl::Status VersionWaiters::Start() {
  return thread_.Start([this] { Run(); });
}

void VersionWaiters::Stop() {
  thread_.Stop();
  std::vector<Waiter> left;
  {
    const std::scoped_lock lock(mu_);
    stopped_ = true;
    left.swap(entered_);
  }
  for (const Waiter& waiter : left) {
    waiter.reply.Send(Refusal(503, "this runner ends; ask another one"));
  }
}

void VersionWaiters::Enter(const HttpRequest& request, const HttpReply& reply) {
  const auto value = [&](const char* name) -> std::optional<std::string> {
    const auto found = request.query.find(name);
    return found == request.query.end() ? std::nullopt : std::optional(found->second);
  };
  for (const char* name : {"group", "aggregate_type", "aggregate_id", "version"}) {
    if (value(name).value_or("").empty()) {
      return reply.Send(Refusal(400, fmt::format("'{}' is missing: ask for /api/await?group=…&"
                                                 "aggregate_type=…&aggregate_id=…&version=…",
                                                 name)));
    }
  }
  // All who wait share a statement: what Postgres takes for no text would fail it for everybody.
  for (const auto& [name, text] : request.query) {
    if (ValidUtf8(text) && text.find('\0') == std::string::npos) continue;
    return reply.Send(
        Refusal(400, fmt::format("'{}' must be UTF-8 without NUL", Truncate(name, 32))));
  }
  const std::optional<int64_t> version = ParseVersion(*value("version"));
  if (!version) return reply.Send(Refusal(400, "version: not a whole number"));
  const auto timeout =
      value("timeout") ? ParseDuration(*value("timeout")) : absl::StatusOr<Millis>(kDefaultTimeout);
  if (!timeout.ok() || *timeout < Millis(0) || *timeout > kMaxTimeout) {
    return reply.Send(
        Refusal(400, fmt::format("timeout: a duration such as 250ms or 2s, at most {}",
                                 FormatDuration(kMaxTimeout))));
  }
  const std::string group = *value("group");
  if (std::ranges::find(options_.groups, group) == options_.groups.end()) {
    return reply.Send(Refusal(404, "this runner has no such group"));
  }
  Waiter waiter{.reply = reply,
                .question = {.group = group,
                             .aggregate = {.tenant_id = value("tenant"),
                                           .type = *value("aggregate_type"),
                                           .id = *value("aggregate_id")}},
                .version = *version,
                .until = Clock::System().Steady() + *timeout};
  {
    const std::scoped_lock lock(mu_);
    if (!stopped_) {
      entered_.push_back(std::move(waiter));
      came_.notify_one();
      return;
    }
  }
  reply.Send(Refusal(503, "this runner ends; ask another one"));
}

void VersionWaiters::Run() {
  const std::stop_token stop = thread_.stop_token();
  while (true) {
    std::vector<Waiter> waiters;
    {
      std::unique_lock lock(mu_);
      if (!came_.wait(lock, stop, [&] { return !entered_.empty(); })) return;
      if (stop.stop_requested()) return;
      waiters.swap(entered_);
    }
    Look(waiters);
    if (waiters.empty()) continue;
    {
      const std::scoped_lock lock(mu_);
      for (Waiter& waiter : waiters) entered_.push_back(std::move(waiter));
    }
    SleepUnlessStopped(stop, options_.look_every);
  }
}

void VersionWaiters::Look(std::vector<Waiter>& waiters) {
  std::erase_if(waiters, [](const Waiter& waiter) { return waiter.reply.Gone(); });
  if (waiters.empty()) return;
  const auto rows = Read(waiters);
  if (!rows.ok() && postgres::Classify(rows.status()) == postgres::ErrorClass::kData) {
    return LookOneByOne(waiters, rows.status());
  }
  const SteadyTime now = Clock::System().Steady();
  std::vector<Waiter> left;
  for (size_t i = 0; i < waiters.size(); ++i) {
    Waiter& waiter = waiters[i];
    const bool over = now >= waiter.until;
    if (!rows.ok()) {
      if (over) waiter.reply.Send(Refusal(503, "the database could not be asked"));
      if (!over) left.push_back(std::move(waiter));
      continue;
    }
    const postgres::Row row = (*rows)[i];
    const std::optional<int64_t> settled = row.OptionalInt("settled");
    if (row.IsNull("follows")) {
      waiter.reply.Send(Refusal(404, "the group has never started"));
    } else if (!row.Bool("follows")) {
      waiter.reply.Send(Refusal(409,
                                "the group does not follow the versions of its aggregates; set "
                                "follow_versions: true and restart its runners"));
    } else if (settled && *settled >= waiter.version) {
      waiter.reply.Send(Answer(true, settled));
    } else if (over) {
      waiter.reply.Send(Answer(false, settled));
    } else {
      left.push_back(std::move(waiter));
    }
  }
  waiters = std::move(left);
}

void VersionWaiters::LookOneByOne(std::vector<Waiter>& waiters, const absl::Status& error) {
  if (waiters.size() == 1) {
    const bool refused = postgres::SqlState(error).starts_with("22");
    waiters.front().reply.Send(refused ? Refusal(400, "the database does not take these values")
                                       : Refusal(503, "the database could not be asked"));
    return waiters.clear();
  }
  std::vector<Waiter> left;
  for (Waiter& waiter : waiters) {
    std::vector<Waiter> one;
    one.push_back(std::move(waiter));
    Look(one);
    for (Waiter& stays : one) left.push_back(std::move(stays));
  }
  waiters = std::move(left);
}

absl::StatusOr<postgres::Result> VersionWaiters::Read(const std::vector<Waiter>& waiters) {
  if (!session_ || session_->broken()) {
    session_.reset();
    ASSIGN_OR_RETURN(session_,
                     postgres::Connection::Open({.url = options_.database,
                                                 .application_name = "lockstep-runner await",
                                                 .connect_timeout = kStatementTimeout,
                                                 .statement_timeout = kStatementTimeout,
                                                 .settings = postgres::kPlannedOnce}));
  }
  std::vector<state::KeyStates::Question> questions;
  for (const Waiter& waiter : waiters) questions.push_back(waiter.question);
  return keys_.Settled(*session_, questions);
}

}  // namespace lockstep::runner
