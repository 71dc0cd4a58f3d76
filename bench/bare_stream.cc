#include "bench/bare_stream.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_builder.h>

#include <future>

namespace lockstep::bench {
namespace {

class Writer : public grpc::ServerGenericBidiReactor {
 public:
  Writer(const grpc::ByteBuffer& response, int64_t count) : response_(response), left_(count) {
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Next();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (left_-- > 0) {
      StartWrite(&response_);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  const grpc::ByteBuffer response_;  // shares its bytes with all others
  int64_t left_;
};

class Reader : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Reader(grpc::GenericStub& stub) {
    stub.PrepareBidiStreamingCall(&context_, "/bare/Stream", {}, this);
    StartRead(&buffer_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    bytes_ += static_cast<int64_t>(buffer_.Length());
    buffer_.Clear();
    StartRead(&buffer_);
  }
  void OnDone(const grpc::Status&) override { done_.set_value(bytes_); }
  int64_t Wait() { return done_.get_future().get(); }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer buffer_;
  int64_t bytes_ = 0;
  std::promise<int64_t> done_;
};

class Service : public grpc::CallbackGenericService {
 public:
  Service(const std::string& response, int64_t count) : count_(count) {
    const grpc::Slice slice(response);
    response_ = grpc::ByteBuffer(&slice, 1);
  }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Writer(response_, count_);  // deletes itself in OnDone
  }

 private:
  grpc::ByteBuffer response_;
  const int64_t count_;
};

}  // namespace

struct BareServer::Parts {
  Parts(const std::string& response, int64_t count) : service(response, count) {}
  Service service;
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

BareServer::BareServer(std::string response, int64_t responses)
    : parts_(std::make_unique<Parts>(response, responses)) {
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(&parts_->service);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &parts_->port);
  parts_->server = builder.BuildAndStart();
}

BareServer::~BareServer() { parts_->server->Shutdown(); }

std::string BareServer::address() const { return "127.0.0.1:" + std::to_string(parts_->port); }

int64_t ReadBareStream(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  return Reader(stub).Wait();
}

}  // namespace lockstep::bench
