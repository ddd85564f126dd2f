#include "devices/calibration/calibrate.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/engine/simulation.hpp"
#include "base/statistics.hpp"
#include "devices/calibration/least_squares.hpp"

namespace kvreplay {
namespace {

constexpr std::array kReadNames{"command_latency_us", "command_overhead_us", "read_us",
                                "channel_mb_s", "link_mb_s"};
constexpr std::array kCountNames{"channels", "dies_per_channel"};
constexpr double kMaxParallel = 64;      ///< channels, or dies per channel
constexpr double kMaxWriteBuffer = 1e9;  ///< bytes

using Points = std::vector<MeasuredPoint>;

/// Writes whole numbers without a fraction: counts and sizes are integers, and a real takes either.
ConfigNode with(ConfigNode config, const Values& values) {
  for (const auto& [name, value] : values) {
    const bool whole = value == std::floor(value);
    config = config.with(name, to_text(whole ? Value(static_cast<std::int64_t>(value)) : value));
  }
  return config;
}

const Parameter& parameter_of(const DeviceSpec& spec, const std::string& name) {
  const std::vector<Parameter>& all = spec.device.part().parameters;
  return *std::find_if(all.begin(), all.end(),
                       [&name](const Parameter& parameter) { return parameter.name == name; });
}

/// Limits the search to the parameter's allowed range.
Unknown limited(Unknown unknown, const DeviceSpec& spec) {
  const Parameter& parameter = parameter_of(spec, unknown.name);
  unknown.min = std::clamp(unknown.min, parameter.minimum, parameter.maximum);
  unknown.max = std::clamp(unknown.max, unknown.min, parameter.maximum);
  return unknown;
}

/// What a search has found.
struct Found {
  Values values;
  std::vector<std::string> undetermined = {};  ///< not determined by the points: the base's
  std::uint64_t evaluations = 0;
};

/// Searches for the parameters with which the model comes closest to the points.
class Search {
 public:
  /// Searches over `unknowns`. `counts` are whole numbers that differ only between starts.
  /// Everything else in `config` is fixed.
  Search(const ConfigNode& config, const Points& points, std::vector<Unknown> unknowns,
         Values counts, const CalibrateOptions& options)
      : config_(config),
        unknowns_(std::move(unknowns)),
        options_(options),
        start_(std::move(counts)) {
    for (const MeasuredPoint& point : points) points_.push_back({point, PointUse::kFitted});
    const DeviceSpec spec = DeviceSpec::parse(config);
    for (Unknown& unknown : unknowns_) {
      unknown = limited(std::move(unknown), spec);
      start_[unknown.name] = unknown.start;
    }
  }

  /// The base's values, from which starts are derived.
  [[nodiscard]] const Values& start() const { return start_; }

  /// A descent keeps the counts with which it begins and finds the nearest local minimum: coarse
  /// descents from many starts, then fine ones from the best of these. Advances the progress by
  /// this share of the whole.
  [[nodiscard]] Found run(const std::vector<Values>& starts, double progress_share) {
    constexpr std::size_t kFine = 4;
    constexpr int kFineUnits = 18;  // progress units of a fine descent; a coarse one has 1
    const auto units = static_cast<double>(starts.size() + kFine * kFineUnits);
    if (options_.progress != nullptr) {
      options_.progress->begin_stage("calibrate",
                                     progress_share * CalibrateOptions::kProgressUnits / units);
    }
    std::vector<Fit> fits;
    coarse_ = true;
    for (const Values& start : starts) {
      fits.push_back(descend_from(within_range(start), 8));
      advance(1);
    }
    coarse_ = false;
    const auto less = [](const Fit& a, const Fit& b) { return a.loss < b.loss; };
    std::stable_sort(fits.begin(), fits.end(), less);
    fits.resize(kFine);
    for (Fit& fit : fits) {
      fit = descend_from(fit.values, 30);
      advance(kFineUnits);
    }
    Found found{.values = std::min_element(fits.begin(), fits.end(), less)->values};
    found.undetermined = take_undetermined_from_base(found.values);
    found.evaluations = evaluations_;
    return found;
  }

