#include "devices/calibration/calibrate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

#include "devices/measure.hpp"
#include "sim/base/parallel.hpp"

namespace kvreplay {
namespace {

constexpr std::array kRealNames{"command_latency_us", "command_overhead_us", "read_us",
                                "channel_mb_s", "link_mb_s"};
constexpr std::array kCountNames{"channels", "dies_per_channel"};
constexpr double kMostParallel = 64;  ///< channels, or dies of one

using Values = std::map<std::string, double>;

/// Four digits: more than any measurement tells.
double rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return std::strtod(text.data(), nullptr);
}

double value_of(const DeviceSpec& spec, const std::string& name) {
  const Value& value = spec.device.arguments().all().at(name).value;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    return static_cast<double>(*integer);
  }
  return std::get<double>(value);
}

/// Along the diagonals: of a grid whose rows have a multiple of k depths, plain counting would hold
/// out whole columns.
std::vector<bool> held_out(std::span<const MeasuredPoint> points, std::uint64_t every) {
  std::vector<bool> held(points.size());
  std::uint64_t row = 0;
  std::uint64_t column = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i > 0 && points[i].bytes != points[i - 1].bytes) {
      ++row;
      column = 0;
    }
    held[i] = every > 0 && (row + column) % every == every - 1;
    ++column;
  }
  return held;
}

class Search {
 public:
  Search(const ConfigNode& base, std::span<const MeasuredPoint> points,
         const CalibrateOptions& options)
      : base_(base), points_(points), options_(options) {
    const DeviceSpec spec = DeviceSpec::parse(base);
    if (spec.device.name() != "flash") {
      throw UserError(base.at("part").place(), "found " + spec.device.name(), "flash");
    }
    for (const char* name : kRealNames) {
      // A logarithmic search never leaves zero.
      start_[name] = std::max(value_of(spec, name), 0.1);
    }
    for (const char* name : kCountNames) start_[name] = value_of(spec, name);
    held_out_ = held_out(points, options.hold_out_every);
    for (const MeasuredPoint& point : points) {
      greatest_mb_s_ =
          std::max(greatest_mb_s_, point.iops * static_cast<double>(point.bytes) * 1e-6);
    }
  }

  [[nodiscard]] Calibration run() {
    const auto held =
        static_cast<std::size_t>(std::count(held_out_.begin(), held_out_.end(), true));
    if (points_.size() - held < kRealNames.size()) {
      throw UserError({options_.file, "/points"},
                      std::to_string(points_.size() - held) + " points to fit",
                      "at least " + std::to_string(kRealNames.size()));
    }
    // A descent keeps the number of dies with which it begins, and finds the nearest of the ways to
    // explain the points: coarse ones from many starts, fine ones from the best of these.
    std::vector<Fit> fits;
    static_assert(kCoarse + kFine * kFineUnits == CalibrateOptions::kProgressUnits);
    coarse_ = true;
    fits.push_back(descend(start_));
    advance(1);
    for (double dies = 1; dies <= kMostParallel; dies *= 2) {
      for (const double controller_share : {1.0, 0.2}) {
        for (const bool link_binds : {true, false}) {
          fits.push_back(descend(guess(dies, controller_share, link_binds)));
          advance(1);
        }
      }
    }
    coarse_ = false;
    const auto less = [](const Fit& a, const Fit& b) { return a.loss < b.loss; };
    std::stable_sort(fits.begin(), fits.end(), less);
    fits.resize(kFine);
    for (Fit& fit : fits) {
      fit = descend(fit.values);
      advance(kFineUnits);
    }
    Fit best = *std::min_element(fits.begin(), fits.end(), less);
    const std::vector<std::string> untold = take_untold_from_base(best.values);
    Calibration result{with(best.values), best.values, {}, {}, evaluations_};
    for (const std::string& name : untold) result.untold.insert(result.fitted.extract(name));
    result.points = model(best.values, true);
    const auto block = static_cast<double>(options_.block_bytes);
    if (block > value_of(DeviceSpec::parse(base_), "logical_block_bytes")) {
      result.config =
          result.config.with("logical_block_bytes", std::to_string(options_.block_bytes));
      result.fitted["logical_block_bytes"] = block;
    }
    return result;
  }

 private:
  static constexpr int kCoarse = 29;  ///< the base; numbers of dies x shares x what binds
  static constexpr int kFine = 4;
  static constexpr int kFineUnits = 18;  ///< of progress; a coarse descent is one
  static constexpr std::size_t kUnknowns = kRealNames.size();
  using Vector = std::array<double, kUnknowns>;  ///< natural logarithms of the real parameters

  struct Fit {
    Values values;
    double loss = 0;  ///< sum of the squared residuals
  };

  void advance(int units) {
    if (options_.progress != nullptr) options_.progress->advance(units);
  }

