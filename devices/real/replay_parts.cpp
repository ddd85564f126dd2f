#include "devices/real/replay_parts.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvreplay {

namespace {

// A step has seven numbers and a request two, of at most 20 characters each: a part fits a frame.
constexpr std::size_t kMaxSteps = 10'000;
constexpr std::size_t kMaxRequests = 100'000;

}  // namespace

void ReplayParts::note(const ScheduleMeasurement& so_far) {
  const std::lock_guard lock(mutex_);
  steps_.insert(steps_.end(), so_far.steps.begin() + static_cast<std::ptrdiff_t>(noted_steps_),
                so_far.steps.end());
  noted_steps_ = so_far.steps.size();
  // Requests that were complete do not change.
  for (std::size_t at = settled_; first_request_ + at < so_far.requests.size(); ++at) {
    const RequestTimes& request = so_far.requests[first_request_ + at];
    if (request.requested_ns < 0) break;  // requests are submitted in order
    if (at == requests_.size()) requests_.emplace_back();
    requests_[at] = request;
    if (at == settled_ && request.completed()) ++settled_;
  }
}

std::optional<ReplayPart> ReplayParts::take() {
  const std::lock_guard lock(mutex_);
  if (steps_.empty()) return std::nullopt;
  ReplayPart part{first_request_, {}};
  const auto steps_end =
      steps_.begin() + static_cast<std::ptrdiff_t>(std::min(steps_.size(), kMaxSteps));
  part.measured.steps.assign(steps_.begin(), steps_end);
  steps_.erase(steps_.begin(), steps_end);
  const std::size_t count = std::min(requests_.size(), kMaxRequests);
  part.measured.requests.assign(requests_.begin(),
                                requests_.begin() + static_cast<std::ptrdiff_t>(count));
  const std::size_t done = std::min(settled_, count);
  requests_.erase(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(done));
  first_request_ += done;
  settled_ -= done;
  return part;
}

void add_part(const ReplayPart& part, const std::string& name, ScheduleMeasurement& so_far) {
  const auto& [first, more] = part;
  if (first > so_far.requests.size()) {
    throw UserError({name, ""}, "sent a part of a measurement that does not follow the last",
                    "request " + std::to_string(so_far.requests.size()));
  }
  so_far.steps.insert(so_far.steps.end(), more.steps.begin(), more.steps.end());
  so_far.requests.resize(std::max(so_far.requests.size(), first + more.requests.size()));
  std::copy(more.requests.begin(), more.requests.end(),
            so_far.requests.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace kvreplay