 private:
  void advance(int units) {
    if (options_.progress != nullptr) options_.progress->advance(units);
  }

  /// A start suggested by the points is clamped to the searched range, which always includes the
  /// base.
  [[nodiscard]] Values within_range(Values values) const {
    for (const Unknown& unknown : unknowns_) {
      double& value = values.at(unknown.name);
      value = std::clamp(value, std::min(unknown.min, unknown.start),
                         std::max(unknown.max, unknown.start));
    }
    return values;
  }
  /// The residuals are log errors of the points' rate and latency, plus a pull towards the base so
  /// weak that it decides only where the points do not.
  [[nodiscard]] Fit descend_from(const Values& values, int max_iterations) {
    const auto residuals = [this](const Values& tried) {
      std::vector<double> result = log_errors(tried);
      constexpr double kPull = 0.01;
      for (const auto& [name, value] : tried) {
        result.push_back(kPull * std::log(value / start_.at(name)));
      }
      return result;
    };
    return descend(values, unknowns_, residuals, max_iterations);
  }
  [[nodiscard]] std::vector<double> log_errors(const Values& values) {
    ++evaluations_;
    std::vector<FittedPoint> points = points_;
    run_model(with(config_, values), coarse_, points, options_.threads);
    std::vector<double> result;
    for (const FittedPoint& point : points) {
      result.push_back(robust_residual(point.iops / point.measured.iops));
      result.push_back(robust_residual(point.mean_us / point.measured.mean_us));
    }
    return result;
  }

  /// Some parameters are not determined by the points, such as the rate of a link that is never
  /// busy: the base's value fits the points as well, and is kept.
  [[nodiscard]] std::vector<std::string> take_undetermined_from_base(Values& values) {
    constexpr double kAsWell = 1.01;
    std::vector<std::string> undetermined;
    double lowest = sum_of_squares(log_errors(values));
    for (const Unknown& unknown : unknowns_) {
      Values candidate = values;
      candidate[unknown.name] = unknown.base;
      const double misfit = sum_of_squares(log_errors(candidate));
      if (misfit > kAsWell * lowest) continue;
      values = std::move(candidate);
      lowest = misfit;
      undetermined.push_back(unknown.name);
    }
    return undetermined;
  }

