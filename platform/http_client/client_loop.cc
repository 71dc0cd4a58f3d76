#include "platform/http_client/client_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <new>
#include <utility>

#include "platform/log/log.h"
#include "platform/status.h"

namespace lockstep::http {
namespace {

constexpr int kEventsAtOnce = 256;
constexpr int kLongestRestMs = 60'000;
constexpr size_t kOriginsKept = 256;

thread_local const void* running_here = nullptr;  // the loop of this thread

CURLM* NewMulti() {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  CURLM* const multi = initialised == CURLE_OK ? curl_multi_init() : nullptr;
  if (multi == nullptr) throw std::bad_alloc();
  return multi;
}

// STYLE: what others run on our thread must not end it.
void Tell(const Client::Done& done, absl::StatusOr<Answer> answer) {
  try {
    done(std::move(answer));
  } catch (const std::exception& thrown) {
    log::Error("whoever waited for an HTTP answer threw an exception", {{"error", thrown.what()}});
  }
}

}  // namespace

Client::Loop::Loop(ClientOptions options)
    : multi_(NewMulti()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      limits_(options) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &Loop::OnSocket);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &Loop::OnTimer);
  curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
  SetLimits(options);
  thread_ = std::thread([this] { Run(); });
}

Client::Loop::~Loop() {
  Stop();
  transfers_.clear();
  curl_multi_cleanup(multi_);
  close(wake_);
  close(epoll_);
}

void Client::Loop::Send(Request request, Done done) {
  if (request.settings == nullptr) request.settings = defaults_;
  bool first = false;
  {
    const std::scoped_lock lock(mu_);
    if (!stopped_) {
      first = sent_.empty();
      sent_.push_back({std::move(request), std::move(done)});
      done = nullptr;
    }
  }
  if (done != nullptr) {
    Tell(done, absl::CancelledError("the HTTP client has been stopped"));
  } else if (first && running_here != this) {
    Wake();
  }
}

void Client::Loop::SetLimits(ClientOptions options) {
  options.max_requests = std::max(1, options.max_requests);
  options.max_requests_per_origin = std::max(1, options.max_requests_per_origin);
  {
    const std::scoped_lock lock(mu_);
    new_limits_ = options;
  }
  Wake();
}

void Client::Loop::Stop() {
  {
    const std::scoped_lock lock(mu_);
    stopped_ = true;
  }
  Wake();
  const std::scoped_lock lock(join_mu_);
  if (thread_.joinable()) thread_.join();
}

void Client::Loop::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

int Client::Loop::OnSocket(CURL*, curl_socket_t socket, int what, void* self, void* known) {
  Loop& loop = *static_cast<Loop*>(self);
  if (what == CURL_POLL_REMOVE) {
    epoll_ctl(loop.epoll_, EPOLL_CTL_DEL, socket, nullptr);
    return 0;
  }
  epoll_event event{.events = 0, .data = {.fd = socket}};
  if ((what & CURL_POLL_IN) != 0) event.events |= EPOLLIN;
  if ((what & CURL_POLL_OUT) != 0) event.events |= EPOLLOUT;
  epoll_ctl(loop.epoll_, known == nullptr ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event);
  curl_multi_assign(loop.multi_, socket, &loop);  // known from now on
  return 0;
}

int Client::Loop::OnTimer(CURLM*, long timeout_ms, void* self) {  // NOLINT(google-runtime-int)
  Loop& loop = *static_cast<Loop*>(self);
  loop.timer_.reset();
  if (timeout_ms >= 0) loop.timer_ = std::chrono::steady_clock::now() + Millis(timeout_ms);
  return 0;
}

void Client::Loop::Run() {
  running_here = this;
  // A connection that its peer has closed is an error of that request, not the process's end.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  while (Take()) {
    // What is answered at once, or can't be sent, makes room for others.
    do {
      Begin();
      FireTimer();
    } while (Collect());
    WaitAndWork();
    Collect();
  }
  CancelAll();
}

bool Client::Loop::Take() {
  std::vector<Waiting> sent;
  std::optional<ClientOptions> fresh;
  bool go_on = true;
  {
    const std::scoped_lock lock(mu_);
    sent.swap(sent_);
    fresh.swap(new_limits_);
    go_on = !stopped_;
  }
  if (fresh.has_value()) {
    limits_ = *fresh;
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(limits_.max_requests));
  }
  if (origins_.size() > kOriginsKept) {
    std::erase_if(origins_, [](const auto& entry) {
      return entry.second.under_way == 0 && entry.second.waiting.empty();
    });
  }
  for (Waiting& waiting : sent) {
    origins_[waiting.request.url.origin].waiting.push_back(std::move(waiting));
    ++waiting_;
  }
  return go_on;
}

