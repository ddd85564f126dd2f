#include "devices/real/schedule_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/number_text.hpp"
#include "base/statistics.hpp"
#include "base/table.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

namespace {

double milliseconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

}  // namespace

ScheduleComparison::ScheduleComparison(const Schedule& schedule,
                                       const ScheduleMeasurement& modelled,
                                       const ScheduleMeasurement& measured)
    : schedule_(schedule), steps_(std::min(modelled.steps.size(), measured.steps.size())) {
  std::size_t commands = 0;
  for (std::size_t step = 0; step < steps_; ++step) {
    step_begin_.push_back(commands);
    std::int64_t scheduled = 0;
    for (const auto& [kind, value] : schedule.step(step)) {
      if (kind == Schedule::Kind::kSubmit) commands = schedule.first_command(value + 1);
      if (kind == Schedule::Kind::kCompute) scheduled += value;
    }
    scheduled_ns_.push_back(scheduled);
  }
  step_begin_.push_back(commands);
  completed_.resize(commands);
  for (std::size_t i = 0; i < commands; ++i) {
    completed_[i] = modelled.requests[i].completed() && measured.requests[i].completed();
  }
  modelled_ = side(modelled);
  measured_ = side(measured);
}

ScheduleComparison::Side ScheduleComparison::side(const ScheduleMeasurement& measurement) const {
  Side side;
  side.measurement = &measurement;
  std::vector<std::int64_t> reads;
  std::vector<std::int64_t> writes;
  for (std::size_t step = 0; step < steps_; ++step) {
    std::vector<std::int64_t> here;
    for (std::size_t i = step_begin_[step]; i < step_begin_[step + 1]; ++i) {
      if (!completed_[i]) continue;
      const std::int64_t latency = measurement.requests[i].latency_ns();
      here.push_back(latency);
      (schedule_.commands()[i].write ? writes : reads).push_back(latency);
    }
    side.latencies_ns.insert(side.latencies_ns.end(), here.begin(), here.end());
    side.by_step.push_back(summarise(std::move(here)));
    const StepMeasurement& times = measurement.steps[step];
    side.seconds += static_cast<double>(times.latency_ns) * 1e-9;
    side.compute_seconds += static_cast<double>(times.compute_ns) * 1e-9;
    side.exposed_io_seconds += static_cast<double>(times.exposed_io_ns()) * 1e-9;
    side.busy_io_seconds += static_cast<double>(times.busy_io_ns) * 1e-9;
    side.bytes += times.read_bytes + times.write_bytes;
  }
  std::sort(side.latencies_ns.begin(), side.latencies_ns.end());
  side.all = summarise(side.latencies_ns);
  side.reads = summarise(std::move(reads));
  side.writes = summarise(std::move(writes));
  return side;
}

double ScheduleComparison::Side::mb_s() const {
  return busy_io_seconds > 0 ? static_cast<double>(bytes) / busy_io_seconds * 1e-6 : 0;
}

Json ScheduleComparison::Side::summary() const {
  Json json{{"seconds", seconds},
            {"compute_seconds", compute_seconds},
            {"exposed_io_seconds", exposed_io_seconds},
            {"busy_io_seconds", busy_io_seconds},
            {"mb_s", mb_s()},
            {"requests", latency_json(all)}};
  if (reads.requests > 0 && writes.requests > 0) {
    json["reads"] = latency_json(reads);
    json["writes"] = latency_json(writes);
  }
  return json;
}

double ScheduleComparison::error(std::size_t step) const {
  return static_cast<double>(modelled_.measurement->steps[step].latency_ns) /
             static_cast<double>(
                 std::max<std::int64_t>(1, measured_.measurement->steps[step].latency_ns)) -
         1;
}

ScheduleComparison::StepErrors ScheduleComparison::step_errors() const {
  if (steps_ == 0) return {};
  std::vector<double> errors;
  for (std::size_t step = 0; step < steps_; ++step) errors.push_back(std::abs(error(step)));
  std::sort(errors.begin(), errors.end());
  return {modelled_.seconds / std::max(1e-9, measured_.seconds) - 1, median(errors),
          percentile(errors, 0.9), errors.back()};
}