  const ConfigNode config_;
  std::vector<Unknown> unknowns_;
  const CalibrateOptions options_;
  std::vector<FittedPoint> points_;  ///< without results
  Values start_;
  bool coarse_ = false;
  std::uint64_t evaluations_ = 0;
};

double max_rate_mb_s(std::span<const MeasuredPoint> points, double write_share) {
  double max_mb_s = 0;
  for (const MeasuredPoint& point : points) {
    if (point.write_share != write_share) continue;
    max_mb_s = std::max(max_mb_s, point.iops * static_cast<double>(point.bytes) * 1e-6);
  }
  return max_mb_s;
}

/// The lowest latency in the device at the lowest depth, and the highest rate.
struct Extremes {
  double latency_us = 1e6;
  double iops = 0;
};
Extremes extremes(const Points& points) {
  Extremes found;
  for (const MeasuredPoint& point : points) {
    found.iops = std::max(found.iops, point.iops);
    if (point.depth == points.front().depth) {
      const double latency_us = 1e6 * point.depth / point.iops - point.path_us;
      found.latency_us = std::min(found.latency_us, std::max(latency_us, 0.1));
    }
  }
  return found;
}

// ---- Reads ----

/// A rate so far above the measured ones never limits.
double unlimiting_mb_s(double max_mb_s) {
  return 20 * max_mb_s;
}

std::vector<Unknown> read_unknowns(const DeviceSpec& spec, double max_mb_s) {
  std::vector<Unknown> unknowns;
  for (const std::string name : kReadNames) {
    const double base = value_of(spec, name);
    unknowns.push_back({name, base, std::max(base, 0.1)});
    if (name.ends_with("_mb_s")) unknowns.back().max = unlimiting_mb_s(max_mb_s);
  }
  return unknowns;
}

/// The base, and one set of starts per number of dies. The controller takes `controller_share` of
/// the time between requests at the highest rate. Either the link or all channels together have the
/// highest bandwidth, and the other has twice that. The latency of the idle device is divided as in
/// the base.
std::vector<Values> read_starts(const Values& base, const Points& points, double max_mb_s) {
  const auto [latency_us, iops] = extremes(points);
  std::vector<Values> starts{base};
  for (double dies = 1; dies <= kMaxParallel; dies *= 2) {
    for (const double controller_share : {1.0, 0.2}) {
      for (const bool link_binds : {true, false}) {
        Values values = base;
        const double share = latency_us / (values["command_latency_us"] + values["read_us"]);
        values["command_latency_us"] = rounded(values["command_latency_us"] * share);
        values["read_us"] = rounded(values["read_us"] * share);
        values["command_overhead_us"] = rounded(controller_share * 1e6 / iops);
        values["link_mb_s"] = rounded((link_binds ? 1.05 : 2) * max_mb_s);
        values["channels"] = std::min(dies, base.at("channels"));
        values["dies_per_channel"] = std::ceil(dies / values["channels"]);
        values["channel_mb_s"] = rounded((link_binds ? 2 : 1.05) * max_mb_s / values["channels"]);
        starts.push_back(std::move(values));
      }
    }
  }
  return starts;
}

// ---- Writes ----

/// One stripe, with room for rounding to four digits (whole numbers from 1000 on).
double min_write_buffer(const DeviceSpec& spec) {
  const double dies = value_of(spec, "channels") * value_of(spec, "dies_per_channel");
  return std::max(1000.0, 1.001 * bytes_of_all_dies(spec) / dies);
}

std::vector<Unknown> write_unknowns(const DeviceSpec& spec, double max_mb_s) {
  std::vector<Unknown> unknowns;
  for (const auto& [name, of_any] : {std::pair{"write_latency_us", "command_latency_us"},
                                     {"write_overhead_us", "command_overhead_us"},
                                     {"write_link_mb_s", "link_mb_s"}}) {
    const double base = value_of(spec, name);
    unknowns.push_back({name, base, base > 0 ? base : std::max(value_of(spec, of_any), 0.1)});
  }
  unknowns.back().max = unlimiting_mb_s(max_mb_s);
  const double buffer = value_of(spec, "write_buffer_bytes");
  unknowns.push_back(
      {"write_buffer_bytes", buffer, buffer, min_write_buffer(spec), kMaxWriteBuffer});
  for (const char* name : {"program_us", "booster_program_us"}) {
    if (name != std::string("program_us") && value_of(spec, "booster_bytes") == 0) continue;
    const double base = value_of(spec, name);
    unknowns.push_back({name, base, std::max(base, 0.1)});
  }
  return unknowns;
}

/// The base, and starts with write buffers equal to, smaller and larger than the base's. The
/// controller takes `controller_share` of the time between writes at the highest rate. All dies
/// together program at the highest bandwidth, or at twice that.
std::vector<Values> write_starts(const Values& base, const DeviceSpec& spec, const Points& points,
                                 double max_mb_s) {
  const auto [latency_us, iops] = extremes(points);
  std::vector<Values> starts{base};
  for (const double buffer : {1.0, 1.0 / 16, 16.0}) {
    for (const double controller_share : {1.0, 0.2}) {
      for (const double headroom : {1.05, 2.0}) {
        Values values = base;
        values["write_latency_us"] = rounded(latency_us);
        values["write_overhead_us"] = rounded(controller_share * 1e6 / iops);
        values["write_link_mb_s"] = rounded(2 * max_mb_s);
        values["write_buffer_bytes"] = rounded(std::clamp(buffer * base.at("write_buffer_bytes"),
                                                          min_write_buffer(spec), kMaxWriteBuffer));
        const double program_us = bytes_of_all_dies(spec) / (headroom * max_mb_s);
        values["program_us"] = rounded(program_us);
        if (values.contains("booster_program_us")) {
          values["booster_program_us"] = rounded(program_us / value_of(spec, "program_pages"));
        }
        starts.push_back(std::move(values));
      }
    }
  }
  return starts;
}

/// Holds out points of one kind along the diagonals: in a grid whose rows have a multiple of k
/// depths, plain counting would hold out whole columns.
void choose_held_out(std::span<FittedPoint> points, double write_share, std::uint64_t every) {
  std::uint64_t row = 0;
  std::uint64_t column = 0;
  const FittedPoint* last = nullptr;
  for (FittedPoint& point : points) {
    if (point.measured.write_share != write_share) continue;
    if (last != nullptr && last->measured.bytes != point.measured.bytes) {
      ++row;
      column = 0;
    }
    const bool held_out = every > 0 && (row + column) % every == every - 1;
    point.use = held_out ? PointUse::kHeldOut : PointUse::kFitted;
    ++column;
    last = &point;
  }
}

Points points_to_fit(std::span<const FittedPoint> points, double write_share) {
  Points chosen;
  for (const FittedPoint& point : points) {
    if (point.measured.write_share == write_share && point.use == PointUse::kFitted) {
      chosen.push_back(point.measured);
    }
  }
  return chosen;
}

/// If the measured device has larger blocks than the base, the model takes them; the base must
/// allow such blocks.
void check_block(const CalibrateOptions& options, const DeviceSpec& spec) {
  const Arguments& arguments = spec.device.arguments();
  const std::uint64_t block = options.block_bytes;
  if (block <= static_cast<std::uint64_t>(arguments.integer("logical_block_bytes"))) return;
  const Parameter& parameter = parameter_of(spec, "logical_block_bytes");
  bool fits = std::has_single_bit(block) && static_cast<double>(block) <= parameter.maximum;
  std::string multiples;
  for (const char* name : {"page_bytes", "max_transfer_bytes"}) {
    const auto bytes = static_cast<std::uint64_t>(arguments.integer(name));
    fits = fits && bytes % block == 0;
    multiples +=
        (multiples.empty() ? "" : " and ") + std::string(name) + " = " + std::to_string(bytes);
  }
  if (fits) return;
  throw UserError({options.points.file, "/target/offset_alignment_bytes"},
                  "found " + std::to_string(block),
                  "a power of two, at most " + to_text(Value(parameter.maximum)) +
                      ", that divides " + multiples + " of " + spec.name);
}

/// The block of the preset: what the device takes, but no smaller than the unit of the measured
/// requests, up to the 4 KiB in which a live run asks. Of smaller ones, nothing is known.
std::uint64_t block_of_preset(std::span<const MeasuredPoint> points,
                              const CalibrateOptions& options, const DeviceSpec& spec) {
  std::uint64_t unit = 4096;
  const auto whole = [&](std::uint64_t bytes) {
    while (unit > 1 && bytes % unit != 0) unit /= 2;
  };
  for (const MeasuredPoint& point : points) whole(point.bytes);
  for (const char* name : {"page_bytes", "max_transfer_bytes"}) {
    whole(static_cast<std::uint64_t>(spec.device.arguments().integer(name)));
  }
  return std::max(options.block_bytes, unit);
}

void take(Calibration& calibration, Found found) {
  calibration.config = with(calibration.config, found.values);
  for (const std::string& name : found.undetermined) {
    calibration.undetermined.insert(found.values.extract(name));
  }
  calibration.fitted.merge(found.values);
  calibration.evaluations += found.evaluations;
}

/// How many sizes and depths were measured: one that was measured again tells nothing new, however
/// long the search.
std::size_t different(std::span<const MeasuredPoint> points, double write_share) {
  std::set<std::pair<std::uint64_t, std::uint32_t>> seen;
  for (const MeasuredPoint& point : points) {
    if (point.write_share == write_share) seen.emplace(point.bytes, point.depth);
  }
  return seen.size();
}

std::vector<FittedPoint> with_held_out(std::span<const MeasuredPoint> points,
                                       const CalibrateOptions& options) {
  std::vector<FittedPoint> all;
  for (const MeasuredPoint& point : points) all.push_back({point});
  choose_held_out(all, 0, options.hold_out_every);
  choose_held_out(all, 1, options.hold_out_every);
  return all;
}

/// In percent: the root mean square of the log errors of IOPS at all points that the model did not
/// see, mixes included, or at all where there are none. The worst ones weigh most. Reads, writes
/// and mixes count by their kinds, however many points each has: reads, which are most of what a
/// cache of keys and values asks for, twice.
double deciding_error(const Calibration& calibration) {
  const auto unseen = [](const FittedPoint& point) { return point.use != PointUse::kFitted; };
  const bool any = std::any_of(calibration.points.begin(), calibration.points.end(), unseen);
  struct Kind {
    double squares = 0;
    double count = 0;
  };
  std::array<Kind, 3> kinds{};
  for (const FittedPoint& point : calibration.points) {
    if (any && !unseen(point)) continue;
    const double share = point.measured.write_share;
    Kind& kind = kinds[share == 0 ? 0 : share == 1 ? 1 : 2];
    const double error = std::log(point.iops / point.measured.iops);
    kind.squares += error * error;
    kind.count += 1;
  }
  double sum = 0;
  double weights = 0;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].count == 0) continue;
    const double weight = i == 0 ? 2 : 1;
    sum += weight * kinds[i].squares / kinds[i].count;
    weights += weight;
  }
  return 100 * std::expm1(std::sqrt(sum / weights));
}

