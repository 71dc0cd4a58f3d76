// An engine ends at each boundary between two statements or calls; another goes on. Whatever it had
// come to, each step is done once (a call that may be repeated, perhaps twice), and undone in
// reverse order.
#include "sagas/testing/engine_test.h"

namespace lockstep::sagas {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the fixture's words

// Ends an engine at the n-th place that it comes to; or never.
class CrashAt {
 public:
  explicit CrashAt(int n) : left_(n) {}
  std::function<void(std::string_view)> seam() {
    return [this](std::string_view place) {
      if (--left_ != 0) return;
      {
        const std::scoped_lock lock(mu_);
        place_ = place;
      }
      throw SeamCrash();
    };
  }
  std::string place() {
    const std::scoped_lock lock(mu_);
    return place_;
  }

 private:
  std::atomic<int> left_;
  std::mutex mu_;
  std::string place_;
};

class Crash : public EngineTest {
 protected:
  Crash() {
    RegisterSteps(SqlStep("reserve") + "," + HttpStep("charge", false) + "," +
                  HttpStep("pack", true) + "," + BusStep("announce") + "," + WaitStep("approve") +
                  "," + SqlStep("ship"));
  }
  EngineOptions Quiet() {
    EngineOptions options = Options();
    options.heartbeat = Millis(60'000);  // no renewal between the places that are counted
    options.lease = Millis(120'000);
    return options;
  }
  int Count(const std::string& path, const std::string& saga) {
    int count = 0;
    for (const auto& seen : participant_.seen()) {
      if (seen.path == "/" + path && seen.headers.at("lockstep-saga") == saga) ++count;
    }
    return count;
  }
  int Noted(const std::string& what) {
    return static_cast<int>(
        db_.QueryInt("SELECT count(*) FROM shop.ledger WHERE what = '" + what + "'"));
  }
  int Sent(const std::string& topic, const std::string& saga) {
    return static_cast<int>(db_.QueryInt("SELECT count(*) FROM shop.outbox WHERE topic = 'order." +
                                         topic + ".v1' AND aggregate_id = '" + saga + "'"));
  }
  // What a person does where one is needed.
  void Help(const std::string& id) {
    const StoredSaga saga = Show(id);
    if (saga.state == SagaState::kPaused) {
      for (const StoredStep& step : saga.steps) {
        if (!step.in_doubt || step.signal) continue;
        EXPECT_EQ(step.name, "charge") << "nothing else leaves a doubt";
        // The call was made, or the engine ended just before.
        if (Count("charge", id) > 0) {
          Signal(id, step.name, true, {{"id", "charge"}});
        } else {
          EXPECT_TRUE(RetryStep(*connection_, By(id), step.name).ok());
        }
      }
    }
    const StoredStep approve = StepOf(id, "approve");
    if (approve.state == StepState::kInFlight && !approve.signal) Signal(id, "approve");
  }
  // One saga from its start to its end, with a crash at the n-th place. False = there is none.
  bool CrashesAt(int n, const Json& input, SagaState end) {
    db_.Run("TRUNCATE shop.ledger");
    const std::string id = Start(input);
    CrashAt crash(n);
    EngineOptions options = Quiet();
    options.seam = crash.seam();
    Engine& engine = Run(options);
    EXPECT_TRUE(Eventually([&] {
      Help(id);
      return engine.crashed() || Show(id).ended();
    })) << Story(id);
    const bool crashed = engine.crashed();
    SCOPED_TRACE(fmt::format("place {}: {}", n, crash.place()));
    engines_.clear();
    if (crashed) {
      EndLeases();
      Run(Quiet());
      EXPECT_TRUE(Eventually([&] {
        Help(id);
        return Show(id).ended();
      })) << Story(id);
      engines_.clear();
    }
    EXPECT_EQ(StateOf(id), end) << Story(id);
    CheckEffects(id, end == SagaState::kCompleted);
    return crashed;
  }
  void CheckEffects(const std::string& id, bool forward) {
    EXPECT_EQ(Noted("reserve"), 1);
    EXPECT_EQ(Noted("ship"), forward ? 1 : 0);
    EXPECT_EQ(Noted("unreserve"), forward ? 0 : 1);
    EXPECT_EQ(Sent("announce", id), 1);
    EXPECT_EQ(Sent("unannounce", id), forward ? 0 : 1);
    EXPECT_LE(Count("charge", id), 1) << "done twice";
    EXPECT_GE(Count("pack", id), 1);
    EXPECT_LE(Count("pack", id), 2);
    if (forward) {
      EXPECT_EQ(Count("charge", id), 1);
      EXPECT_EQ(Count("uncharge", id) + Count("unpack", id), 0);
      return;
    }
    EXPECT_EQ(Count("uncharge", id) > 0, Count("charge", id) > 0);
    EXPECT_GE(Count("unpack", id), 1);
    std::string order;
    for (const auto& seen : participant_.seen()) {
      if (seen.headers.at("lockstep-saga") == id && seen.path.starts_with("/un"))
        order += seen.path;
    }
    EXPECT_EQ(order.rfind("/unpack") < order.find("/uncharge"), true) << order;
    EXPECT_EQ(db_.QueryInt("SELECT count(*) FROM lockstep.saga_work"), 0);
  }
};

TEST_F(Crash, AtEveryBoundaryForwards) {
  int places = 0;
  while (places < 200 && CrashesAt(places + 1, Json::object(), SagaState::kCompleted)) ++places;
  EXPECT_GT(places, 25) << "the saga has more boundaries than that";
  EXPECT_LT(places, 200);
}

TEST_F(Crash, AtEveryBoundaryOfTheWayThereAndBack) {
  int places = 0;
  while (places < 200 && CrashesAt(places + 1, {{"ship", "refuse"}}, SagaState::kFailed)) ++places;
  EXPECT_GT(places, 45) << "the saga has more boundaries than that";
  EXPECT_LT(places, 200);
}

}  // namespace
}  // namespace lockstep::sagas
