// Streams against servers that misbehave.
#include "pubsub/grpc/receive/stream_keeper.h"

#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>

#include "pubsub/grpc/channel/channel.h"

namespace lockstep::pubsub::grpc_client {
namespace {

// Answers every stream with a response that is none, and then says nothing.
class GarbageServer : public grpc::CallbackGenericService {
 public:
  GarbageServer() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  const std::string& address() const { return address_; }

 private:
  class Stream : public grpc::ServerGenericBidiReactor {
   public:
    Stream() : garbage_(&slice_, 1) { StartWrite(&garbage_); }
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    const grpc::Slice slice_{"\x0a\xff"};  // a message that is longer than the rest
    grpc::ByteBuffer garbage_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Stream;
  }

  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

// Accepts connections, as the kernel does for it, and never says a word.
class SilentServer {
 public:
  SilentServer() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    const bool listens = bind(socket_, generic, size) == 0 && listen(socket_, 10) == 0 &&
                         getsockname(socket_, generic, &size) == 0;
    EXPECT_TRUE(listens);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~SilentServer() { close(socket_); }
  const std::string& address() const { return address_; }

 private:
  const int socket_;
  std::string address_;
};

// Opens a stream and hears what is told of it.
class Listener {
 public:
  explicit Listener(const std::string& address) {
    TransportOptions options;
    options.emulator_host = address;
    keeper_.emplace(
        *Connect(options), 0, PullStream::Request(), Millis(0),
        StreamKeeper::Events{.on_response = [](PullStream::Response&) {},
                             .may_read = [](const std::function<void()>&) { return true; },
                             .on_state = [this](const absl::Status& state) { Hear(state); }});
    keeper_->Start();
  }
  // The first time that it says OK, or that it says why not.
  std::optional<absl::Status> Await(bool ok, Millis at_most) {
    std::unique_lock lock(mu_);
    std::optional<absl::Status>& state = ok ? open_ : failure_;
    heard_.wait_for(lock, at_most, [&] { return state.has_value(); });
    return state;
  }

 private:
  void Hear(const absl::Status& state) {
    std::scoped_lock lock(mu_);
    std::optional<absl::Status>& first = state.ok() ? open_ : failure_;
    if (!first) first = state;
    heard_.notify_all();
  }

  std::mutex mu_;
  std::condition_variable heard_;
  std::optional<absl::Status> open_;
  std::optional<absl::Status> failure_;
  std::optional<StreamKeeper> keeper_;
};

TEST(StreamKeeper, EndsAStreamWhoseResponseCannotBeRead) {
  GarbageServer server;
  Listener listener(server.address());
  const auto failure = listener.Await(false, Millis(20'000));
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code(), absl::StatusCode::kInternal) << *failure;
}

TEST(StreamKeeper, SilenceIsNoStreamWhileThereIsNoConnection) {
  SilentServer server;
  Listener listener(server.address());
  EXPECT_FALSE(listener.Await(true, Millis(1'500)).has_value());  // silence counts after a second
}

}  // namespace
}  // namespace lockstep::pubsub::grpc_client