/// Whether most reads show a bucket, which `flash` cannot have. (Of writes, a few may wait for an
/// erase.)
bool reads_show_bucket(std::span<const MeasuredPoint> points) {
  const auto read = [](const MeasuredPoint& point) { return point.write_share == 0; };
  const auto shows = [&](const MeasuredPoint& point) {
    return read(point) && point.shows_bucket();
  };
  return 2 * std::count_if(points.begin(), points.end(), shows) >
         std::count_if(points.begin(), points.end(), read);
}

Calibration best(const ConfigNode& base, std::span<const MeasuredPoint> points,
                 CalibrateOptions options) {
  if (reads_show_bucket(points)) {
    Calibration waves = calibrate_waves(base, with_held_out(points, options), options);
    waves.compared =
        "latencies: most reads take less than half of the mean, as where a bucket of tokens limits "
        "the rate, which waves can have and flash cannot";
    return waves;
  }
  options.part = FittedPart::kFlash;
  Calibration flash = calibrate(base, points, options);
  options.progress = nullptr;
  Calibration waves = calibrate_waves(base, with_held_out(points, options), options);
  const double of_flash = deciding_error(flash);
  const double of_waves = deciding_error(waves);
  Calibration& chosen = of_waves < of_flash ? waves : flash;
  const auto percent = [](double error) { return to_text(Value(std::round(error * 10) / 10)); };
  chosen.compared =
      "error of IOPS at the points that were not fitted (root mean square, reads twice): flash " +
      percent(of_flash) + " %, waves " + percent(of_waves) + " %";
  return chosen;
}

}  // namespace

