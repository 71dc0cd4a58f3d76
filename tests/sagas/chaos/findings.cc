#include "tests/sagas/chaos/findings.h"

#include <fmt/format.h>

#include <stdexcept>
#include <thread>

#include "platform/status.h"
#include "tests/chaos/system/now.h"

namespace lockstep::sagachaos {
namespace {

postgres::Result Ask(postgres::Connection& connection, const char* sql) {
  auto answer = connection.Execute(sql);
  if (!answer.ok()) {
    throw std::runtime_error(fmt::format("{}: {}", sql, MessageOf(answer.status())));
  }
  return *std::move(answer);
}

// A saga that waits for a person is none of them, unless it has been told.
constexpr char kUnderWay[] =
    "SELECT count(*) FROM lockstep.sagas s WHERE state IN ('Running', 'Compensating') OR (state = "
    "'Paused' AND EXISTS (SELECT FROM lockstep.saga_steps t WHERE t.saga = s.id AND t.in_doubt AND "
    "t.signal IS NOT NULL))";
constexpr char kDoubts[] =
    "SELECT s.id, t.name, (extract(epoch FROM t.started_at) * 1000)::bigint "
    "FROM lockstep.sagas s JOIN lockstep.saga_steps t ON t.saga = s.id "
    "WHERE s.state = 'Paused' AND t.in_doubt";
constexpr char kSagas[] =
    "SELECT s.id, coalesce(key, ''), s.state, coalesce(t.name, ''), coalesce(error, '') || ' ' || "
    "coalesce(reason, ''), (dead_at IS NOT NULL)::int FROM lockstep.sagas s "
    "LEFT JOIN lockstep.saga_steps t ON t.saga = s.id AND t.step = s.failed_step";
constexpr char kSteps[] =
    "SELECT saga, name, state, attempts, in_doubt::int, coalesce(last_error, '') "
    "FROM lockstep.saga_steps ORDER BY saga, step";
// By sql: steps, and by bus: ones. An event stands at the beginning of the transaction that wrote
// it.
constexpr char kEffects[] =
    "SELECT saga, step, undo::int, extract(epoch FROM at) * 1000 FROM shop.effect UNION ALL "
    "SELECT (convert_from(payload, 'UTF8')::jsonb->>'saga')::uuid, 'announce', "
    "(topic = 'order.withdrawn.v1')::int, extract(epoch FROM created_at) * 1000 FROM shop.outbox";
constexpr char kChanges[] =
    "SELECT a.saga, coalesce(t.name, ''), a.action, coalesce(a.from_state, ''), "
    "coalesce(a.to_state, '') FROM lockstep.saga_audit a "
    "LEFT JOIN lockstep.saga_steps t ON t.saga = a.saga AND t.step = a.step "
    "WHERE a.to_state IS NOT NULL ORDER BY a.id";
constexpr char kLeftovers[] =
    "SELECT 'work in the queue', count(*) FROM lockstep.saga_work UNION ALL "
    "SELECT 'sessions (' || coalesce(string_agg(application_name || ', ' || coalesce(state, '') || "
    "', ' || left(query, 100), '; '), '') || ')', count(*) FROM pg_stat_activity WHERE datname = "
    "current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' UNION ALL "
    "SELECT 'advisory locks', count(*) FROM pg_locks WHERE locktype = 'advisory' UNION ALL "
    "SELECT 'prepared transactions', count(*) FROM pg_prepared_xacts UNION ALL "
    "SELECT 'sagas of transactions that were rolled back', count(*) FROM shop.effect e "
    "WHERE NOT EXISTS (SELECT FROM lockstep.sagas s WHERE s.id = e.saga) UNION ALL "
    // Every reservation that stands is on its shelf.
    "SELECT 'shelves that are wrong', abs((SELECT coalesce(sum(taken), 0) FROM shop.shelf) - "
    "(SELECT count(*) FILTER (WHERE NOT undo) - count(*) FILTER (WHERE undo) FROM shop.effect "
    "WHERE step = 'reserve'))";

std::vector<std::string> LookForLeftovers(postgres::Connection& connection) {
  std::vector<std::string> leftovers;
  const auto rows = Ask(connection, kLeftovers);
  for (int i = 0; i < rows.rows(); ++i) {
    if (rows.Int(i, 1) != 0) {
      leftovers.push_back(fmt::format("{} {} are left", rows.Int(i, 1), rows.Text(i, 0)));
    }
  }
  return leftovers;
}

}  // namespace

int CountUnderWay(postgres::Connection& connection) {
  return static_cast<int>(Ask(connection, kUnderWay).Int(0, 0));
}

std::vector<Doubt> ReadDoubts(postgres::Connection& connection) {
  std::vector<Doubt> doubts;
  const auto rows = Ask(connection, kDoubts);
  for (int i = 0; i < rows.rows(); ++i) {
    doubts.push_back({std::string(rows.Text(i, 0)), std::string(rows.Text(i, 1)), rows.Int(i, 2)});
  }
  return doubts;
}

std::map<std::string, Saga> ReadSagas(postgres::Connection& connection, const World& world) {
  std::map<std::string, Saga> sagas;
  const auto rows = Ask(connection, kSagas);
  for (int i = 0; i < rows.rows(); ++i) {
    const std::string id(rows.Text(i, 0));
    sagas[id] = {.id = id,
                 .key = std::string(rows.Text(i, 1)),
                 .state = std::string(rows.Text(i, 2)),
                 .failed_step = std::string(rows.Text(i, 3)),
                 .error = std::string(rows.Text(i, 4)),
                 .dead = rows.Int(i, 5) != 0};
  }
  const auto steps = Ask(connection, kSteps);
  for (int i = 0; i < steps.rows(); ++i) {
    sagas[std::string(steps.Text(i, 0))].steps.push_back(
        {.name = std::string(steps.Text(i, 1)),
         .state = std::string(steps.Text(i, 2)),
         .last_error = std::string(steps.Text(i, 5)),
         .attempts = static_cast<int>(steps.Int(i, 3)),
         .in_doubt = steps.Int(i, 4) != 0});
  }
  const auto effects = Ask(connection, kEffects);
  for (int i = 0; i < effects.rows(); ++i) {
    const std::string id(effects.Text(i, 0));
    sagas[id].effects.push_back({.at = std::stod(std::string(effects.Text(i, 3))),
                                 .saga = id,
                                 .step = std::string(effects.Text(i, 1)),
                                 .undo = effects.Int(i, 2) != 0});
  }
  const auto changes = Ask(connection, kChanges);
  for (int i = 0; i < changes.rows(); ++i) {
    sagas[std::string(changes.Text(i, 0))].changes.push_back(
        {.step = std::string(changes.Text(i, 1)),
         .action = std::string(changes.Text(i, 2)),
         .from = std::string(changes.Text(i, 3)),
         .to = std::string(changes.Text(i, 4))});
  }
  for (auto& [id, requests] : world.ReadLedger()) sagas[id].requests = std::move(requests);
  return sagas;
}

std::vector<std::string> FindLeftovers(postgres::Connection& connection, Millis patience) {
  const SteadyTime until = chaos::Now() + patience;
  std::vector<std::string> leftovers = LookForLeftovers(connection);
  while (!leftovers.empty() && chaos::Now() < until) {
    std::this_thread::sleep_for(Millis(100));
    leftovers = LookForLeftovers(connection);
  }
  return leftovers;
}

std::string Describe(postgres::Connection& connection) {
  const auto rows =
      Ask(connection, "SELECT state, count(*) FROM lockstep.sagas GROUP BY 1 ORDER BY 1");
  std::string text;
  for (int i = 0; i < rows.rows(); ++i) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", rows.Int(i, 1), rows.Text(i, 0));
  }
  return text;
}

}  // namespace lockstep::sagachaos
