#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/chaos/system/blow.h"
#include "tests/chaos/system/child.h"

namespace lockstep::chaos {

// The processes of one program: one to three at a time. Of the main thread, which calls Tick often.
class Fleet {
 public:
  // `command.log` gets a number per process.
  Fleet(std::string name, Child::Command command);

  void Start(int count);
  void Kill(uint64_t pick, Millis away);  // comes back after `away`
  void Stop(uint64_t pick, Millis time);  // SIGSTOP
  void Scale(uint64_t pick);              // one more, or one less by SIGTERM
  void End(uint64_t pick, Millis limit);  // by SIGTERM
  void Tick();
  // The attacks are over: whoever stands still goes on, whoever is away comes back.
  void Calm();
  // SIGTERM for all, which must end well.
  void Finish();

  int size() const;
  // What should not have happened: ended by itself, ended badly, did not end.
  const std::vector<std::string>& complaints() const { return complaints_; }
  // Who was killed, stopped or asked to end, and when.
  const std::vector<Blow>& blows() const { return blows_; }

 private:
  struct Member {
    int number = 0;
    std::unique_ptr<Child> child;  // null while it is away
    std::optional<SteadyTime> comes_back;
    std::optional<SteadyTime> goes_on;   // stopped until then
    std::optional<SteadyTime> must_end;  // asked to end
    Millis limit{};                      // … within
    bool up() const { return child != nullptr && !must_end; }
  };

  Member* Pick(uint64_t pick);
  void Launch(Member& member);
  void Hit(const Member& member, Millis lasts, const std::string& what);
  void Complain(const Member& member, const std::string& what);

  const std::string name_;
  const Child::Command command_;
  std::vector<Member> members_;
  int numbers_ = 0;
  std::vector<std::string> complaints_;
  std::vector<Blow> blows_;
};

}  // namespace lockstep::chaos
