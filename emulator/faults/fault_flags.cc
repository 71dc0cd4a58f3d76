// Fault injection as keys of a configuration.
#include "emulator/faults/faults.h"
#include "platform/config/config.h"

namespace lockstep::emulator {

void Bind(ConfigSection& config, FaultOptions& options) {
  using absl::StatusCode;
  config.Key("fault-seed", &options.seed, "fault injection: where its chance begins");
  config.Key("fault-drop-acks", &options.drop_acks, "probability that an ack is lost");
  config.Key("fault-delay-acks", &options.delay_acks, "probability that an ack comes late");
  config.Key("fault-ack-delay", &options.ack_delay, "how late");
  config.Key("fault-close-streams", &options.close_streams,
             "probability, before each response, that a stream is closed instead");
  config.Key("fault-duplicate", &options.duplicate, "probability that a delivery comes twice");
  config.Key("fault-refuse", &options.refuse, "probability that a call is refused");
  config.Choice("fault-refuse-status", &options.refuse_status,
                {{"UNAVAILABLE", StatusCode::kUnavailable},
                 {"DEADLINE_EXCEEDED", StatusCode::kDeadlineExceeded},
                 {"INTERNAL", StatusCode::kInternal},
                 {"ABORTED", StatusCode::kAborted},
                 {"RESOURCE_EXHAUSTED", StatusCode::kResourceExhausted},
                 {"PERMISSION_DENIED", StatusCode::kPermissionDenied},
                 {"UNAUTHENTICATED", StatusCode::kUnauthenticated},
                 {"NOT_FOUND", StatusCode::kNotFound},
                 {"FAILED_PRECONDITION", StatusCode::kFailedPrecondition},
                 {"INVALID_ARGUMENT", StatusCode::kInvalidArgument}},
                "with which status");
  config.Key("fault-refuse-method", &options.refuse_method,
             "only these, such as Publish,StreamingPull; empty = every unary call");
  config.Key("fault-ignore-flow-control", &options.ignore_flow_control,
             "send all there is, whatever limits a stream asks for");
  config.Key("fault-freeze", &options.frozen, "answer and deliver nothing");
}

}  // namespace lockstep::emulator
