#include "emulator/service/server.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <utility>

#include "emulator/service/pubsub_service.h"
#include "emulator/store/state_store.h"
#include "platform/status.h"

namespace lockstep::emulator {
namespace {

// Above Pub/Sub's own limit of 10 MiB, so that we answer what exceeds it, and not gRPC.
constexpr int kMaxRequestBytes = 24 << 20;

absl::StatusOr<std::unique_ptr<StateStore>> OpenStore(const std::string& directory) {
  if (directory.empty()) return nullptr;
  return StateStore::Open(directory);
}

}  // namespace

// The wiring: the service over the broker, beside it time and faults.
struct Server::Parts {
  explicit Parts(const Options& options)
      : store(OpenStore(options.state)),
        faults(options.faults),
        timekeeper(*options.clock),
        schemas(*options.clock),
        broker(&timekeeper, &schemas, store.ok() ? store->get() : nullptr),
        service(NewPubsubService(&broker, &schemas, &faults, &timekeeper)) {
    faults.OnThaw([this] { broker.WakeAll(); });
  }

  // What the state's directory holds, before the first call.
  absl::Status Restore() {
    RETURN_IF_ERROR(store.status());
    if (*store == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR((*store)->Tidy(timekeeper.clock().Now()));
    ASSIGN_OR_RETURN(SavedState saved, (*store)->Load());
    RETURN_IF_ERROR(schemas.Restore(saved.schemas));
    RETURN_IF_ERROR(broker.Restore(std::move(saved)));
    schemas.KeepWith([this](const std::string& name, const std::vector<pb::Schema>& revisions) {
      return (*store)->SaveSchema(name, revisions);
    });
    TidyEveryMinute();
    return absl::OkStatus();
  }
  void TidyEveryMinute() {
    const Clock& clock = timekeeper.clock();
    timekeeper.At(clock.Steady() + std::chrono::minutes(1), [this, &clock] {
      (void)(*store)->Tidy(clock.Now());  // the next one, or the next write, finds the same fault
      TidyEveryMinute();
    });
  }

  const absl::StatusOr<std::unique_ptr<StateStore>> store;  // null = in memory alone
  Faults faults;
  Timekeeper timekeeper;
  SchemaRegistry schemas;
  Broker broker;
  const std::unique_ptr<grpc::Service> service;
  std::mutex mu;
  std::unique_ptr<grpc::Server> grpc;
  bool started = false;  // or stopped
};

Server::Server(Options options)
    : options_(std::move(options)), parts_(std::make_unique<Parts>(options_)) {}

Server::~Server() { Stop(); }

Faults& Server::faults() { return parts_->faults; }

absl::Status Server::Start() {
  RETURN_IF_ERROR(options_.faults.Validate());
  if (options_.port < 0 || options_.port > 65535) {
    return InvalidArgument("There is no port {}.", options_.port);
  }
  std::scoped_lock lock(parts_->mu);
  if (parts_->started) return FailedPrecondition("it was started or stopped before");
  parts_->started = true;
  RETURN_IF_ERROR(parts_->Restore());
  const bool is_ipv6 = options_.host.find(':') != std::string::npos && options_.host.front() != '[';
  const std::string host = is_ipv6 ? "[" + options_.host + "]" : options_.host;
  const std::string wanted = fmt::format("{}:{}", host, options_.port);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(wanted, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a taken port is an error
  // Clients ping to keep their streams alive, some of them often.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.SetMaxSendMessageSize(-1);
  builder.RegisterService(parts_->service.get());
  parts_->grpc = builder.BuildAndStart();
  if (parts_->grpc == nullptr || port == 0) {
    parts_->grpc.reset();
    return Unavailable(
        "The emulator can't listen on {}: the port is taken or the host is not "
        "this machine. Choose another with --port (0 takes a free one).",
        wanted);
  }
  address_ = fmt::format("{}:{}", host, port);
  return parts_->timekeeper.Start();
}

void Server::Stop() {
  std::scoped_lock lock(parts_->mu);  // a second caller waits for the first
  parts_->started = true;
  if (parts_->grpc != nullptr) {
    parts_->faults.Thaw();  // calls that wait are answered
    parts_->faults.CloseStreams(Unavailable("The emulator is stopping."));
    parts_->grpc->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    parts_->grpc->Wait();
    parts_->grpc.reset();
  }
  parts_->timekeeper.Stop();
}

}  // namespace lockstep::emulator