std::string ScheduleComparison::steps_csv() const {
  std::string text =
      "step,read_bytes,read_requests,write_bytes,write_requests,scheduled_compute_ms,"
      "measured_compute_ms,modelled_latency_ms,measured_latency_ms,latency_error,"
      "modelled_exposed_io_ms,measured_exposed_io_ms,modelled_busy_io_ms,measured_busy_io_ms";
  for (const char* side : {"modelled", "measured"}) {
    for (const char* name : {"p50", "p90", "p99", "p999", "max"}) {
      text += format_text(",%s_request_%s_us", side, name);
    }
  }
  text += '\n';
  for (std::size_t step = 0; step < steps_; ++step) {
    const StepMeasurement& model = modelled_.measurement->steps[step];
    const StepMeasurement& real = measured_.measurement->steps[step];
    for (const std::int64_t value : {static_cast<std::int64_t>(step), real.read_bytes,
                                     real.read_requests, real.write_bytes, real.write_requests}) {
      text += std::to_string(value) + ",";
    }
    text += format_text("%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f",
                        milliseconds(scheduled_ns_[step]), milliseconds(real.compute_ns),
                        milliseconds(model.latency_ns), milliseconds(real.latency_ns), error(step),
                        milliseconds(model.exposed_io_ns()), milliseconds(real.exposed_io_ns()),
                        milliseconds(model.busy_io_ns), milliseconds(real.busy_io_ns));
    for (const Side* side : {&modelled_, &measured_}) {
      const LatencySummary& latency = side->by_step[step];
      text += format_text(",%.3f,%.3f,%.3f,%.3f,%.3f", latency.p50_us, latency.p90_us,
                          latency.p99_us, latency.p999_us, latency.max_us);
    }
    text += '\n';
  }
  return text;
}

std::string ScheduleComparison::latencies_csv() const {
  std::string text = "percent,modelled_us,measured_us\n";
  for (std::size_t tenths = 1; tenths <= 1000 && !measured_.latencies_ns.empty(); ++tenths) {
    const double share = static_cast<double>(tenths) / 1000;
    text += format_text("%.1f,%.3f,%.3f\n", static_cast<double>(tenths) / 10,
                        static_cast<double>(percentile(modelled_.latencies_ns, share)) * 1e-3,
                        static_cast<double>(percentile(measured_.latencies_ns, share)) * 1e-3);
  }
  return text;
}

Json ScheduleComparison::summary() const {
  const StepErrors errors = step_errors();
  return {{"steps", steps_},
          {"steps_wanted", schedule_.steps()},
          {"requests", step_begin_.back()},
          {"latency_error",
           {{"mean", errors.mean},
            {"median_absolute", errors.median},
            {"p90_absolute", errors.p90},
            {"greatest_absolute", errors.max}}},
          {"modelled", modelled_.summary()},
          {"measured", measured_.summary()}};
}

std::string ScheduleComparison::table() const {
  const auto steps = static_cast<double>(std::max<std::size_t>(1, steps_));
  Table table({{"", Table::Align::kLeft, 28},
               {"modelled", Table::Align::kRight, 12},
               {"measured", Table::Align::kRight, 12},
               {"error", Table::Align::kRight, 9}},
              " ");
  const auto row = [&table](const char* name, double modelled, double measured) {
    std::vector<std::string> cells{name, fixed_text(modelled, 3), fixed_text(measured, 3)};
    if (measured > 0) cells.push_back(error_percent_text(modelled / measured));
    table.add_row(std::move(cells));
  };
  const auto both = [&](const char* name, double Side::*value) {
    row(name, modelled_.*value / steps * 1e3, measured_.*value / steps * 1e3);
  };
  both("step latency (ms)", &Side::seconds);
  both("  compute (ms)", &Side::compute_seconds);
  both("  exposed I/O (ms)", &Side::exposed_io_seconds);
  both("I/O under way (ms)", &Side::busy_io_seconds);
  row("bandwidth meanwhile (MB/s)", modelled_.mb_s(), measured_.mb_s());
  for (const auto& [name, value] : {std::pair{"request latency p50 (us)", &LatencySummary::p50_us},
                                    {"request latency p90 (us)", &LatencySummary::p90_us},
                                    {"request latency p99 (us)", &LatencySummary::p99_us},
                                    {"request latency p99.9 (us)", &LatencySummary::p999_us},
                                    {"request latency max (us)", &LatencySummary::max_us}}) {
    row(name, modelled_.all.*value, measured_.all.*value);
  }
  const StepErrors errors = step_errors();
  return table.text() + format_text(
                            "\nError of the latency per step, %zu steps: mean %+.1f %%; of its "
                            "absolute value median "
                            "%.1f %%, p90 %.1f %%, greatest %.1f %%\n",
                            steps_, 100 * errors.mean, 100 * errors.median, 100 * errors.p90,
                            100 * errors.max);
}

}  // namespace kvreplay
