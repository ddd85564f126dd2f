#include "sim/workload/workload_report.hpp"

#include <cmath>
#include <sstream>
#include <utility>

#include "base/build_info.hpp"
#include "base/hash.hpp"
#include "devices/schedule/time_schedule.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

std::string modelled_times_text(const DeviceWorkload& workload) {
  const ScheduleMeasurement modelled = time_schedule(workload.schedule, workload.model);
  std::ostringstream text;
  text << workload.schedule.made_from() << "\n\nstep,read_bytes,write_bytes,latency_ms,"
       << "compute_ms,exposed_io_ms,busy_io_ms\n";
  for (std::size_t step = 0; step < modelled.steps.size(); ++step) {
    const StepMeasurement& times = modelled.steps[step];
    text << step << ',' << times.read_bytes << ',' << times.write_bytes;
    for (const std::int64_t ns :
         {times.latency_ns, times.compute_ns, times.exposed_io_ns(), times.busy_io_ns}) {
      text << ',' << static_cast<double>(ns) * 1e-6;
    }
    text << '\n';
  }
  std::vector<std::int64_t> latencies;
  for (const RequestTimes& request : modelled.requests) latencies.push_back(request.latency_ns());
  const LatencySummary all = summarise(std::move(latencies));
  text << "\n"
       << all.requests << " requests on " << workload.model.name << ", latency (us): mean "
       << all.mean_us << ", p50 " << all.p50_us << ", p90 " << all.p90_us << ", p99 " << all.p99_us
       << ", p99.9 " << all.p999_us << ", max " << all.max_us << '\n';
  return text.str();
}

std::vector<ResultFile> replay_files(const DeviceWorkload& workload, const TargetRun& run,
                                     const std::string& compute,
                                     const ScheduleComparison& comparison) {
  Json json{{"format", "kvreplay device replay 1"},
            {"program", "kvreplay " + version()},
            {"complete", run.end.ended_by.empty()}};
  if (!run.end.ended_by.empty()) json["ended_by"] = run.end.ended_by;
  json["workload"] = workload.from;
  json["schedule"] = {{"sha256", sha256_text(workload.schedule.text())},
                      {"steps", workload.schedule.steps()},
                      {"commands", workload.schedule.commands().size()},
                      {"space_bytes", workload.schedule.space_bytes()},
                      {"wrapped", run.schedule.space_bytes() != workload.schedule.space_bytes()}};
  json["model_device"] = {{"name", workload.model.name}, {"title", workload.model.title}};
  json.update(run.setting);
  json["compute"] = compute;
  json.update(comparison.summary());
  return {{"steps.csv", comparison.steps_csv()},
          {"latencies.csv", comparison.latencies_csv()},
          {"table.txt", comparison.table()},
          {"replay.json", json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"}};
}

std::optional<std::int64_t> late_computations_percent(const ScheduleComparison& comparison) {
  const Json summary = comparison.summary();
  const double scheduled = summary.at("modelled").at("compute_seconds");
  const double measured = summary.at("measured").at("compute_seconds");
  if (measured <= 1.05 * scheduled || scheduled == 0) return std::nullopt;
  return std::lround(100 * (measured / scheduled - 1));
}

}  // namespace kvreplay
