#pragma once

#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ctl/command/command.h"
#include "ctl/command/progress.h"
#include "publisher/backfill/backfill_store.h"

namespace lockstep::ctl {

// A scan of the whole source takes its time.
inline constexpr Millis kScanTimeout{3'600'000};

// Checks the source (`quick`: its catalogue alone), shows what was found, asks, and has the
// publisher begin. Answers its id: `id`, or any where that is empty.
absl::StatusOr<std::string> StartBackfill(const Context& context, postgres::Connection& source,
                                          const publisher::Declaration& declaration, bool quick,
                                          const std::string& id = "");

// Shows how far a backfill has come until it rests or has ended. CANCELLED when `stop` is
// requested: it goes on at the publisher.
absl::StatusOr<publisher::BackfillRecord> FollowBackfill(publisher::BackfillStore& store,
                                                         const std::string& id,
                                                         ProgressPrinter& printer,
                                                         const std::stop_token& stop);

// The same for one whose end somebody needs: anything but "done" is a sentence.
absl::StatusOr<publisher::BackfillRecord> AwaitBackfill(publisher::BackfillStore& store,
                                                        const std::string& id,
                                                        ProgressPrinter& printer,
                                                        const std::stop_token& stop);

}  // namespace lockstep::ctl