// Those that have their turn; origins in turns, so that none that hangs keeps the others waiting
// longer than its share.
void Client::Loop::Begin() {
  bool any = true;
  while (any && waiting_ > 0 && under_way_ < limits_.max_requests) {
    any = false;
    auto origin = origins_.upper_bound(last_);
    for (size_t i = origins_.size(); i > 0 && under_way_ < limits_.max_requests; --i) {
      if (origin == origins_.end()) origin = origins_.begin();
      any = BeginOne(origin) || any;
      ++origin;
    }
  }
}

bool Client::Loop::BeginOne(Origins::iterator origin) {
  auto& [name, state] = *origin;
  if (state.waiting.empty() || state.under_way >= limits_.max_requests_per_origin) return false;
  Waiting next = std::move(state.waiting.front());
  state.waiting.pop_front();
  --waiting_;
  last_ = name;
  if (idle_.empty()) idle_.push_back(&transfers_.emplace_back());
  Transfer& transfer = *idle_.back();
  idle_.pop_back();
  ++state.under_way;
  ++under_way_;
  const absl::Status prepared = transfer.Prepare(std::move(next.request), std::move(next.done));
  if (!prepared.ok()) {
    End(transfer, prepared);
  } else if (curl_multi_add_handle(multi_, transfer.easy()) != CURLM_OK) {
    End(transfer, absl::UnavailableError("the HTTP client is out of memory"));
  }
  return true;
}

void Client::Loop::FireTimer() {
  if (!timer_.has_value() || *timer_ > std::chrono::steady_clock::now()) return;
  timer_.reset();
  int running = 0;
  curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running);
}

void Client::Loop::WaitAndWork() {
  int running = 0;
  int rest = kLongestRestMs;
  if (timer_.has_value()) {
    const auto left = std::chrono::ceil<Millis>(*timer_ - std::chrono::steady_clock::now());
    rest = static_cast<int>(std::clamp<int64_t>(left.count(), 0, rest));
  }
  {
    const std::scoped_lock lock(mu_);
    if (!sent_.empty() || stopped_) rest = 0;
  }
  std::array<epoll_event, kEventsAtOnce> events;
  const int count = epoll_wait(epoll_, events.data(), kEventsAtOnce, rest);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.fd == wake_) {
      uint64_t wakes = 0;
      [[maybe_unused]] const ssize_t got = read(wake_, &wakes, sizeof(wakes));
      continue;
    }
    int flags = 0;
    if ((event.events & EPOLLIN) != 0) flags |= CURL_CSELECT_IN;
    if ((event.events & EPOLLOUT) != 0) flags |= CURL_CSELECT_OUT;
    if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) flags |= CURL_CSELECT_ERR;
    curl_multi_socket_action(multi_, event.data.fd, flags, &running);
  }
  FireTimer();
}

bool Client::Loop::Collect() {
  bool any = false;
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Transfer& transfer = Transfer::Of(message->easy_handle);
    const CURLcode code = message->data.result;  // before it is removed, which frees the message
    curl_multi_remove_handle(multi_, transfer.easy());
    End(transfer, transfer.Result(code));
    any = true;
  }
  return any;
}

void Client::Loop::End(Transfer& transfer, absl::StatusOr<Answer> answer) {
  const auto origin = origins_.find(transfer.origin());
  --under_way_;
  --origin->second.under_way;
  const Done done = transfer.Finish();
  idle_.push_back(&transfer);
  Tell(done, std::move(answer));
}

void Client::Loop::CancelAll() {
  const absl::Status cancelled = absl::CancelledError("the HTTP client is being stopped");
  for (Transfer& transfer : transfers_) {
    if (std::ranges::find(idle_, &transfer) != idle_.end()) continue;
    curl_multi_remove_handle(multi_, transfer.easy());
    Tell(transfer.Finish(), cancelled);
  }
  for (auto& [name, origin] : origins_) {
    for (Waiting& waiting : origin.waiting) Tell(waiting.done, cancelled);
  }
  origins_.clear();
}

}  // namespace lockstep::http
