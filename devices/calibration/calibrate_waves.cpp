#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/number_text.hpp"
#include "devices/calibration/calibrate.hpp"
#include "devices/calibration/least_squares.hpp"
#include "devices/ring.hpp"

namespace kvreplay {
namespace {

/// Sizes of a ring that are tried; 0: no limit. Rings have powers of two.
constexpr std::uint64_t kRings[] = {0, 64, 128, 256, 512, 1024};

/// The mean latency of a closed loop (devices/flash/waves_device.cpp).
double loop_us(const Values& values, const std::string& prefix, std::uint64_t ring,
               const MeasuredPoint& point) {
  const double request = values.at(prefix + "request_us") +
                         static_cast<double>(point.bytes) / values.at(prefix + "transfer_mb_s");
  const double wave = values.at(prefix + "wave_us");
  double together = point.depth;  // requests of a wave
  if (ring > 0) {
    const std::uint64_t room = std::max<std::uint64_t>(1, ring / ring_descriptors(point.bytes));
    together = std::min(together, static_cast<double>(room));
  }
  const double alone = wave + point.path_us + together * request;
  if (together == point.depth) return alone;
  return std::max(alone, point.depth * (wave / together + request));
}

/// Cauchy's loss: a point spoilt by a stall hardly counts.
double robust_log(double ratio) {
  constexpr double kScale = 0.2;
  const double error = std::log(ratio);
  const double scaled = error / kScale;
  return std::copysign(kScale * std::sqrt(std::log1p(scaled * scaled)), error);
}

/// The three numbers of reads, or of writes; nothing where fewer sizes and depths were measured.
Fit fit_direction(std::span<const FittedPoint> points, double write_share,
                  const std::string& prefix, std::uint64_t ring, std::uint64_t& evaluations) {
  std::vector<MeasuredPoint> fitted;
  std::set<std::pair<std::uint64_t, std::uint32_t>> different;
  double lowest_us = 1e9;
  double highest_mb_s = 0;
  double highest_iops = 0;
  for (const FittedPoint& point : points) {
    const MeasuredPoint& measured = point.measured;
    if (measured.write_share != write_share || point.use != PointUse::kFitted) continue;
    fitted.push_back(measured);
    different.emplace(measured.bytes, measured.depth);
    lowest_us = std::min(lowest_us, measured.mean_us);
    highest_iops = std::max(highest_iops, measured.iops);
    highest_mb_s =
        std::max(highest_mb_s, measured.iops * static_cast<double>(measured.bytes) * 1e-6);
  }
  if (different.size() < 4) return {.values = {}, .loss = 0};
  const auto residuals = [&](const Values& values) {
    ++evaluations;
    std::vector<double> errors;
    for (const MeasuredPoint& point : fitted) {
      const double us = loop_us(values, prefix, ring, point);
      errors.push_back(robust_log(us / point.mean_us));
      errors.push_back(robust_log(1e6 * point.depth / us / point.iops));
    }
    return errors;
  };
  std::vector<Unknown> unknowns;
  for (const char* name : {"wave_us", "request_us", "transfer_mb_s"}) {
    unknowns.push_back({.name = prefix + name});
  }
  Fit best{.values = {}, .loss = 1e300};
  for (const double share : {0.2, 0.5, 0.9}) {
    const Values start{{prefix + "wave_us", rounded(share * lowest_us)},
                       {prefix + "request_us", rounded(share * 1e6 / highest_iops)},
                       {prefix + "transfer_mb_s", rounded(1.2 * highest_mb_s)}};
    const Fit fit = descend(start, unknowns, residuals, 60);
    if (fit.loss < best.loss) best = fit;
  }
  return best;
}

/// Reads and writes with the ring that explains them best. A ring has to earn its place: one loss
/// in ten.
struct BothFits {
  std::uint64_t ring = 0;
  Fit reads;
  Fit writes;

  [[nodiscard]] double loss() const { return reads.loss + writes.loss; }
};

BothFits fit_both(std::span<const FittedPoint> points, std::uint64_t& evaluations) {
  constexpr double kEnough = 0.9;
  std::optional<BothFits> best;
  double best_loss = 0;  // of the ring to beat
  for (const std::uint64_t ring : kRings) {
    BothFits fits{ring, fit_direction(points, 0, "", ring, evaluations),
                  fit_direction(points, 1, "write_", ring, evaluations)};
    if (best && !(fits.loss() < best_loss)) continue;
    best_loss = ring == 0 ? kEnough * fits.loss() : fits.loss();
    best = std::move(fits);
  }
  return *std::move(best);
}

}  // namespace

Calibration calibrate_waves(const ConfigNode& base, std::span<const FittedPoint> points,
                            const CalibrateOptions& options) {
  const DeviceSpec flash = DeviceSpec::parse(base);
  nlohmann::json object{{"title", flash.title}, {"name", flash.name}, {"part", "waves"}};
  for (const char* name : {"queue_depth", "logical_block_bytes", "max_transfer_bytes"}) {
    object[name] = base.at(name).raw();
  }
  if (options.block_bytes > static_cast<std::uint64_t>(value_of(flash, "logical_block_bytes"))) {
    object["logical_block_bytes"] = options.block_bytes;
  }
  Calibration result{.config = base};
  const BothFits fits = fit_both(points, result.evaluations);
  result.fitted = fits.reads.values;
  const Values& writes = fits.writes.values;
  for (const auto& [name, value] : writes) result.decided_by_writes.insert(name);
  if (result.fitted.empty()) {  // writes alone
    for (const auto& [name, value] : writes) {
      result.fitted[name.substr(std::string("write_").size())] = value;
    }
  }
  if (result.fitted.empty()) {
    throw UserError(options.points, "too few points to fit", "at least 4 sizes and depths");
  }
  result.fitted.insert(writes.begin(), writes.end());
  for (const auto& [name, value] : result.fitted) object[name] = value;
  if (fits.ring > 0) {
    object["ring_entries"] = fits.ring;
    result.fitted["ring_entries"] = static_cast<double>(fits.ring);
  }
  if (options.mixing_decides()) {
    const char* completion = *options.mixing > 0.5 ? "together" : "one_by_one";
    result.from_burst["completion"] = completion;
    object["completion"] = completion;
  }
  result.config = ConfigNode::parse(object.dump(), base.place().file);
  result.points.assign(points.begin(), points.end());
  run_model(result.config, false, result.points, options.threads);
  for (FittedPoint& point : result.points) {
    if (point.measured.write_share == 1 && writes.empty()) point.use = PointUse::kPredicted;
  }
  return result;
}

}  // namespace kvreplay
