#pragma once

#include <grpcpp/support/server_callback.h>

#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "emulator/faults/faults.h"
#include "emulator/service/rpc_status.h"
#include "emulator/wire/field_rules.h"
#include "emulator/wire/page.h"

namespace lockstep::emulator {

inline grpc::Status ToGrpc(grpc::Status status) { return status; }

// Answers a unary call with what `run` returns (a Status of either kind), unless fault injection
// has something else in mind for it.
template <typename Run>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Faults* faults,
                                 std::string_view method, Run run) {
  auto* reactor = context->DefaultReactor();
  // `method` is a literal, and gRPC keeps request and response until Finish.
  faults->WhenThawed([faults, method, reactor, run = std::move(run)] {
    if (absl::Status refused = faults->CheckCall(method); !refused.ok()) {
      reactor->Finish(ToGrpc(refused));
    } else {
      reactor->Finish(ToGrpc(run()));
    }
  });
  return reactor;
}

// The same, for a request that holds nothing that we don't know.
template <typename Run>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Faults* faults,
                                 std::string_view method, const google::protobuf::Message& request,
                                 Run run) {
  return Answer(context, faults, method, [&request, run = std::move(run)]() -> grpc::Status {
    if (absl::Status unknown = RefuseUnknown(request); !unknown.ok()) return ToGrpc(unknown);
    return ToGrpc(run());
  });
}

// Moves a result into the response.
template <typename Value>
absl::Status Put(absl::StatusOr<Value> result, Value* response) {
  if (!result.ok()) return result.status();
  *response = *std::move(result);
  return absl::OkStatus();
}

// The same for a page: its items into `items`, a repeated field of the response.
template <typename Item, typename Items, typename Response>
absl::Status PutPage(absl::StatusOr<Page<Item>> page, Items* items, Response* response) {
  if (!page.ok()) return page.status();
  for (Item& item : page->items) *items->Add() = std::move(item);
  response->set_next_page_token(page->next_token);
  return absl::OkStatus();
}

}  // namespace lockstep::emulator
