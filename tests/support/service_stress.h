#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "platform/daemon/service.h"

namespace lockstep::testing {

// Holds a Service to what platform/daemon/service.h promises: Start once at most; Stop synchronous,
// idempotent, legal before Start and from several threads at once; a destructor without Stop.
// `make` gives a fresh one each time. `quiet` (optional) is asked after each Stop and must be true:
// "nothing of it runs any more".
inline void StressService(const std::function<std::unique_ptr<Service>()>& make,
                          const std::function<bool()>& quiet = nullptr, int rounds = 10) {
  const auto expect_quiet = [&] {
    if (quiet) {
      EXPECT_TRUE(quiet());
    }
  };
  {
    const auto service = make();
    service->Stop();
    service->Stop();
    EXPECT_FALSE(service->Start().ok()) << "a stopped service must not start";
    expect_quiet();
  }
  {
    const auto service = make();
    const absl::Status started = service->Start();
    EXPECT_TRUE(started.ok()) << started;
    EXPECT_FALSE(service->Start().ok()) << "started twice";
    service->Stop();
    service->Stop();
    expect_quiet();
  }
  for (int round = 0; round < rounds; ++round) {
    const auto service = make();
    std::vector<std::thread> threads;
    threads.emplace_back([&] { static_cast<void>(service->Start()); });
    for (int i = 0; i < 3; ++i) threads.emplace_back([&] { service->Stop(); });
    for (std::thread& thread : threads) thread.join();
    service->Stop();
    expect_quiet();
  }
  for (int round = 0; round < rounds; ++round) {
    const auto service = make();
    EXPECT_TRUE(service->Start().ok());
  }  // the destructor stops it
}

}  // namespace lockstep::testing
