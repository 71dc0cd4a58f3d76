#include "tests/chaos/system/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "platform/duration.h"
#include "tests/chaos/system/now.h"

namespace lockstep::chaos {
namespace {

constexpr int kMost = 3;
// A stop takes 10 s at most (docs/runner.md), on a machine that has nothing else to do.
constexpr Millis kStopLimit{25'000};

// A runner that could not finish what it had in hand within its 10 s, because the database was
// away, says so with this status: all right during the storm, not after it.
constexpr int kGaveUp = 3;
// One that was asked before it had begun to listen just ends.
bool EndedWell(int status) { return status == 0 || status == kGaveUp || status == -SIGTERM; }

}  // namespace

Fleet::Fleet(std::string name, Child::Command command)
    : name_(std::move(name)), command_(std::move(command)) {}

void Fleet::Start(int count) {
  for (int i = 0; i < count; ++i) {
    members_.push_back({.number = ++numbers_});
    Launch(members_.back());
  }
}

void Fleet::Launch(Member& member) {
  Child::Command command = command_;
  command.log += fmt::format("{}.log", member.number);
  member.child = std::make_unique<Child>(command);
  member.comes_back.reset();
}

Fleet::Member* Fleet::Pick(uint64_t pick) {
  std::vector<Member*> up;
  for (Member& member : members_) {
    if (member.up()) up.push_back(&member);
  }
  return up.empty() ? nullptr : up[pick % up.size()];
}

int Fleet::size() const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(),
                                        [](const Member& member) { return !member.must_end; }));
}

void Fleet::Kill(uint64_t pick, Millis away) {
  Member* const member = Pick(pick);
  if (member == nullptr) return;
  Hit(*member, Millis(0), "killed");
  member->child.reset();
  member->goes_on.reset();
  member->comes_back = Now() + away;
}

void Fleet::Stop(uint64_t pick, Millis time) {
  Member* const member = Pick(pick);
  if (member == nullptr) return;
  member->child->Signal(SIGSTOP);
  Hit(*member, time, "stopped");
  member->goes_on = Now() + time;
}

void Fleet::Scale(uint64_t pick) {
  const int count = size();
  if (count == 1 || (count < kMost && pick % 2 == 0)) return Start(1);
  End(pick / 2, kStopLimit);
}

void Fleet::End(uint64_t pick, Millis limit) {
  Member* const member = Pick(pick);
  if (member == nullptr) return;
  if (member->goes_on) member->child->Signal(SIGCONT);
  member->goes_on.reset();
  member->child->Signal(SIGTERM);
  Hit(*member, limit, "asked to end");
  member->limit = limit;
  member->must_end = Now() + limit;
}

void Fleet::Hit(const Member& member, Millis lasts, const std::string& what) {
  blows_.push_back({.to = Blow::To::kRunner,
                    .begin = Now(),
                    .end = Now() + lasts,
                    .what = what,
                    .runner = member.child->pid()});
}

void Fleet::Complain(const Member& member, const std::string& what) {
  complaints_.push_back(fmt::format("{} {} {}", name_, member.number, what));
}

void Fleet::Tick() {
  for (Member& member : members_) {
    if (member.comes_back && *member.comes_back <= Now()) Launch(member);
    if (member.goes_on && *member.goes_on <= Now()) {
      member.child->Signal(SIGCONT);
      member.goes_on.reset();
    }
    if (member.child == nullptr) continue;
    const auto ended = member.child->Ended();
    if (member.must_end) {
      if (!ended && *member.must_end > Now()) continue;
      if (!ended) {
        Complain(member,
                 fmt::format("was still there {} after SIGTERM", FormatDuration(member.limit)));
      } else if (!EndedWell(*ended)) {
        Complain(member, fmt::format("answered SIGTERM with status {}", *ended));
      }
      member.child.reset();
    } else if (ended) {
      Complain(member, fmt::format("ended by itself with status {}", *ended));
      member.child.reset();
      member.comes_back = Now() + Millis(500);
    }
  }
  std::erase_if(members_, [](const Member& m) { return m.must_end && m.child == nullptr; });
}

void Fleet::Calm() {
  for (Member& member : members_) {
    if (member.goes_on) member.goes_on = Now();
    if (member.comes_back) member.comes_back = Now();
  }
  Tick();
}

void Fleet::Finish() {
  Calm();
  for (Member& member : members_) {
    if (member.must_end || member.child == nullptr) continue;
    member.child->Signal(SIGTERM);
    member.must_end = Now() + kStopLimit;
  }
  for (Member& member : members_) {
    if (member.child == nullptr) continue;
    const auto status = member.child->WaitFor(kStopLimit);
    if (!status) Complain(member, "was still there 25 s after SIGTERM");
    if (status && *status != 0)
      Complain(member, fmt::format("answered SIGTERM with status {}", *status));
    member.child.reset();
  }
  members_.clear();
}

}  // namespace lockstep::chaos
