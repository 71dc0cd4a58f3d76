#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "emulator/core/broker.h"
#include "emulator/core/timekeeper.h"
#include "emulator/faults/faults.h"
#include "emulator/schema/schema_registry.h"

namespace lockstep::emulator {

// The three services of google.pubsub.v1 over the broker and the schemas, which outlive them. They
// work on gRPC's threads.
std::unique_ptr<grpc::Service> NewPubsubService(Broker* broker, SchemaRegistry* schemas,
                                                Faults* faults, Timekeeper* timekeeper);

}  // namespace lockstep::emulator
