#pragma once

namespace lockstep::pubsub::grpc_client {

// gRPC 1.51 ends its callback threads with the last channel of the process, and now and then aborts
// in doing so ("ref_counted.h: assertion failed: prior > 0", about one in a hundred times). After
// this call they stay until the process ends. Idempotent, safe from any thread.
void KeepCallbackThreads();

}  // namespace lockstep::pubsub::grpc_client
