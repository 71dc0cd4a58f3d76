#include "pubsub/grpc/receive/stream_keeper.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "platform/log/fault.h"
#include "platform/log/log.h"
#include "platform/status.h"
#include "pubsub/grpc/channel/status.h"

namespace lockstep::pubsub::grpc_client {
namespace {

// A server may say nothing at all until there is a message: a stream that has not failed for so
// long, on a connection that stands, is taken as open.
constexpr Millis kSilence{1'000};
// Headers come ahead of a refusal too: a stream that outlives them by so much is open.
constexpr Millis kAfterHeaders{50};
// A stream that lasted so long, or brought something, was a good one: the next is opened soon.
constexpr Millis kGoodStream{5'000};
constexpr Millis kGrace{1'500};

constexpr RetryPolicy kReconnect = WithoutEnd(Millis(50), Millis(10'000), 0.5);

// Under the id of a stream that broke, the server would take messages that were lost on the way for
// held by us and go on with the next ones of their keys. Under another it waits for their leases.
std::string NewClientId(const std::string& name) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}", name.empty() ? "lockstep" : name, random(), random());
}

}  // namespace

StreamKeeper::StreamKeeper(std::shared_ptr<Client> client, size_t channel,
                           PullStream::Request request, Millis keepalive, Events events)
    : client_(std::move(client)),
      channel_(client_->channel(channel)),
      stub_(channel_),
      request_(std::move(request)),
      events_(std::move(events)),
      keepalive_(
          keepalive, client_->timers, [this] { Ping(); }, [this] { HangUp(); }),
      backoff_(kReconnect),
      reopen_(client_->timers),
      silence_(client_->timers) {}

StreamKeeper::~StreamKeeper() {
  HalfClose();
  AwaitEnd();
}

bool StreamKeeper::Become(State next) {
  if (next != State::kDown && next != State::kEnding) {
    const bool in_order =
        next == State::kOpening ? state_ == State::kDown : state_ != State::kDown && state_ < next;
    if (stopping_ || !in_order) return false;
  }
  state_ = next;
  return true;
}

void StreamKeeper::Open() {
  int ends = 0;
  {
    std::scoped_lock lock(mu_);
    if (!Become(State::kOpening)) return;
    ends = ends_;
    opened_ = std::chrono::steady_clock::now();
    silence_.Set(kSilence, [this] { OnSilence(); });
  }
  keepalive_.Begin();
  PullStream::Request request = request_;
  request.set_client_id(NewClientId(request_.client_id()));
  auto stream = PullStream::Open(
      stub_, request,
      {.on_headers = [this] { OnHeaders(); },
       .on_response = [this](PullStream::Response& response) { OnResponse(response); },
       .may_read = [this](std::function<void()> resume) { return MayRead(std::move(resume)); },
       .on_end = [this](const grpc::Status& status) { OnEnd(status); }});
  bool stopping = false;
  {
    std::scoped_lock lock(mu_);
    if (ends == ends_) stream_ = stream;  // else it has ended already, and the next may be there
    stopping = stopping_;
  }
  if (stopping) stream->HalfClose();
}

bool StreamKeeper::MayRead(std::function<void()> resume) {
  // Nothing is heard while nothing is read: that is not the server's silence.
  keepalive_.Pause();
  const bool may = events_.may_read([this, resume = std::move(resume)] {
    keepalive_.Resume();
    resume();
  });
  if (may) keepalive_.Resume();
  return may;
}

std::shared_ptr<PullStream> StreamKeeper::stream() {
  std::scoped_lock lock(mu_);
  return stream_;
}

void StreamKeeper::Ping() {
  if (const auto present = stream(); present != nullptr) present->Ping();
}

void StreamKeeper::HangUp() {
  log::Fault("the server answers no more: the stream is opened anew",
             {{"subscription", request_.subscription()}});
  if (const auto present = stream(); present != nullptr) present->Cancel();
}

void StreamKeeper::OnHeaders() {
  std::scoped_lock lock(mu_);
  if (Become(State::kHeaders)) silence_.Set(kAfterHeaders, [this] { OnOpen(); });
}

void StreamKeeper::OnSilence() {
  // On the way to a server that can't be reached nothing is heard either.
  if (channel_->GetState(false) != GRPC_CHANNEL_READY) {
    std::scoped_lock lock(mu_);
    if (state_ != State::kOpening || stopping_) return;  // with the headers comes another timer
    silence_.Set(kSilence, [this] { OnSilence(); });
    return;
  }
  OnOpen();
}

void StreamKeeper::OnOpen() {
  {
    std::scoped_lock lock(mu_);
    if (!Become(State::kUp)) return;
  }
  events_.on_state(absl::OkStatus());
}

void StreamKeeper::OnResponse(PullStream::Response& response) {
  if (!response.deliveries.empty()) {
    std::scoped_lock lock(mu_);
    backoff_.Reset();
  }
  keepalive_.OnResponse(!response.deliveries.empty());
  OnOpen();
  events_.on_response(response);
}

void StreamKeeper::OnEnd(const grpc::Status& status) {
  bool stopping = false;
  Millis delay{0};
  {
    std::scoped_lock lock(mu_);
    Become(State::kEnding);
    stream_ = nullptr;
    ++ends_;
    stopping = stopping_;
    const auto lasted = std::chrono::steady_clock::now() - opened_;
    if (lasted >= kGoodStream) backoff_.Reset();
    delay = backoff_.Next();
  }
  silence_.Cancel();
  keepalive_.End();
  if (!stopping) {
    const absl::Status why = status.ok() ? Unavailable("the server closed the stream")
                                         : FromGrpc(status, client_->address);
    log::Debug("stream ended", {{"subscription", request_.subscription()},
                                {"code", absl::StatusCodeToString(why.code())},
                                {"error", why}});
    events_.on_state(why);
  }
  std::scoped_lock lock(mu_);
  Become(State::kDown);
  if (!stopping_) reopen_.Set(delay, [this] { Open(); });
  // Under the lock: the waiter may destroy this object as soon as it gets the lock.
  ended_.notify_all();
}

void StreamKeeper::HalfClose() {
  std::shared_ptr<PullStream> stream;
  {
    std::scoped_lock lock(mu_);
    stopping_ = true;
    stream = stream_;
  }
  reopen_.Cancel();
  if (stream != nullptr) stream->HalfClose();
}

void StreamKeeper::AwaitEnd() {
  std::unique_lock lock(mu_);
  if (ended_.wait_for(lock, kGrace, [this] { return state_ == State::kDown; })) return;
  const std::shared_ptr<PullStream> stream = stream_;
  lock.unlock();
  if (stream != nullptr) stream->Cancel();
  lock.lock();
  ended_.wait(lock, [this] { return state_ == State::kDown; });
}

}  // namespace lockstep::pubsub::grpc_client
