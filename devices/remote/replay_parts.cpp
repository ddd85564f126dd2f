#include "devices/remote/replay_parts.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sim/base/error.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

namespace {

// A step is seven numbers, a request two, of at most 20 characters each: a part fits a frame.
constexpr std::size_t kMostSteps = 10'000;
constexpr std::size_t kMostRequests = 100'000;

}  // namespace

void ReplayParts::note(const ScheduleMeasurement& so_far) {
  const std::lock_guard lock(mutex_);
  steps_.insert(steps_.end(), so_far.steps.begin() + static_cast<std::ptrdiff_t>(noted_steps_),
                so_far.steps.end());
  noted_steps_ = so_far.steps.size();
  // What was complete stays as it is.
  for (std::size_t at = settled_; first_request_ + at < so_far.requests.size(); ++at) {
    const RequestTimes& request = so_far.requests[first_request_ + at];
    if (request.asked_ns < 0) break;  // they are asked for in order
    if (at == requests_.size()) requests_.emplace_back();
    requests_[at] = request;
    if (at == settled_ && request.completed()) ++settled_;
  }
}

std::optional<Json> ReplayParts::take() {
  ScheduleMeasurement part;
  std::size_t first_request = 0;
  {
    const std::lock_guard lock(mutex_);
    if (steps_.empty()) return std::nullopt;
    const auto steps_end =
        steps_.begin() + static_cast<std::ptrdiff_t>(std::min(steps_.size(), kMostSteps));
    part.steps.assign(steps_.begin(), steps_end);
    steps_.erase(steps_.begin(), steps_end);
    first_request = first_request_;
    const std::size_t count = std::min(requests_.size(), kMostRequests);
    part.requests.assign(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(count));
    const std::size_t done = std::min(settled_, count);
    requests_.erase(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(done));
    first_request_ += done;
    settled_ -= done;
  }
  return Json{{"first_request", first_request}, {"text", to_json(part)}};
}

void add_part(const Json& part, const std::string& name, ScheduleMeasurement& so_far) {
  std::size_t first = 0;
  ScheduleMeasurement more;
  try {
    part.at("first_request").get_to(first);
    more = parse_schedule_measurement(part.at("text").get<std::string>(), name);
  } catch (const Json::exception&) {
    throw UserError({name, ""}, "sent no part of a measurement", "what kvreplay wrote");
  }
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
