#include "sagas/engine/function_pool.h"

#include <exception>
#include <utility>

#include "platform/status.h"
#include "sagas/engine/decide.h"

namespace lockstep::sagas {
namespace {

Outcome OutcomeOf(const absl::StatusOr<Json>& answer) {
  if (answer.ok()) return Outcome::Done(KeptResult(*answer));
  const std::string words(MessageOf(answer.status()));
  if (absl::IsInvalidArgument(answer.status()) || absl::IsFailedPrecondition(answer.status())) {
    return Outcome::Refused(kRefusedCode, words);
  }
  const bool away = absl::IsUnavailable(answer.status());
  const bool late = absl::IsDeadlineExceeded(answer.status());
  return {.kind = Outcome::Kind::kFailed,
          .code = away ? kUnavailableCode : (late ? kTimeoutCode : kInternalCode),
          .words = words,
          .certain = away};
}

}  // namespace

void FunctionPool::Start() {
  if (functions_.empty()) return;
  const std::scoped_lock lock(mu_);
  for (int i = 0; i < most_; ++i) {
    threads_.emplace_back([this](const std::stop_token& end) { Work(end); });
  }
}

void FunctionPool::Stop() {
  std::vector<std::jthread> threads;
  {
    const std::scoped_lock lock(mu_);
    threads.swap(threads_);
    tasks_.clear();
  }
  for (std::jthread& thread : threads) thread.request_stop();
}

void FunctionPool::Run(const std::string& name, StepCall call, std::stop_token stop, Done done) {
  {
    const std::scoped_lock lock(mu_);
    tasks_.push_back({&functions_.at(name), std::move(call), std::move(stop), std::move(done)});
  }
  changed_.notify_one();
}

void FunctionPool::Work(const std::stop_token& end) {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mu_);
      if (!changed_.wait(lock, end, [this] { return !tasks_.empty(); })) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (task.stop.stop_requested()) {  // nobody waits for it, but it had a place
      task.done({.kind = Outcome::Kind::kLater, .code = kInternalCode, .words = "it was left"});
      continue;
    }
    // The end of the engine stops it too.
    std::stop_source source;
    const std::stop_callback left(task.stop, [&source] { source.request_stop(); });
    const std::stop_callback ended(end, [&source] { source.request_stop(); });
    absl::StatusOr<Json> answer = absl::UnknownError("");
    try {
      answer = (*task.function)(task.call, source.get_token());
    } catch (const std::exception& error) {
      answer = Internal("the function threw: {}", error.what());
    } catch (...) {
      answer = absl::InternalError("the function threw something that is no std::exception");
    }
    task.done(OutcomeOf(answer));
  }
}

}  // namespace lockstep::sagas