  /// Parameters that the points do not tell, such as the rate of a link that is never busy: with
  /// the base's value instead the points come out as well, and it stays.
  [[nodiscard]] std::vector<std::string> take_untold_from_base(Values& values) {
    constexpr double kAsWell = 1.01;
    std::vector<std::string> untold;
    double least = squares(log_errors(values));
    for (const char* name : kRealNames) {
      Values candidate = values;
      candidate[name] = start_.at(name);
      const double misfit = squares(log_errors(candidate));
      if (misfit > kAsWell * least) continue;
      values = std::move(candidate);
      least = misfit;
      untold.emplace_back(name);
    }
    return untold;
  }

  /// Where a descent begins: the controller takes `controller_share` of the time between requests
  /// at the highest rate; the highest bandwidth is the link's or that of all channels, and the
  /// other has twice that; the latency of the idle device is shared as in the base.
  [[nodiscard]] Values guess(double dies, double controller_share, bool link_binds) const {
    double iops = 0;
    double latency_us = 1e6;
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (held_out_[i]) continue;
      const MeasuredPoint& point = points_[i];
      iops = std::max(iops, point.iops);
      if (point.depth == points_.front().depth) {
        latency_us = std::min(latency_us, 1e6 * point.depth / point.iops);
      }
    }
    Values values = start_;
    const double share = latency_us / (values["command_latency_us"] + values["read_us"]);
    values["command_latency_us"] = rounded(values["command_latency_us"] * share);
    values["read_us"] = rounded(values["read_us"] * share);
    values["command_overhead_us"] = rounded(controller_share * 1e6 / iops);
    values["link_mb_s"] = rounded((link_binds ? 1.05 : 2) * greatest_mb_s_);
    values["channels"] = std::min(dies, start_.at("channels"));
    values["dies_per_channel"] = std::ceil(dies / values["channels"]);
    values["channel_mb_s"] = rounded((link_binds ? 2 : 1.05) * greatest_mb_s_ / values["channels"]);
    return values;
  }

  [[nodiscard]] ConfigNode with(const Values& values) const {
    ConfigNode config = base_;
    for (const auto& [name, value] : values) config = config.with(name, to_text(json_value(value)));
    return config;
  }
  /// Whole numbers as such: the counts' type is integer, and a real takes either.
  [[nodiscard]] static Value json_value(double value) {
    if (value == std::floor(value)) return static_cast<std::int64_t>(value);
    return value;
  }

  [[nodiscard]] std::vector<FittedPoint> model(const Values& values, bool also_held_out) const {
    const DeviceSpec spec = DeviceSpec::parse(with(values));
    std::vector<FittedPoint> fitted(points_.size());
    parallel_for(static_cast<std::int64_t>(points_.size()), options_.threads,
                 [&](std::int64_t index) {
                   const auto i = static_cast<std::size_t>(index);
                   const MeasuredPoint& point = points_[i];
                   fitted[i] = {point, 0, 0, held_out_[i]};
                   if (held_out_[i] && !also_held_out) return;
                   // The same random places for every model, so that their differences are the
                   // parameters'.
                   constexpr std::uint64_t kLarge = 128 << 10;
                   Workload workload{.bytes = point.bytes, .depth = point.depth};
                   workload.requests = std::max<std::uint64_t>(point.bytes > kLarge ? 250 : 600,
                                                               8 * std::uint64_t{point.depth});
                   if (coarse_) workload.requests /= 3;
                   if (point.range_bytes >= point.bytes) workload.range_bytes = point.range_bytes;
                   const Measurement measured = measure(spec, workload);
                   fitted[i].iops = measured.iops;
                   fitted[i].mean_us = measured.mean_us;
                 });
    return fitted;
  }

  /// Log errors of rate and latency of the points that are fitted, and a pull to the base, so weak
  /// that it decides only where the points do not.
  [[nodiscard]] std::vector<double> residuals(const Values& values) {
    std::vector<double> result = log_errors(values);
    constexpr double kPull = 0.01;
    for (const auto& [name, value] : values) {
      result.push_back(kPull * std::log(value / start_.at(name)));
    }
    return result;
  }
  [[nodiscard]] std::vector<double> log_errors(const Values& values) {
    ++evaluations_;
    std::vector<double> result;
    for (const FittedPoint& point : model(values, false)) {
      if (point.held_out) continue;
      result.push_back(std::log(point.iops / point.measured.iops));
      if (point.measured.mean_us > 0) {
        result.push_back(std::log(point.mean_us / point.measured.mean_us));
      }
    }
    return result;
  }
  [[nodiscard]] static double squares(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
  }

  /// Levenberg and Marquardt on the logarithms of the real parameters.
  [[nodiscard]] Fit descend(Values values) {
    const int most_iterations = coarse_ ? 8 : 30;
    constexpr double kDifference = 0.04;  ///< wide, for the noise of random places
    std::vector<double> here = residuals(values);
    double least = squares(here);
    double damping = 0.01;
    for (int iteration = 0; iteration < most_iterations; ++iteration) {
      std::array<std::vector<double>, kUnknowns> slopes;
      for (std::size_t k = 0; k < kUnknowns; ++k) {
        Vector step{};
        step[k] = kDifference;
        slopes[k] = residuals(moved(values, step));
        for (std::size_t i = 0; i < here.size(); ++i) {
          slopes[k][i] = (slopes[k][i] - here[i]) / kDifference;
        }
      }
      bool better = false;
      for (; !better && damping < 1e4; damping *= 8) {
        const Values candidate = moved(values, newton_step(slopes, here, damping));
        std::vector<double> there = residuals(candidate);
        const double loss = squares(there);
        if (loss >= least * 0.999) continue;
        values = candidate;
        here = std::move(there);
        least = loss;
        better = true;
      }
      if (!better) break;
      damping /= 64;
    }
    return {values, least};
  }

  /// Solves (S'S + damping diag(S'S)) x = -S'r by Cholesky's decomposition.
  [[nodiscard]] static Vector newton_step(const std::array<std::vector<double>, kUnknowns>& slopes,
                                          const std::vector<double>& residuals, double damping) {
    std::array<Vector, kUnknowns> lower{};
    Vector x{};
    for (std::size_t row = 0; row < kUnknowns; ++row) {
      x[row] = -dot(slopes[row], residuals);
      for (std::size_t column = 0; column <= row; ++column) {
        double sum = dot(slopes[row], slopes[column]);
        // A parameter at its bound has no slope, and must not make the matrix singular.
        if (row == column) sum = sum * (1 + damping) + 1e-9;
        for (std::size_t k = 0; k < column; ++k) sum -= lower[row][k] * lower[column][k];
        lower[row][column] = row == column ? std::sqrt(sum) : sum / lower[column][column];
      }
    }
    for (std::size_t row = 0; row < kUnknowns; ++row) {
      for (std::size_t k = 0; k < row; ++k) x[row] -= lower[row][k] * x[k];
      x[row] /= lower[row][row];
    }
    for (std::size_t row = kUnknowns; row-- > 0;) {
      for (std::size_t k = row + 1; k < kUnknowns; ++k) x[row] -= lower[k][row] * x[k];
      x[row] /= lower[row][row];
    }
    return x;
  }
  [[nodiscard]] static double dot(const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  }

  /// By at most a factor of e in each parameter. A rate far beyond what was seen binds nothing.
  [[nodiscard]] Values moved(const Values& values, const Vector& step) const {
    Values result = values;
    for (std::size_t k = 0; k < kUnknowns; ++k) {
      const std::string name = kRealNames[k];
      const double most = name.ends_with("_mb_s") ? 20 * greatest_mb_s_ : 1e6;
      double& value = result.at(name);
      value = rounded(std::clamp(value * std::exp(std::clamp(step[k], -1.0, 1.0)), 0.01, most));
    }
    return result;
  }

  const ConfigNode base_;
  const std::span<const MeasuredPoint> points_;
  const CalibrateOptions options_;
  std::vector<bool> held_out_;
  Values start_;              ///< the base's
  double greatest_mb_s_ = 0;  ///< of all points
  bool coarse_ = false;       ///< fewer requests a point
  std::uint64_t evaluations_ = 0;
};

}  // namespace

Calibration calibrate(const ConfigNode& base, std::span<const MeasuredPoint> points,
                      const CalibrateOptions& options) {
  return Search(base, points, options).run();
}

std::string preset_json(const Calibration& calibration, const ConfigNode& base,
                        const std::string& name, const std::string& title, const std::string& notes,
                        const std::string& source) {
  nlohmann::ordered_json json;
  json["name"] = name;
  json["title"] = title;
  json["notes"] = notes;
  json["part"] = "flash";
  const DeviceSpec spec = DeviceSpec::parse(calibration.config);
  const std::string base_name = base.at("name").text();
  for (const Parameter& parameter : spec.device.part().parameters) {
    const bool fitted = calibration.fitted.contains(parameter.name);
    if (!fitted && !base.has(parameter.name)) continue;  // the default
    const Argument argument = calibration.config.at(parameter.name).argument();
    const nlohmann::json& raw = calibration.config.at(parameter.name).raw();
    nlohmann::ordered_json member;
    member["value"] = raw.is_object() ? raw.at("value") : raw;
    member["source"] = fitted ? source : "not fitted; of " + base_name + ": " + argument.source;
    json[parameter.name] = std::move(member);
  }
  return json.dump(2) + "\n";
}

}  // namespace kvreplay
