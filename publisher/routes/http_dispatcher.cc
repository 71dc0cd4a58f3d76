#include "publisher/routes/http_dispatcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "platform/status.h"
#include "publisher/dispatch/failure.h"
#include "publisher/dispatch/wire.h"

namespace lockstep::publisher {
namespace {

constexpr std::chrono::microseconds kWorthOfRequest{500'000};
constexpr int kMostRows = 200;
// A key's rows that were not sent when this is over go back: the endpoint has become slow.
constexpr Millis kLongestRequest{5'000};

}  // namespace

// What requests under way need, whoever else has gone.
struct HttpDispatcher::Shared {
  std::string name;
  std::shared_ptr<envelope::Endpoint> endpoint;
  http::Client& client;
  std::atomic<int64_t> typical_us = 50'000;  // of an answer; begins with few rows

  void Took(SteadyTime since) {
    const int64_t us = std::chrono::duration_cast<std::chrono::microseconds>(
                           std::chrono::steady_clock::now() - since)
                           .count();
    typical_us = (3 * typical_us + us) / 4;  // a lost update is no loss
  }
};

struct HttpDispatcher::Batch {
  std::shared_ptr<Shared> shared;
  std::vector<RowPtr> rows;
  std::vector<DispatchResult> results;
  Done done;
  SteadyTime began = std::chrono::steady_clock::now();
  std::atomic<size_t> keys_left = 0;

  void KeyIsOver() {
    if (--keys_left == 0) done(std::move(results));
  }
};

namespace {

absl::StatusOr<http::Request> RequestFor(envelope::Endpoint& endpoint, const RowPtr& row) {
  ASSIGN_OR_RETURN(const Attributes attributes, AttributesOf(*row));
  // The row outlives the request, which points into it.
  return endpoint.RequestFor(attributes, std::shared_ptr<const std::string>(row, &row->payload));
}

// A failure in words that begin with the route.
DispatchResult ResultOf(const std::string& route, const absl::StatusOr<http::Answer>& answer,
                        const std::string& sent) {
  if (absl::IsCancelled(answer.status())) return {.status = answer.status()};
  const http::Verdict verdict = http::Judge(answer, sent);
  switch (verdict.outcome) {
    case http::Verdict::Outcome::kDone:
      return {};
    case http::Verdict::Outcome::kOutage:
      return {.status = answer.ok() || !absl::IsDeadlineExceeded(answer.status())
                            ? Unavailable("{}: {}", route, verdict.words)
                            : MakeStatus(absl::StatusCode::kDeadlineExceeded, "{}: {}", route,
                                         verdict.words),
              .retry_after = verdict.retry_after};
    case http::Verdict::Outcome::kRefused:
      break;
  }
  return {.status = InvalidArgument("{}: {}", route, verdict.words),
          .code = kHttpRefused,
          .doubtful = verdict.maybe_endpoint};
}

}  // namespace

HttpDispatcher::HttpDispatcher(std::string name, std::shared_ptr<envelope::Endpoint> endpoint,
                               http::Client& client)
    : shared_(new Shared{std::move(name), std::move(endpoint), client}) {}

HttpDispatcher::~HttpDispatcher() = default;

RequestShape HttpDispatcher::Shape(const std::string&) const {
  const int64_t rows = kWorthOfRequest.count() / std::max<int64_t>(1, shared_->typical_us);
  return {.rows = static_cast<int>(std::clamp<int64_t>(rows, 1, kMostRows)),
          .one_key = true,
          .counted = false};
}

void HttpDispatcher::Dispatch(const std::string&, const std::string&, std::vector<RowPtr> rows,
                              Done done) {
  const auto batch = std::make_shared<Batch>();
  batch->shared = shared_;
  batch->results.resize(rows.size());
  batch->rows = std::move(rows);
  batch->done = std::move(done);
  std::vector<size_t> starts;  // of the keys, whose rows stand side by side
  for (size_t i = 0; i < batch->rows.size(); ++i) {
    if (i == 0 || batch->rows[i]->aggregate_id != batch->rows[i - 1]->aggregate_id) {
      starts.push_back(i);
    }
  }
  batch->keys_left = starts.size();
  starts.push_back(batch->rows.size());
  for (size_t key = 0; key + 1 < starts.size(); ++key)
    SendNext(batch, starts[key], starts[key + 1]);
}

void HttpDispatcher::SendNext(const std::shared_ptr<Batch>& batch, size_t row, size_t end) {
  const auto stop = [&](size_t from, const absl::Status& why) {
    for (size_t i = from; i < end; ++i) batch->results[i].status = why;
    batch->KeyIsOver();
  };
  if (row == end) return batch->KeyIsOver();
  if (std::chrono::steady_clock::now() - batch->began > kLongestRequest) {
    return stop(row, absl::CancelledError("not sent yet: the endpoint is slow"));
  }
  const RowPtr& sent = batch->rows[row];
  auto request = RequestFor(*batch->shared->endpoint, sent);
  const absl::Status behind = absl::AbortedError("an earlier row of the key failed");
  if (!request.ok()) {
    batch->results[row] = {.status = request.status(), .code = std::string(kRowRefused)};
    return stop(row + 1, behind);
  }
  batch->shared->client.Send(
      *std::move(request), [batch, row, end, behind, at = std::chrono::steady_clock::now()](
                               const absl::StatusOr<http::Answer>& answer) {
        DispatchResult& result = batch->results[row];
        result = ResultOf(batch->shared->name, answer, batch->rows[row]->payload);
        if (answer.ok()) batch->shared->Took(at);
        if (result.status.ok()) return SendNext(batch, row + 1, end);
        for (size_t i = row + 1; i < end; ++i) batch->results[i].status = behind;
        batch->KeyIsOver();
      });
}

}  // namespace lockstep::publisher
