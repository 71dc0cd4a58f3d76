#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "envelope/http/endpoint_options.h"
#include "platform/clock.h"

// How sagas are run. Public: docs/embedding.md.
namespace lockstep::sagas {

// How http: steps are called.
struct HttpCallOptions {
  HttpCallOptions() { endpoint.settings.allow_private = false; }

  envelope::EndpointOptions endpoint;
  std::vector<std::string> origins;  // "https://pay.example.com"; empty = all may be called
  int concurrency = 64;              // requests under way per host
};

// What a running engine follows when it changes.
struct EngineLimits {
  int in_hand = 256;                       // sagas under a lease of this process's
  std::map<std::string, int> definitions;  // of those, of one definition at most
  std::map<std::string, int> tags;         // steps under way that have this concurrency_tag
};

struct EngineOptions {
  std::string database;
  std::string owner;  // who holds a lease, for people
  int workers = 4;    // threads with a session each: so many sql: steps at a time
  int function_threads = 8;
  Millis lease{15'000};  // after so long without a sign of life others take over
  Millis heartbeat{5'000};
  Millis poll_floor{1'000};  // idle, it looks after a random time between these
  Millis poll_interval{5'000};
  Millis lock_timeout{10'000};  // what a step waits for a lock that somebody else has
  Millis drain{8'000};          // what a stop waits for calls that are under way
  HttpCallOptions http;
  EngineLimits limits;
  // For tests: called between any two statements and calls, with the name of the place. One that
  // throws SeamCrash ends the engine there as if its process had died.
  std::function<void(std::string_view)> seam;
};

struct SeamCrash {};

}  // namespace lockstep::sagas
