#include <fmt/format.h>

#include "platform/status.h"
#include "postgres/connection.h"
#include "sagas/store/work_store.h"

namespace lockstep::sagas {
namespace {

using postgres::Result;
using postgres::Row;
using postgres::Statement;

constexpr Statement kClaim{"saga_claim",
                           "SELECT * FROM lockstep.saga_claim($1, $2::bigint * interval '1 ms', "
                           "$3::int, $4::text[], $5::int[])"};
constexpr Statement kRenew{"saga_renew",
                           "SELECT * FROM lockstep.saga_renew($1::uuid[], $2::uuid[], $3::bigint * "
                           "interval '1 ms')"};
constexpr Statement kReleaseAll{"saga_release_all",
                                "SELECT lockstep.saga_release_all($1::uuid[], $2::uuid[])"};
constexpr Statement kLock{"saga_wake_lock", R"sql(
SELECT CASE WHEN pg_try_advisory_lock(lockstep.saga_wake_key()) THEN 'taken'
            WHEN pg_try_advisory_lock_shared(lockstep.saga_wake_key())
            THEN CASE WHEN pg_advisory_unlock_shared(lockstep.saga_wake_key()) THEN 'writer' END
            ELSE 'sleeper' END)sql"};
constexpr Statement kUnlock{"saga_wake_unlock",
                            "SELECT pg_advisory_unlock(lockstep.saga_wake_key())"};
Claimed::News NewsOf(std::string_view text) {
  if (text == "started") return Claimed::News::kStarted;
  if (text == "replayed") return Claimed::News::kReplayed;
  return Claimed::News::kNone;
}

}  // namespace

absl::StatusOr<std::vector<Claimed>> LeaseStore::Claim(const std::string& owner, Millis lease,
                                                       int at_most,
                                                       const std::map<std::string, int>& room) {
  postgres::Array names;
  postgres::Array rooms;
  for (const auto& [name, most] : room) {
    names.Add(name);
    rooms.Add(most);
  }
  ASSIGN_OR_RETURN(const Result rows,
                   session_.Execute(kClaim, owner, lease, at_most, names, rooms));
  std::vector<Claimed> claimed;
  for (const Row row : rows) {
    claimed.push_back(
        {{row.String("saga"), row.String("token"), static_cast<int>(row.Int("revision"))},
         NewsOf(row.Text("news"))});
  }
  return claimed;
}

absl::StatusOr<std::vector<Renewal>> LeaseStore::Renew(const std::vector<Lease>& leases,
                                                       Millis lease) {
  postgres::Array sagas;
  postgres::Array tokens;
  std::map<std::string, const Lease*> known;
  for (const Lease& one : leases) {
    sagas.AddPlain(one.saga);
    tokens.AddPlain(one.token);
    known[one.saga] = &one;
  }
  ASSIGN_OR_RETURN(const Result rows, session_.Execute(kRenew, sagas, tokens, lease));
  std::vector<Renewal> renewed;
  for (const Row row : rows) {
    const auto found = known.find(row.String("saga"));
    if (found == known.end()) continue;
    renewed.push_back({*found->second, row.Bool("renewed")});
    renewed.back().lease.revision = static_cast<int>(row.Int("revision"));
  }
  return renewed;
}

absl::Status LeaseStore::ReleaseAll(const std::vector<Lease>& leases) {
  postgres::Array sagas;
  postgres::Array tokens;
  for (const Lease& one : leases) {
    sagas.AddPlain(one.saga);
    tokens.AddPlain(one.token);
  }
  return session_.Run(kReleaseAll, sagas, tokens);
}

absl::StatusOr<LeaseStore::WakeLock> LeaseStore::TryWakeLock() {
  ASSIGN_OR_RETURN(const Result lock, session_.Execute(kLock));
  if (lock.Text(0, 0) == "taken") return WakeLock::kTaken;
  return lock.Text(0, 0) == "sleeper" ? WakeLock::kSleeper : WakeLock::kWriter;
}

absl::Status LeaseStore::WakeUnlock() { return session_.Run(kUnlock); }

}  // namespace lockstep::sagas
