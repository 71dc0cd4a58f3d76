// What the runbook says to type can be typed, and its SQL runs.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "tests/observability/pair.h"

namespace lockstep::observability {
namespace {

// The blocks of one language in docs/runbook.md.
std::vector<std::string> Blocks(const std::string& language) {
  const std::string text = ReadFile(LOCKSTEP_SOURCE "/docs/runbook.md");
  std::vector<std::string> blocks;
  const std::string open = "```" + language + "\n";
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1)) {
    const size_t begin = at + open.size();
    blocks.push_back(text.substr(begin, text.find("```", begin) - begin));
  }
  return blocks;
}

class RunbookTest : public ::testing::Test {
 protected:
  // Two dead letters, a parked key, two dead rows, a backfill that has failed.
  void SetUp() override {
    pair_.StartPublisher();
    pair_.StartRunner();
    for (int video : {1, 2}) pair_.Enqueue(video, 1);
    for (int video : {1, 2}) {
      pair_.EnqueueRaw(video, 2, "video.events.VideoUpdated", R"({"video_id":"no uuid"})");
      pair_.Enqueue(video, 3);
    }
    for (const char* key : {"x", "y"}) {
      pair_.source.Run(std::string("BEGIN; SELECT lockstep.enqueue('catalog.video_outbox', "
                                   "'catalog.video.changed.v1', 'video', '") +
                       key +
                       "', 't', 1, ''); UPDATE catalog.video_outbox SET attributes = (SELECT "
                       "jsonb_object_agg('a' || i, 'b') FROM generate_series(1, 101) i) WHERE "
                       "aggregate_id = '" +
                       key + "'; COMMIT");
    }
    ASSERT_TRUE(pair_.Await(
        [&] {
          return pair_.feed.QueryInt("SELECT count(*) FROM feed_state.parked") == 2 &&
                 Dead("count(*)") == "2";
        },
        "the troubles"));
    pair_.source.Run(
        "INSERT INTO lockstep.backfills (outbox, name, declaration, created_by, state, last_error) "
        "VALUES ('catalog.video_outbox', 'videos', '{}', 'test', 'failed', 'row 321 has no "
        "version')");
    const std::string file = pair_.directory + "/order.yaml";
    WriteFile(file,
              "saga: order\nversion: 1\nsteps: [{name: charge, action: 'http://127.0.0.1:1/'}]\n");
    for (std::vector<std::string> command : std::vector<std::vector<std::string>>{
             {"migrate", "up", "--set", "saga"}, {"saga", "register", file}}) {
      command.insert(command.begin(), {"--database", pair_.source.url()});
      const Ran ran = pair_.Ctl(command);
      ASSERT_EQ(ran.status, 0) << ran.output;
    }
    pair_.feed.Run("UPDATE feed_state.dead_letters SET payload = convert_to('{\"video_id\":\"" +
                   Pair::VideoId(1) + "\",\"title\":\"cured\"}', 'UTF8') WHERE id = 1");
  }
  // A new saga in the source's database that is what the command is for: dead, paused by somebody,
  // or paused for its step is in doubt.
  std::string SagaFor(const std::string& command) {
    const std::string id(
        pair_.source.Query("SELECT lockstep.saga_start('order', '{}')::text").Text(0, 0));
    const auto call = [&](const std::string& function) {
      pair_.source.Query("SELECT lockstep." + With(function, "$id", "'" + id + "'"));
    };
    if (command.find(" dead ") != std::string::npos) {
      call("saga_save($id, 'Failed', 'step charge failed', 'no', 'SAGA.STEP_REFUSED', 0, true)");
    } else if (command.find(" resume ") != std::string::npos) {
      call("saga_pause($id, 'ann')");
    } else {
      call(
          "saga_save_step($id, 0, 'Ready', 'InFlight', false, 1, 0, NULL, NULL, true, false, "
          "'lost', "
          "'SAGA.IN_DOUBT', NULL)");
      call("saga_save($id, 'Paused', 'step charge is in doubt', NULL, NULL, NULL, false)");
    }
    return id;
  }
  std::string Dead(const std::string& what) {
    return std::string(
        pair_.source
            .Query("SELECT " + what +
                   "::text FROM catalog.video_outbox_status WHERE dead_at IS NOT NULL")
            .Text(0, 0));
  }
  static std::string With(std::string text, const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    return text;
  }

  Pair pair_;
};

TEST_F(RunbookTest, ItsCommandsCanBeTyped) {
  const std::string event = Dead("min(event_id::text)");
  int typed = 0;
  for (const std::string& block : Blocks("sh")) {
    std::istringstream lines(block);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("lockstepctl")) continue;
      line = line.substr(0, line.find("  #"));
      line = With(line, " --watch", "");
      // Before the addresses come in: a port or a database can have a 41, too.
      line = With(line, "discard 41", "discard 2");
      line = With(line, "41", "1");
      line = With(line, "<source>", "'" + pair_.source.url() + "'");
      line = With(line, "<event_id>", event);
      line = With(line, "<backfill>", "videos");
      if (line.find("<saga>") != std::string::npos) line = With(line, "<saga>", SagaFor(line));
      line = With(line, "catalog.yaml", LOCKSTEP_BUILD "/examples/catalog/catalog.yaml");
      const bool outbox = std::regex_search(line, std::regex(" (outbox|backfill|saga) "));
      const bool changes =
          std::regex_search(line, std::regex(" (quarantine|saga retry|saga skip) "));
      const Ran ran = pair_.Type("cd " + pair_.directory + " && export LOCKSTEP_DATABASE='" +
                                 (outbox ? pair_.source.url() : pair_.feed.url()) + "' && " + line +
                                 (changes ? " --yes" : ""));
      EXPECT_EQ(ran.status, 0) << line << "\n" << ran.output;
      ++typed;
    }
  }
  EXPECT_GE(typed, 12);
}

TEST_F(RunbookTest, ItsSqlRuns) {
  int ran = 0;
  for (const std::string& block : Blocks("sql")) {
    std::string sql = With(block, "<pid>", "0");
    sql = With(sql, "<sequence>", Dead("min(sequence)"));
    const bool source = sql.find("video_outbox") != std::string::npos ||
                        sql.find("lockstep.saga") != std::string::npos;
    (source ? pair_.source : pair_.feed).Run(sql);
    ++ran;
  }
  EXPECT_GE(ran, 6);
  EXPECT_EQ(pair_.source.QueryInt(
                "SELECT count(*) FROM lockstep.outbox_audit WHERE action LIKE '%replay%'"),
            1)
      << "the row that was replayed by plain SQL";
}

}  // namespace
}  // namespace lockstep::observability
