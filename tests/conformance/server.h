#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "emulator/faults/faults.h"
#include "platform/clock.h"

namespace lockstep::conformance {

// What a server and a transport can do. A test that needs what is missing is skipped, and says so.
struct Features {
  bool seek_to_time = true;
  bool seek_to_time_ordered = true;
  bool seek_to_snapshot = true;
  bool dead_letter = true;
  bool filters = true;
  bool schemas = true;
  bool reserves_goog = true;           // refuses attributes that begin with it, but for googclient_
  bool assigns_snapshot_names = true;  // to those that are created without one
  bool detach = true;
  bool topic_label_updates = true;
  bool cascade_on_nack = true;            // a nack brings back every later message of the key
  bool exactly_once_results = true;       // a refused ack is named
  bool max_outstanding = true;            // honours the stream's flow-control fields
  bool faults = true;                     // can be told to fail
  bool clock_moves = true;                // Advance does something
  bool forgets_cancelled_streams = true;  // sends nothing more to a stream that was cancelled

  // The transport's:
  bool several_per_key = true;       // hands over a key's next message while the first is in hand
  bool stream_ends_reported = true;  // OnStreamState tells of each end of a stream
  bool receipts = true;              // with exactly-once, hands over what the server confirms
  bool plain_acks_retried = true;    // retries acks without exactly-once delivery too
  bool receiving_again = true;       // after Stop the next receiver gets everything
  bool client_id = true;             // the stream carries the client_id that it was given
  bool stops_cleanly = true;         // … and at once: nothing is sent into a closing stream
};

// A Pub/Sub server for one test program.
class Server {
 public:
  virtual ~Server() = default;
  virtual std::string address() const = 0;
  virtual Features features() const = 0;
  // Moves the server's clock forward, where it has one that can be moved: otherwise a test must
  // wait for the time itself.
  virtual void Advance(Millis) {}
  // REQUIRES: features().faults.
  virtual emulator::Faults* faults() { return nullptr; }
};

// Ours, in this process: a new and empty one at each call.
absl::StatusOr<std::shared_ptr<Server>> LockstepEmulator();

// Google's, which all cases share. See tests/support/google_emulator.h.
absl::StatusOr<std::shared_ptr<Server>> GoogleEmulator();

}  // namespace lockstep::conformance
