#include "platform/http_client/client.h"

#include <utility>

#include "platform/http_client/client_loop.h"

namespace lockstep::http {

Client::Client(ClientOptions options) : loop_(std::make_unique<Loop>(options)) {}
Client::~Client() = default;

void Client::Send(Request request, Done done) { loop_->Send(std::move(request), std::move(done)); }
void Client::SetLimits(ClientOptions options) { loop_->SetLimits(options); }
void Client::Stop() { loop_->Stop(); }

}  // namespace lockstep::http
