#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/chaos/system/world.h"

namespace lockstep::chaos {

// Backfills of the source's table, one after the other, as an operator has them: started, paused,
// resumed, also when one has failed. Each has a number, which is the schema version of its
// messages. Of the main thread.
class Adoption {
 public:
  explicit Adoption(World& world) : world_(world) {}

  void Tick();
  void Pause(Millis time);  // the one under way
  // No other begins. Once it has ended, one more from the first row to the last is started and
  // waited for.
  void Finish(Millis limit);

  const std::set<int>& done() const { return done_; }
  int paused() const { return paused_; }
  int failed() const { return failed_; }
  bool finished() const { return finished_; }  // that last one was done

 private:
  void Look();
  void Do(std::vector<std::string> arguments);

  World& world_;
  std::unique_ptr<Child> command_;
  SteadyTime limit_;      // of the command
  SteadyTime next_look_;  // at the backfill's state
  SteadyTime pause_until_;
  bool pause_wanted_ = false;
  bool last_ = false;  // no other begins
  bool ended_ = true;  // the newest has
  bool finished_ = false;
  int started_ = 0;  // the newest's number
  int paused_ = 0, failed_ = 0;
  std::set<int> done_;  // numbers
};

// `lockstepctl verify --deep`, again and again, of groups that nobody resets; and what the runners
// find who compare by themselves. A row that is said to differ is a false alarm, unless the replica
// was set back meanwhile by a failover: then it may be so. Of the main thread.
class Inspector {
 public:
  explicit Inspector(World& world) : world_(world) {}

  // Begins the next, unless one is under way. REQUIRES: a backfill has come to its end.
  void Begin();
  void Tick();
  // Waits for the one under way, and reads the runners' logs.
  void Finish();

  int equal() const { return equal_; }
  int untold() const { return untold_; }
  int excused() const { return excused_; }
  int by_runners() const { return by_runners_; }  // tables compared in full
  const std::vector<std::string>& alarms() const { return alarms_; }

 private:
  void End(int status);
  void NoteFailover();
  void ReadRunnersLog(const std::string& file);

  World& world_;
  std::unique_ptr<Child> command_;
  SteadyTime limit_, next_;
  std::string log_;
  int number_ = 0;
  std::optional<WallTime> first_;  // when the first began: the backfill was done
  std::vector<WallTime> failing_;  // times at which a failover was under way
  size_t failing_before_ = 0;      // so many when the command began
  int equal_ = 0, untold_ = 0, excused_ = 0, by_runners_ = 0;
  std::vector<std::string> alarms_;
};

}  // namespace lockstep::chaos
