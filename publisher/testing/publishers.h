#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulator/service/server.h"
#include "publisher/testing/outbox_test.h"
#include "pubsub/transport.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/process.h"

namespace lockstep::publisher {

// lockstep-publisher as a process, on a real Postgres and the emulator.
class PublishersTest : public OutboxTest {
 protected:
  explicit PublishersTest(bool partitioned = false);
  ~PublishersTest() override;

  // Quick to notice others, unless `arguments` say otherwise.
  std::unique_ptr<testing::Process> StartPublisher(std::vector<std::string> arguments = {});

  // Waits until `where` holds for `count` rows; false after a minute.
  bool AwaitRows(const std::string& where, int64_t count);

  // The versions of each key in the order in which the subscription got them, repeats left out.
  std::map<std::string, std::vector<int64_t>> FirstDeliveries() const;

  emulator::Server server_;
  std::unique_ptr<pubsub::Transport> transport_;
  testing::CollectingSink sink_;
  std::unique_ptr<pubsub::Receiver> receiver_;
};

}  // namespace lockstep::publisher
