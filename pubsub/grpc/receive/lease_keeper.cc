#include "pubsub/grpc/receive/lease_keeper.h"

#include <algorithm>
#include <utility>

#include "platform/duration.h"
#include "platform/log/log.h"

namespace lockstep::pubsub::grpc_client {
namespace {

constexpr Millis kRpcTimeout{5'000};

}  // namespace

struct LeaseKeeper::Findings {
  std::map<int, std::vector<std::string>> extend;  // by seconds
  std::vector<AckToken> lost;
  InHand lost_in_hand;
  int64_t warned = 0;
};

LeaseKeeper::LeaseKeeper(Options options, AckRpc& rpc, Timers& timers, const Clock& clock,
                         Lost lost)
    : options_(std::move(options)),
      period_(std::clamp(std::min(options_.ack_deadline, options_.max_extension) / 10, Millis(20),
                         Millis(1'000))),
      rpc_(rpc),
      timers_(timers),
      clock_(clock),
      lost_(std::move(lost)) {}

LeaseKeeper::~LeaseKeeper() { Stop(); }

void LeaseKeeper::Start() { Schedule(); }

void LeaseKeeper::Stop() {
  Timers::Id timer = 0;
  {
    std::scoped_lock lock(mu_);
    stopped_ = true;
    timer = timer_;
  }
  timers_.Cancel(timer);
}

void LeaseKeeper::Schedule() {
  std::scoped_lock lock(mu_);
  if (stopped_) return;
  timer_ = timers_.After(period_, [this] {
    Tick();
    Schedule();
  });
}

void LeaseKeeper::Add(const std::vector<Delivery>& deliveries, SteadyTime received) {
  std::scoped_lock lock(mu_);
  for (const Delivery& delivery : deliveries) {
    Lease lease;
    lease.delivered = received;
    lease.expires = received + options_.ack_deadline;
    lease.bytes = delivery.message.ByteSize();
    leases_.insert_or_assign(delivery.token.value(), lease);
  }
}

LeaseKeeper::InHand LeaseKeeper::BeginAck(const std::vector<AckToken>& tokens) {
  InHand given;
  std::scoped_lock lock(mu_);
  for (const AckToken& token : tokens) {
    const auto lease = leases_.find(token.value());
    if (lease == leases_.end() || lease->second.acking) continue;
    lease->second.acking = true;
    ++given.messages;
    given.bytes += lease->second.bytes;
  }
  return given;
}

LeaseKeeper::InHand LeaseKeeper::Remove(const std::vector<AckToken>& tokens) {
  InHand given;
  std::scoped_lock lock(mu_);
  for (const AckToken& token : tokens) {
    const auto lease = leases_.find(token.value());
    if (lease == leases_.end()) continue;
    if (!lease->second.acking) {
      ++given.messages;
      given.bytes += lease->second.bytes;
    }
    leases_.erase(lease);
  }
  return given;
}

void LeaseKeeper::EndAck(const std::vector<std::string>& ids) {
  std::scoped_lock lock(mu_);
  for (const std::string& id : ids) leases_.erase(id);
}

void LeaseKeeper::Tick() {
  const SteadyTime now = clock_.Steady();
  Findings findings;
  {
    std::scoped_lock lock(mu_);
    if (stopped_) return;
    Look(now, findings);
  }
  if (findings.warned > 0) {
    log::Warning("messages are in hand for half of max_extension",
                 {{"subscription", options_.subscription},
                  {"messages", findings.warned},
                  {"max_extension", FormatDuration(options_.max_extension)}});
  }
  for (auto& [seconds, ids] : findings.extend) Extend(std::move(ids), seconds, now);
  if (!findings.lost.empty()) {
    log::Warning("leases lapsed",
                 {{"subscription", options_.subscription}, {"messages", findings.lost.size()}});
    lost_(std::move(findings.lost), findings.lost_in_hand);
  }
}

void LeaseKeeper::Look(SteadyTime now, Findings& findings) {
  for (auto place = leases_.begin(); place != leases_.end();) {
    Lease& lease = place->second;
    const SteadyTime limit = lease.delivered + options_.max_extension;
    if (now >= std::min(limit, lease.expires)) {
      if (!lease.acking) {
        findings.lost.emplace_back(place->first);
        ++findings.lost_in_hand.messages;
        findings.lost_in_hand.bytes += lease.bytes;
      }
      leases_.erase(place++);
      continue;
    }
    if (!lease.warned && !lease.acking && now >= lease.delivered + options_.max_extension / 2) {
      lease.warned = true;
      ++findings.warned;
    }
    if (!lease.extending && lease.expires - now <= options_.ack_deadline / 2 &&
        lease.expires < limit) {
      const auto until = std::min<SteadyTime::duration>(options_.ack_deadline, limit - now);
      const auto seconds = std::chrono::ceil<std::chrono::seconds>(until).count();
      lease.extending = true;
      findings.extend[static_cast<int>(std::clamp<int64_t>(seconds, 1, 600))].push_back(
          place->first);
    }
    ++place;
  }
}

// In requests within the limit.
void LeaseKeeper::Extend(std::vector<std::string> ids, int seconds, SteadyTime now) {
  const SteadyTime expires = now + std::chrono::seconds(seconds);
  size_t next = 0;
  while (next < ids.size()) {
    std::vector<std::string> batch;
    AckRequestSize size;
    while (next < ids.size() && size.Add(ids[next])) batch.push_back(std::move(ids[next++]));
    rpc_.ModifyDeadline(std::move(batch), seconds, kRpcTimeout, [this, expires](AckAnswer answer) {
      OnExtended(std::move(answer), expires);
    });
  }
}

void LeaseKeeper::OnExtended(AckAnswer answer, SteadyTime expires) {
  Findings findings;
  bool stopped = false;
  {
    std::scoped_lock lock(mu_);
    stopped = stopped_;
    for (const std::string& id : answer.ids) {
      const auto place = leases_.find(id);
      if (place == leases_.end()) continue;
      Lease& lease = place->second;
      lease.extending = false;  // a request that failed is repeated at the next look
      const auto failure = answer.failures.find(id);
      const bool refused =
          failure != answer.failures.end() && failure->second.rfind("PERMANENT", 0) == 0;
      const bool held =
          answer.status.ok() || (!answer.failures.empty() && failure == answer.failures.end());
      if (held) lease.expires = std::max(lease.expires, expires);
      if (!refused || lease.acking || stopped_) continue;
      findings.lost.emplace_back(id);
      ++findings.lost_in_hand.messages;
      findings.lost_in_hand.bytes += lease.bytes;
      leases_.erase(place);
    }
  }
  if (!answer.status.ok() && answer.failures.empty() && !stopped) {
    log::Warning("leases could not be extended", {{"subscription", options_.subscription},
                                                  {"messages", answer.ids.size()},
                                                  {"error", answer.status}});
  }
  if (!findings.lost.empty()) lost_(std::move(findings.lost), findings.lost_in_hand);
}

}  // namespace lockstep::pubsub::grpc_client