bool Calibration::sequential_writes() const {
  return std::any_of(points.begin(), points.end(),
                     [](const FittedPoint& point) { return point.measured.sequential; });
}

Calibration calibrate(const ConfigNode& base, std::span<const MeasuredPoint> points,
                      const CalibrateOptions& given) {
  DeviceSpec spec = DeviceSpec::parse(base);
  if (spec.device.name() != "flash") {
    throw UserError(base.at("part").place(), "found " + spec.device.name(), "flash");
  }
  check_block(given, spec);
  CalibrateOptions options = given;
  options.block_bytes = block_of_preset(points, given, spec);
  if (options.part == FittedPart::kWaves) {
    return calibrate_waves(base, with_held_out(points, options), options);
  }
  if (options.part == FittedPart::kBest) return best(base, points, options);
  Calibration result{.config = base};
  if (options.mixing_decides()) {
    const char* order = *options.mixing > 0.5 ? "random" : "arrival";
    result.from_burst["service_order"] = order;
    result.config = result.config.with("service_order", order);
  }
  result.points = with_held_out(points, options);
  const Points reads = points_to_fit(result.points, 0);
  const Points writes = points_to_fit(result.points, 1);
  const bool has_reads = std::any_of(points.begin(), points.end(),
                                     [](const MeasuredPoint& p) { return p.write_share == 0; });
  const double write_mb_s = max_rate_mb_s(points, 1);
  const std::size_t min_writes = write_unknowns(spec, write_mb_s).size();
  const bool fit_writes = different(writes, 1) >= min_writes;
  const auto require = [&](const Points& fitted, std::size_t min_points, double write_share) {
    const std::size_t found = different(fitted, write_share);
    if (found >= min_points) return;
    const std::size_t all = different(points, write_share);
    const std::string allowed = "at least " + std::to_string(min_points);
    if (all < min_points) {
      throw UserError(options.points, std::to_string(all) + " points to fit", allowed);
    }
    throw UserError({"", "--hold-out"},
                    "found " + std::to_string(options.hold_out_every) + ", which leaves " +
                        std::to_string(found) + " of " + std::to_string(all) + " points to fit",
                    allowed + "; 0 holds none out");
  };

  if (has_reads) {
    require(reads, kReadNames.size(), 0);
    const double rate = max_rate_mb_s(points, 0);
    Values counts;
    for (const char* name : kCountNames) counts[name] = value_of(spec, name);
    Search search(result.config, reads, read_unknowns(spec, rate), counts, options);
    take(result, search.run(read_starts(search.start(), reads, rate), fit_writes ? 0.5 : 1));
  } else {
    require(writes, min_writes, 1);
  }
  if (fit_writes) {
    spec = DeviceSpec::parse(result.config);
    const std::vector<Unknown> unknowns = write_unknowns(spec, write_mb_s);
    for (const Unknown& unknown : unknowns) result.decided_by_writes.insert(unknown.name);
    Search search(result.config, writes, unknowns, {}, options);
    take(result,
         search.run(write_starts(search.start(), spec, writes, write_mb_s), has_reads ? 0.5 : 1));
  } else {
    for (FittedPoint& point : result.points) {
      if (point.measured.write_share == 1) point.use = PointUse::kPredicted;
    }
  }
  run_model(result.config, false, result.points, options.threads);

  const auto block = static_cast<double>(options.block_bytes);
  if (block > value_of(spec, "logical_block_bytes")) {
    take(result, {.values = {{"logical_block_bytes", block}}});
  }
  Simulation simulation;  // an invalid preset fails here
  (void)DeviceSpec::parse(result.config).make(simulation);
  return result;
}

