#include "devices/schedule/schedule_measurement.hpp"

#include <nlohmann/json.hpp>

namespace kvreplay {

using Json = nlohmann::ordered_json;

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
                    std::string("is no measurement of a schedule (") + error.what() + ")",
                    "what kvreplay wrote");
  }
}

}  // namespace kvreplay
