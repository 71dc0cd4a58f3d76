#include "emulator/faults/faults.h"

#include <algorithm>
#include <utility>

#include "platform/config/config.h"
#include "platform/status.h"
#include "platform/text.h"

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
  std::vector<std::pair<std::string, StatusCode>> statuses;
  for (const StatusCode code :
       {StatusCode::kUnavailable, StatusCode::kDeadlineExceeded, StatusCode::kInternal,
        StatusCode::kAborted, StatusCode::kResourceExhausted, StatusCode::kPermissionDenied,
        StatusCode::kUnauthenticated, StatusCode::kNotFound, StatusCode::kFailedPrecondition,
        StatusCode::kInvalidArgument, StatusCode::kUnknown, StatusCode::kUnimplemented}) {
    statuses.emplace_back(absl::StatusCodeToString(code), code);
  }
  config.Choice("fault-refuse-status", &options.refuse_status, statuses, "with which status");
  config.Key("fault-refuse-method", &options.refuse_method,
             "only these, such as Publish,StreamingPull; empty = every unary call");
  config.Key("fault-ignore-flow-control", &options.ignore_flow_control,
             "send all there is, whatever limits a stream asks for");
  config.Key("fault-freeze", &options.frozen, "answer and deliver nothing");
}

absl::Status FaultOptions::Validate() const {
  for (const auto& [name, value] : {std::pair<const char*, double>{"fault-drop-acks", drop_acks},
                                    {"fault-delay-acks", delay_acks},
                                    {"fault-close-streams", close_streams},
                                    {"fault-duplicate", duplicate},
                                    {"fault-refuse", refuse}}) {
    if (!(value >= 0 && value <= 1)) {
      return InvalidArgument("{} is a probability between 0 and 1, not {}", name, value);
    }
  }
  if (ack_delay < Millis(0)) return InvalidArgument("fault-ack-delay is negative");
  return absl::OkStatus();
}

Faults::Faults(FaultOptions options)
    : options_(std::move(options)), random_(static_cast<uint64_t>(options_.seed)) {}

void Faults::Set(const FaultOptions& options) {
  bool thaw = false;
  {
    std::scoped_lock lock(mu_);
    thaw = options_.frozen && !options.frozen;
    options_ = options;
    random_.seed(static_cast<uint64_t>(options.seed));
  }
  if (thaw) Thaw();
}

void Faults::RefuseNext(std::string method, absl::Status with, int count) {
  std::scoped_lock lock(mu_);
  refusals_.push_back({std::move(method), std::move(with), count});
}

void Faults::CloseStreams(const absl::Status& with) {
  for (const auto& stream : Open()) stream->CloseWith(with);
}

std::vector<StreamInfo> Faults::Streams() const {
  std::vector<StreamInfo> infos;
  for (const auto& stream : Open()) infos.push_back(stream->Info());
  return infos;
}

// Those that are there, to be called without our lock.
std::vector<std::shared_ptr<OpenStream>> Faults::Open() const {
  std::vector<std::shared_ptr<OpenStream>> open;
  std::scoped_lock lock(mu_);
  for (const auto& weak : streams_) {
    if (auto stream = weak.lock()) open.push_back(std::move(stream));
  }
  return open;
}

void Faults::Freeze() {
  std::scoped_lock lock(mu_);
  options_.frozen = true;
}

void Faults::Thaw() {
  std::vector<std::function<void()>> tasks;
  std::function<void()> on_thaw;
  {
    std::scoped_lock lock(mu_);
    options_.frozen = false;
    tasks.swap(frozen_tasks_);
    on_thaw = on_thaw_;
  }
  for (const auto& task : tasks) task();
  if (on_thaw) on_thaw();
}

size_t Faults::Waiting() const {
  std::scoped_lock lock(mu_);
  return frozen_tasks_.size();
}

absl::Status Faults::CheckCall(std::string_view method) {
  std::scoped_lock lock(mu_);
  for (auto it = refusals_.begin(); it != refusals_.end(); ++it) {
    if (!it->method.empty() && it->method != method) continue;
    absl::Status status = it->status;
    if (--it->left <= 0) refusals_.erase(it);
    return status;
  }
  const auto methods = SplitList(options_.refuse_method, ',');
  const bool meant = methods.empty()
                         ? method != "StreamingPull"
                         : std::find(methods.begin(), methods.end(), method) != methods.end();
  if (meant && Roll(options_.refuse)) {
    return MakeStatus(options_.refuse_status, "Refused by fault injection.");
  }
  return absl::OkStatus();
}

absl::Status Faults::CheckStream() {
  std::scoped_lock lock(mu_);
  if (Roll(options_.close_streams)) return Unavailable("Closed by fault injection.");
  return absl::OkStatus();
}

Faults::AckFate Faults::FateOfAck() {
  std::scoped_lock lock(mu_);
  if (Roll(options_.drop_acks)) return AckFate::kDrop;
  if (Roll(options_.delay_acks)) return AckFate::kDelay;
  return AckFate::kApply;
}

bool Faults::Duplicate() {
  std::scoped_lock lock(mu_);
  return Roll(options_.duplicate);
}

FaultOptions Faults::options() const {
  std::scoped_lock lock(mu_);
  return options_;
}

void Faults::WhenThawed(std::function<void()> task) {
  {
    std::scoped_lock lock(mu_);
    if (options_.frozen) return frozen_tasks_.push_back(std::move(task));
  }
  task();
}

void Faults::OnThaw(std::function<void()> run) {
  std::scoped_lock lock(mu_);
  on_thaw_ = std::move(run);
}

void Faults::AddStream(std::weak_ptr<OpenStream> stream) {
  std::scoped_lock lock(mu_);
  std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
  streams_.push_back(std::move(stream));
}

bool Faults::Roll(double probability) {
  if (probability <= 0) return false;
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

}  // namespace lockstep::emulator
