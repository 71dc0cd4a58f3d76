#include "pubsub/grpc/receive/lease_keeper.h"

#include <algorithm>
#include <utility>

#include "platform/duration.h"
#include "platform/log/fault.h"
#include "platform/log/log.h"

namespace lockstep::pubsub::grpc_client {
namespace {

constexpr Millis kRpcTimeout{5'000};

}  // namespace

LeaseKeeper::LeaseKeeper(const ReceiverOptions& options, AckRpc& rpc, Timers& timers,
                         const Clock& clock, OnLost on_lost)
    : options_(options),
      period_(std::clamp(std::min(options_.ack_deadline, options_.max_extension) / 10, Millis(20),
                         Millis(1'000))),
      rpc_(rpc),
      clock_(clock),
      on_lost_(std::move(on_lost)),
      timer_(timers) {}

void LeaseKeeper::Start() {
  std::scoped_lock lock(mu_);
  if (stopped_) return;
  timer_.Set(period_, [this] {
    Tick();
    Start();
  });
}

void LeaseKeeper::Stop() {
  {
    std::scoped_lock lock(mu_);
    stopped_ = true;
  }
  timer_.Cancel();
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

Load LeaseKeeper::BeginAck(const std::vector<AckToken>& tokens) {
  Load given;
  std::scoped_lock lock(mu_);
  for (const AckToken& token : tokens) {
    const auto lease = leases_.find(token.value());
    if (lease == leases_.end() || std::exchange(lease->second.acking, true)) continue;
    given.Add(lease->second.bytes);
  }
  return given;
}

void LeaseKeeper::EndAck(const std::vector<std::string>& ids) {
  std::scoped_lock lock(mu_);
  for (const std::string& id : ids) leases_.erase(id);
}

Load LeaseKeeper::Remove(const std::vector<AckToken>& tokens) {
  const Load given = BeginAck(tokens);
  std::scoped_lock lock(mu_);
  for (const AckToken& token : tokens) leases_.erase(token.value());
  return given;
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
  if (!findings.lost.tokens.empty()) {
    log::Warning("leases lapsed", {{"subscription", options_.subscription},
                                   {"messages", findings.lost.tokens.size()}});
    on_lost_(std::move(findings.lost.tokens), findings.lost.load);
  }
}

void LeaseKeeper::Lose(Leases::iterator lease, Lost& lost) {
  if (!lease->second.acking) {
    lost.tokens.emplace_back(lease->first);
    lost.load.Add(lease->second.bytes);
  }
  leases_.erase(lease);
}

void LeaseKeeper::Look(SteadyTime now, Findings& findings) {
  for (auto place = leases_.begin(); place != leases_.end();) {
    Lease& lease = place->second;
    const SteadyTime limit = lease.delivered + options_.max_extension;
    if (now >= std::min(limit, lease.expires)) {
      Lose(place++, findings.lost);
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

void LeaseKeeper::Extend(std::vector<std::string> ids, int seconds, SteadyTime now) {
  const SteadyTime expires = now + std::chrono::seconds(seconds);
  for (auto& request : SplitIntoRequests(std::move(ids))) {
    rpc_.Send(std::move(request), seconds, kRpcTimeout,
              [this, expires](const AckAnswer& answer) { OnExtended(answer, expires); });
  }
}

void LeaseKeeper::OnExtended(const AckAnswer& answer, SteadyTime expires) {
  Lost lost;
  bool stopped = false;
  {
    std::scoped_lock lock(mu_);
    stopped = stopped_;
    for (const std::string& id : answer.ids) {
      const auto place = leases_.find(id);
      if (place == leases_.end()) continue;
      Lease& lease = place->second;
      lease.extending = false;  // a request that failed is repeated at the next look
      const bool held =
          answer.status.ok() || (!answer.failures.empty() && !answer.failures.contains(id));
      if (held) lease.expires = std::max(lease.expires, expires);
      if (answer.Refused(id) && !lease.acking && !stopped_) Lose(place, lost);
    }
  }
  if (!answer.status.ok() && answer.failures.empty() && !stopped) {
    log::Fault("leases could not be extended", {{"subscription", options_.subscription},
                                                {"messages", answer.ids.size()},
                                                {"error", answer.status}});
  }
  if (!lost.tokens.empty()) on_lost_(std::move(lost.tokens), lost.load);
}

}  // namespace lockstep::pubsub::grpc_client
