#pragma once

#include <map>
#include <string>
#include <vector>

#include "envelope/event.h"
#include "projections/testing/naive_applier.h"
#include "projections/testing/random_schema.h"

namespace lockstep::projections {

// A stream of random events for a random schema, with what should come of them. Test code.
class RandomCase {
 public:
  struct Sent {
    Event event;
    bool covered = false;  // by a snapshot that came before
    Outcome expected = Outcome::kApplied;
  };

  RandomCase(uint64_t seed, int number, int streams);

  const RandomSchema& schema() const { return schema_; }
  // The next batch; empty at the end.
  std::vector<Sent> NextBatch();

  // What RandomSchema::Query should answer.
  std::vector<std::string> Expected() const;
  std::string CountQuery() const;
  std::vector<std::string> ExpectedCounts() const;

 private:
  std::vector<std::string> KeyParts(int stream) const;
  std::string KeyLine(int stream) const;
  Sent MakeEvent(int stream, int64_t version, bool stranger, bool snapshot = false);
  // An event type that replaces, of a table that counts nothing; -1 = there is none.
  int SnapshotType() const;
  std::string EncodeJson(int stream, const PlainEvent& plain, int packed);
  std::string EncodeProto(int stream, const PlainEvent& plain, int packed) const;

  Dice dice_;
  const RandomSchema schema_;
  const int streams_;
  std::vector<int64_t> newest_;    // by stream
  std::vector<int64_t> snapshot_;  // the newest one's version
  std::map<int, int64_t> counted_;
  int left_;
  NaiveApplier naive_;
};

}  // namespace lockstep::projections
