#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "platform/status.h"
#include "postgres/connection.h"
#include "postgres/migrator.h"
#include "sagas/engine/engine.h"
#include "sagas/store/desk.h"
#include "sql/migrations.h"
#include "tests/support/eventually.h"
#include "tests/support/http_test_server.h"
#include "tests/support/test_database.h"

namespace lockstep::sagas::testing {

using lockstep::testing::Eventually;
using lockstep::testing::HttpTestServer;
using lockstep::testing::TestDatabase;

// A database with sagas, an outbox and a shop whose functions keep a ledger (shop.ledger), a
// participant by HTTP, and engines.
class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    for (auto set :
         {sql::OutboxMigrations(), sql::IdempotencyMigrations(), sql::SagaMigrations()}) {
      const auto migrated = postgres::Migrator(*connection_, "lockstep", set).Up();
      EXPECT_TRUE(migrated.ok()) << migrated.status();
    }
    db_.Run(R"sql(
      SELECT lockstep.create_outbox('shop.outbox');
      CREATE TABLE shop.ledger (n bigint GENERATED ALWAYS AS IDENTITY, what text, request jsonb);
      CREATE FUNCTION shop.note(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
      BEGIN
        IF request->>'fail' = 'refuse' THEN PERFORM lockstep.saga_refuse('out of stock'); END IF;
        IF request->>'fail' = 'data' THEN RAISE EXCEPTION 'no'; END IF;
        IF request->>'fail' = 'slow' THEN PERFORM pg_sleep(30); END IF;
        INSERT INTO shop.ledger (what, request) VALUES (request->>'what', request);
        RETURN jsonb_build_object('id', 'r-' || (request->>'what'));
      END $$;
      CREATE FUNCTION shop.nothing(request jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb')sql");
  }
  ~EngineTest() override { engines_.clear(); }

  // `yaml` as JSON; HOST stands for the participant's address.
  void RegisterText(std::string json) {
    for (size_t at; (at = json.find("HOST")) != std::string::npos;) {
      json.replace(at, 4, fmt::format("http://127.0.0.1:{}", participant_.port()));
    }
    const auto definition = Definition::FromJson(Json::parse(json));
    ASSERT_TRUE(definition.ok()) << definition.status();
    const auto registered = Register(*connection_, *definition, "ann");
    ASSERT_TRUE(registered.ok()) << registered.status();
  }
  // A definition `order` of these steps.
  void RegisterSteps(const std::string& steps, const std::string& more = "") {
    RegisterText(fmt::format(
        R"({{"saga": "order", "version": {}, "outbox": "shop.outbox"{}, "steps": [{}]}})",
        ++version_, more, steps));
  }

  std::string Start(Json input = Json::object(), std::optional<std::string> key = {}) {
    NewSaga saga;
    saga.definition = "order";
    saga.input = std::move(input);
    saga.key = std::move(key);
    const auto id = StartSaga(*connection_, saga);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or("");
  }

  EngineOptions Options(const std::string& owner = "a") {
    EngineOptions options;
    options.database = db_.url();
    options.owner = owner;
    options.workers = 2;
    options.lease = Millis(2'000);
    options.heartbeat = Millis(200);
    options.poll_floor = Millis(20);
    options.poll_interval = Millis(100);
    options.drain = Millis(2'000);
    options.http.endpoint.settings.allow_private = true;
    return options;
  }
  Engine& Run(EngineOptions options, const std::map<std::string, StepFunction>& functions = {}) {
    engines_.push_back(std::make_unique<Engine>(std::move(options), events_));
    for (const auto& [name, function] : functions) engines_.back()->AddFunction(name, function);
    const absl::Status started = engines_.back()->Start();
    EXPECT_TRUE(started.ok()) << started;
    return *engines_.back();
  }
  Engine& Run() { return Run(Options()); }

  StoredSaga Show(const std::string& id) {
    auto saga = ShowSaga(*connection_, id);
    EXPECT_TRUE(saga.ok()) << saga.status();
    return saga.value_or(StoredSaga());
  }
  SagaState StateOf(const std::string& id) { return Show(id).state; }
  StoredStep StepOf(const std::string& id, const std::string& name) {
    for (const StoredStep& step : Show(id).steps) {
      if (step.name == name) return step;
    }
    ADD_FAILURE() << "no step " << name;
    return {};
  }
  // All that is known of a saga that is not as it should be.
  std::string Story(const std::string& id) {
    std::string story = Show(id).ToJson(true).dump(1);
    const auto audit = AuditOf(*connection_, id);
    for (const SagaAudit& entry : audit.value_or(std::vector<SagaAudit>())) {
      story += fmt::format("\n{} {} {} {}>{} {}", entry.actor, entry.step, entry.action, entry.from,
                           entry.to, entry.note);
    }
    return story;
  }
  ::testing::AssertionResult Becomes(const std::string& id, SagaState state) {
    if (Eventually([&] { return StateOf(id) == state; })) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "it is not " << Name(state) << ": " << Story(id);
  }
  ::testing::AssertionResult StepBecomes(const std::string& id, const std::string& name,
                                         StepState state) {
    if (Eventually([&] { return StepOf(id, name).state == state; })) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << name << " is not " << Name(state) << ": " << Story(id);
  }
  Order By(const std::string& id) { return {.id = id, .actor = "bob", .note = "why"}; }
  bool Signal(const std::string& id, const std::string& step, bool succeeded = true,
              const Json& result = Json()) {
    const auto taken = SignalSaga(*connection_, id, step, succeeded, result);
    EXPECT_TRUE(taken.ok()) << taken.status();
    return taken.value_or(false);
  }
  std::string Ledger() {
    return std::string(
        db_.Query("SELECT coalesce(string_agg(what, ' ' ORDER BY n), '') FROM shop.ledger")
            .Text(0, 0));
  }
  // What the participant was asked, in order: the paths.
  std::string Asked() {
    std::string paths;
    for (const auto& seen : participant_.seen()) {
      paths += (paths.empty() ? "" : " ") + seen.path.substr(1);
    }
    return paths;
  }
  // The participant's next answers to a path; then 200 with {"id": "<path>"}.
  void Tell(const std::string& path, std::vector<std::string> answers) {
    const std::scoped_lock lock(mu_);
    for (std::string& answer : answers) answers_["/" + path].push_back(std::move(answer));
  }
  // As if every lease had ended.
  void EndLeases() {
    db_.Run("UPDATE lockstep.saga_work SET run_at = now() WHERE token IS NOT NULL");
  }

  TestDatabase db_;
  const std::unique_ptr<postgres::Connection> connection_ = db_.Connect();
  int version_ = 0;
  std::mutex mu_;
  std::map<std::string, std::vector<std::string>> answers_;
  HttpTestServer participant_{[this](const HttpTestServer::Seen& seen) -> std::string {
    const std::scoped_lock lock(mu_);
    auto& answers = answers_[seen.path];
    if (answers.empty()) {
      return HttpTestServer::Ok(fmt::format(R"({{"id": "{}"}})", seen.path.substr(1)));
    }
    std::string answer = answers.front();
    answers.erase(answers.begin());
    return answer;
  }};
  struct Events : EngineEvents {
    void OnLost(const std::string&) override { ++lost; }
    void OnDatabase(const absl::Status& status) override {
      faults += status.ok() ? 0 : 1;
      faulty = !status.ok();
    }
    std::atomic<int> lost = 0, faults = 0;
    std::atomic<bool> faulty = false;
  } events_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

// Steps for RegisterSteps.
inline std::string SqlStep(const std::string& name, const std::string& more = "") {
  return fmt::format(
      R"({{"name": "{0}", "action": "sql:shop.note", "request": {{"what": "{0}", "fail": "$.input.{0}?"}},
          "retry": {{"base": "10ms", "cap": "20ms", "max_attempts": 3}},
          "compensate": {{"action": "sql:shop.note", "request": {{"what": "un{0}", "fail": "$.input.un{0}?"}},
                        "retry": {{"base": "10ms", "cap": "20ms", "max_attempts": 3}}}}{1}}})",
      name, more);
}
inline std::string HttpStep(const std::string& name, bool idempotent,
                            const std::string& more = "") {
  return fmt::format(
      R"({{"name": "{0}", "action": "HOST/{0}", "request": {{"saga": "$.saga.id"}}, "idempotent": {1},
          "timeout": "1s", "retry": {{"base": "10ms", "cap": "20ms", "max_attempts": 3}},
          "compensate": {{"action": "HOST/un{0}", "request": {{"of": "$.steps.{0}.id?"}}, "idempotent": true,
                        "timeout": "1s", "retry": {{"base": "10ms", "cap": "20ms", "max_attempts": 3}}}}{2}}})",
      name, idempotent, more);
}
inline std::string BusStep(const std::string& name, const std::string& more = "") {
  return fmt::format(
      R"({{"name": "{0}", "action": "bus:order.{0}.v1", "request": {{"saga": "$.saga.id"}},
          "compensate": {{"action": "bus:order.un{0}.v1", "request": {{"saga": "$.saga.id"}}}}{1}}})",
      name, more);
}
inline std::string WaitStep(const std::string& name, const std::string& more = "") {
  return fmt::format(R"({{"name": "{0}", "action": "wait"{1}}})", name, more);
}

}  // namespace lockstep::sagas::testing