std::string preset_json(const Calibration& calibration, const ConfigNode& base,
                        const std::string& name, const std::string& title, const std::string& notes,
                        const std::string& measurement) {
  nlohmann::ordered_json json;
  json["name"] = name;
  json["title"] = title;
  json["notes"] = notes;
  const DeviceSpec spec = DeviceSpec::parse(calibration.config);
  json["part"] = spec.device.name();
  const std::string of_base = "; of " + DeviceSpec::parse(base).name + ": ";
  for (const Parameter& parameter : spec.device.part().parameters) {
    const bool fitted = calibration.fitted.contains(parameter.name) ||
                        calibration.from_burst.contains(parameter.name);
    if (!fitted && !base.has(parameter.name)) continue;  // the default applies
    const bool by_writes = calibration.decided_by_writes.contains(parameter.name);
    const ConfigNode& from = by_writes && !fitted ? base : calibration.config;
    const nlohmann::json& raw = from.at(parameter.name).raw();
    std::string source = fitted      ? "calibrated from "
                         : by_writes ? "not determined by "
                                     : "not fitted";
    if (by_writes) {
      source +=
          calibration.sequential_writes() ? "the writes in sequence of " : "the random writes of ";
    }
    if (by_writes || fitted) source += measurement;
    if (!fitted) source += of_base + from.at(parameter.name).argument().source;
    nlohmann::ordered_json member;
    member["value"] = raw.is_object() ? raw.at("value") : raw;
    member["source"] = source;
    json[parameter.name] = std::move(member);
  }
  // File names need not be UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace kvreplay
