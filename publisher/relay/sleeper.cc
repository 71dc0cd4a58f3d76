#include "publisher/relay/sleeper.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/status.h"

namespace lockstep::publisher {
namespace {

constexpr Millis kTick{1000};
// A writer commits soon as a rule; one that takes long is looked after less and less often.
constexpr RetryPolicy kWriterPolicy{
    .max_attempts = 0, .base = Millis(1), .cap = Millis(250), .jitter = RetryPolicy::Jitter::kFull};

}  // namespace

absl::Status Sleeper::Awake(OutboxStore& store, bool more) {
  rests_ = 0;
  writer_rests_ = 0;
  return more ? Disarm(store) : absl::OkStatus();
}

absl::Status Sleeper::Disarm(OutboxStore& store) {
  if (armed_.empty()) return absl::OkStatus();
  return store.WakeUnlock(std::exchange(armed_, {}));
}

absl::StatusOr<bool> Sleeper::Rest(OutboxStore& store, Mailbox& mailbox,
                                   const ClaimRequest& request, const ClaimCursor& floor,
                                   std::optional<Millis> at_most,
                                   const std::function<bool()>& tick) {
  told_ = false;
  if (armed_ != request.shards) {
    RETURN_IF_ERROR(Disarm(store));
    if (!request.shards.empty()) {
      ASSIGN_OR_RETURN(const bool locked, store.TryWakeLocks(request.shards));
      if (locked) {
        armed_ = request.shards;
        return true;  // look once more
      }
    }
  }
  // Without shards there is nothing to look for, and a session that says nothing is ended.
  if (request.shards.empty()) RETURN_IF_ERROR(store.connection().Run("SELECT"));
  const bool writer = armed_.empty() && !request.shards.empty();
  writer_rests_ = writer ? writer_rests_ + 1 : 0;
  if (writer) rests_ = 0;
  // What an open transaction commits comes without a notification.
  const RetryPolicy poll{.max_attempts = 0,
                         .base = options_.poll_floor,
                         .cap = options_.poll_interval,
                         .jitter = RetryPolicy::Jitter::kFull};
  Millis rest =
      writer ? kWriterPolicy.Delay(writer_rests_, random_()) : poll.Delay(rests_ + 1, random_());
  if (rests_ > 0 && !armed_.empty()) {
    // The first rest is shorter than any retry; later ones must not oversleep one.
    ASSIGN_OR_RETURN(const auto due, store.NextDue(request, floor));
    if (due.has_value()) rest = std::min(rest, *due);
  }
  const bool cut = at_most.has_value() && *at_most < rest;
  if (cut) rest = *at_most;
  // One that came with the answer to the last look is not on the socket any more. Whoever is told
  // of the next while at work on the last need not be told.
  ASSIGN_OR_RETURN(const bool early, Notified(store));
  if (early) {
    RETURN_IF_ERROR(Disarm(store));
    return true;
  }
  const auto end = std::chrono::steady_clock::now() + rest;
  while (tick()) {
    const auto left = std::chrono::ceil<Millis>(end - std::chrono::steady_clock::now());
    if (left <= Millis(0)) {
      if (!cut && !writer) ++rests_;
      return !cut || armed_.empty();
    }
    const bool event = mailbox.Wait(store.connection().socket(), std::min(left, kTick));
    if (!event) continue;
    // The mailbox, a notification, or the end of the session.
    ASSIGN_OR_RETURN(told_, Notified(store));
    return told_ || armed_.empty();
  }
  return true;
}

absl::StatusOr<bool> Sleeper::Notified(OutboxStore& store) {
  ASSIGN_OR_RETURN(const auto notifications, store.connection().TakeNotifications());
  return std::any_of(notifications.begin(), notifications.end(), [&](const auto& notification) {
    return notification.payload.empty() ||
           std::any_of(armed_.begin(), armed_.end(),
                       [&](int shard) { return notification.payload == fmt::format("{}", shard); });
  });
}

}  // namespace lockstep::publisher
