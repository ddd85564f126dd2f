#include "devices/schedule/schedule_measurement.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::size_t kLongestReason = 200;
constexpr std::int64_t kMaxTimeNs = std::int64_t{1} << 53;  // 104 days

bool is_time(std::int64_t ns) {
  return ns >= 0 && ns <= kMaxTimeNs;
}

bool is_possible(const StepMeasurement& step) {
  return is_time(step.latency_ns) && is_time(step.compute_ns) && is_time(step.busy_io_ns);
}

bool is_possible(const RequestTimes& request) {
  if (request.completed_ns == -1)
    return request.requested_ns == -1 || is_time(request.requested_ns);
  return is_time(request.requested_ns) && is_time(request.completed_ns) &&
         request.completed_ns >= request.requested_ns;
}

}  // namespace

std::string to_json(const ScheduleMeasurement& measurement) {
  Json json{{"interrupted", measurement.interrupted}};
  if (const auto& failure = measurement.failure) {
    json["failure"] = {failure->command.offset, failure->command.bytes,     failure->command.write,
                       failure->error,          failure->transferred_bytes, failure->unanswered_ns};
  }
  Json& steps = json["steps"] = Json::array();
  for (const StepMeasurement& step : measurement.steps) {
    steps.push_back({step.latency_ns, step.compute_ns, step.busy_io_ns, step.read_bytes,
                     step.read_requests, step.write_bytes, step.write_requests});
  }
  Json& requests = json["requests"] = Json::array();
  for (const RequestTimes& request : measurement.requests) {
    requests.push_back({request.requested_ns, request.completed_ns});
  }
  return json.dump();
}

ScheduleMeasurement parse_schedule_measurement(const std::string& text, const std::string& name) {
  try {
    const Json json = Json::parse(text);
    ScheduleMeasurement measurement;
    json.at("interrupted").get_to(measurement.interrupted);
    if (json.contains("failure")) {
      const Json& from = json.at("failure");
      IoFailure& failure = measurement.failure.emplace();
      from.at(0).get_to(failure.command.offset);
      from.at(1).get_to(failure.command.bytes);
      from.at(2).get_to(failure.command.write);
      from.at(3).get_to(failure.error);
      from.at(4).get_to(failure.transferred_bytes);
      from.at(5).get_to(failure.unanswered_ns);
    }
    for (const Json& from : json.at("steps")) {
      StepMeasurement& step = measurement.steps.emplace_back();
      std::size_t column = 0;
      for (std::int64_t* value :
           {&step.latency_ns, &step.compute_ns, &step.busy_io_ns, &step.read_bytes,
            &step.read_requests, &step.write_bytes, &step.write_requests}) {
        from.at(column++).get_to(*value);
      }
    }
    for (const Json& from : json.at("requests")) {
      measurement.requests.push_back(
          {from.at(0).get<std::int64_t>(), from.at(1).get<std::int64_t>()});
    }
    return measurement;
  } catch (const nlohmann::json::exception& error) {
    throw UserError({name, ""},
                    "is no measurement of a schedule (" +
                        std::string(error.what()).substr(0, kLongestReason) + ")",
                    "what kvreplay wrote");
  }
}

void check_measurement(const ScheduleMeasurement& measured, const Schedule& schedule,
                       std::size_t first_step, std::size_t first_request, const std::string& name) {
  const auto impossible = [&name](const std::string& what) {
    return UserError({name, ""}, "sent a measurement that is not of this schedule: " + what, "");
  };
  const std::size_t steps = schedule.steps() - std::min(schedule.steps(), first_step);
  const std::size_t requests =
      schedule.commands().size() - std::min(schedule.commands().size(), first_request);
  if (measured.steps.size() > steps || measured.requests.size() > requests) {
    throw impossible("too many steps or requests");
  }
  for (std::size_t i = 0; i < measured.steps.size(); ++i) {
    const StepMeasurement& step = measured.steps[i];
    StepMeasurement scheduled = step;
    scheduled.read_bytes = scheduled.read_requests = 0;
    scheduled.write_bytes = scheduled.write_requests = 0;
    for (const auto& [kind, value] : schedule.step(first_step + i)) {
      if (kind != Schedule::Kind::kSubmit) continue;
      for (const IoCommand& command : schedule.batch(value)) scheduled.count(command);
    }
    if (!is_possible(step) || step != scheduled) {
      throw impossible("step " + std::to_string(first_step + i));
    }
  }
  for (std::size_t i = 0; i < measured.requests.size(); ++i) {
    if (is_possible(measured.requests[i])) continue;
    throw impossible("request " + std::to_string(first_request + i));
  }
}

std::size_t longest_measurement(const Schedule& schedule) {
  constexpr std::size_t kNumber = 21;  // with its comma
  return 1000 + schedule.steps() * (7 * kNumber + 3) +
         schedule.commands().size() * (2 * kNumber + 3);
}

}  // namespace kvreplay
