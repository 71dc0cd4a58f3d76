#include "idempotency/memory_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/status.h"
#include "platform/text.h"

namespace lockstep::idempotency {
namespace {

constexpr size_t kMaxKeyBytes = 1'024, kMaxHashBytes = 256;
constexpr std::chrono::hours kMaxTtl{366 * 24}, kMaxLease{24};

bool Sized(const std::string& text, size_t most) { return !text.empty() && text.size() <= most; }

absl::Status CheckLease(Millis lease) {
  if (lease > Millis(0) && lease <= kMaxLease) return absl::OkStatus();
  return InvalidArgument("a lease is above 0 and at most 24 hours (got {} ms)", lease.count());
}

absl::Status Check(const Request& request) {
  if (!Sized(request.key, kMaxKeyBytes) ||
      (request.tenant.has_value() && !Sized(*request.tenant, kMaxKeyBytes))) {
    return InvalidArgument("a key has 1 to 1024 bytes, and so has a tenant unless there is none");
  }
  if (!Sized(request.hash, kMaxHashBytes)) {
    return InvalidArgument("the hash of the request has 1 to 256 bytes, as SHA-256 in hex has");
  }
  if (request.ttl <= Millis(0) || request.ttl > kMaxTtl) {
    return InvalidArgument("a TTL is above 0 and at most 366 days (got {} ms)",
                           request.ttl.count());
  }
  return CheckLease(request.lease);
}

absl::Status Lost(const Held& held) {
  return absl::AbortedError(fmt::format(
      "STORAGE.CONFLICT: the key {} is not (or no longer) the caller's: its lease ended before the "
      "work, or it was never taken: undo the work",
      held.key));
}

}  // namespace

std::string MemoryStore::NewToken() {
  const uint64_t high = random_(), low = random_();
  return fmt::format("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", high >> 32, (high >> 16) & 0xffff,
                     high & 0xfff, low >> 52, low & 0xffffffffffff);
}

Answer MemoryStore::Take(const Request& request, WallTime now) {
  const std::string token = NewToken();
  entries_[{request.tenant, request.key}] = {.hash = request.hash,
                                             .token = token,
                                             .lease = request.lease,
                                             .ttl = request.ttl,
                                             .lease_until = now + request.lease,
                                             .expires_at = now + request.lease + request.ttl};
  return {.outcome = Outcome::kGo, .token = token};
}

absl::StatusOr<Answer> MemoryStore::CheckAndPut(const Request& request) {
  RETURN_IF_ERROR(Check(request));
  const WallTime now = clock_.Now();
  const std::scoped_lock lock(mu_);
  const auto found = entries_.find({request.tenant, request.key});
  if (found == entries_.end()) return Take(request, now);
  Entry& entry = found->second;
  // The clock was set back: nothing is held for longer than a whole lease and TTL from now.
  entry.lease_until = std::min<WallTime>(entry.lease_until, now + entry.lease);
  entry.expires_at = std::min<WallTime>(entry.expires_at, now + entry.lease + entry.ttl);
  if (entry.expires_at <= now) return Take(request, now);
  if (entry.hash != request.hash) return Answer{.outcome = Outcome::kConflict};
  switch (entry.state) {
    case State::kSucceeded:
      return Answer{.outcome = Outcome::kDone, .digest = entry.digest};
    case State::kFailed:
      if (request.retry_failed) return Take(request, now);
      return Answer{.outcome = Outcome::kFailed, .error = entry.error};
    case State::kInFlight:
      break;
  }
  if (entry.lease_until > now) return Answer{.outcome = Outcome::kBusy};
  return Take(request, now);
}

MemoryStore::Entry* MemoryStore::Find(const Held& held) {
  const auto found = entries_.find({held.tenant, held.key});
  if (found == entries_.end() || found->second.token != held.token) return nullptr;
  return &found->second;
}

absl::Status MemoryStore::End(const Held& held, State state,
                              const std::optional<std::string>& digest, const std::string& error) {
  const WallTime now = clock_.Now();
  const std::scoped_lock lock(mu_);
  Entry* const entry = Find(held);
  if (entry == nullptr) return Lost(held);
  if (entry->state != State::kInFlight) {
    const bool again = entry->state == state && entry->digest == digest && entry->error == error;
    return again ? absl::OkStatus() : Lost(held);
  }
  entry->state = state;
  entry->digest = digest;
  entry->error = error;
  entry->expires_at = std::max<WallTime>(entry->expires_at, now + entry->ttl);
  return absl::OkStatus();
}

absl::Status MemoryStore::Finish(const Held& held, const std::optional<std::string>& digest) {
  if (digest.has_value() && digest->size() > kMaxDigestBytes) {
    return InvalidArgument("the digest has {} bytes and may have {}: keep the result elsewhere",
                           digest->size(), kMaxDigestBytes);
  }
  return End(held, State::kSucceeded, digest, "");
}

absl::Status MemoryStore::Fail(const Held& held, const std::string& error) {
  return End(held, State::kFailed, std::nullopt, Truncate(error, kMaxErrorBytes));
}

absl::Status MemoryStore::Renew(const Held& held, Millis lease) {
  RETURN_IF_ERROR(CheckLease(lease));
  const WallTime now = clock_.Now();
  const std::scoped_lock lock(mu_);
  Entry* const entry = Find(held);
  if (entry == nullptr || entry->state != State::kInFlight) return Lost(held);
  entry->lease = lease;
  entry->lease_until = now + lease;
  entry->expires_at = std::max<WallTime>(entry->expires_at, now + lease + entry->ttl);
  return absl::OkStatus();
}

size_t MemoryStore::Clean() {
  const WallTime now = clock_.Now();
  const std::scoped_lock lock(mu_);
  return std::erase_if(entries_, [&](const auto& entry) { return entry.second.expires_at <= now; });
}

size_t MemoryStore::size() const {
  const std::scoped_lock lock(mu_);
  return entries_.size();
}

}  // namespace lockstep::idempotency
