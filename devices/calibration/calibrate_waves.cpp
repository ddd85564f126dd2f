#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/number_text.hpp"
#include "devices/calibration/calibrate.hpp"
#include "devices/calibration/least_squares.hpp"
#include "devices/ring.hpp"

namespace kvreplay {
namespace {

/// Sizes of a ring that are tried; 0: no limit. Rings have powers of two.
constexpr std::uint64_t kRings[] = {0, 64, 128, 256, 512, 1024};

/// Reads, or writes: the points to fit, and the names of their parameters.
struct Direction {
  std::string prefix;  ///< "", "write_"
  std::vector<MeasuredPoint> points = {};
  double lowest_us = 1e9;
  double highest_iops = 0;
  double highest_mb_s = 0;

  /// Whether as many sizes and depths were measured as three numbers need.
  [[nodiscard]] bool enough() const {
    std::set<std::pair<std::uint64_t, std::uint32_t>> different;
    for (const MeasuredPoint& point : points) different.emplace(point.bytes, point.depth);
    return different.size() >= 4;
  }
};

/// The latency without a wait for tokens.
double own_us(const MeasuredPoint& point) {
  return point.shows_bucket() ? point.median_us : point.mean_us;
}

Direction direction_to_fit(std::span<const FittedPoint> points, double write_share,
                           const std::string& prefix) {
  Direction found{.prefix = prefix};
  for (const FittedPoint& point : points) {
    const MeasuredPoint& measured = point.measured;
    if (measured.write_share != write_share || point.use != PointUse::kFitted) continue;
    found.points.push_back(measured);
    found.lowest_us = std::min(found.lowest_us, own_us(measured));
    found.highest_iops = std::max(found.highest_iops, measured.iops);
    found.highest_mb_s =
        std::max(found.highest_mb_s, measured.iops * static_cast<double>(measured.bytes) * 1e-6);
  }
  return found;
}

/// Which limits a model has.
struct Limits {
  bool iops = false;
  bool mb_s = false;

  [[nodiscard]] int count() const { return (iops ? 1 : 0) + (mb_s ? 1 : 0); }
};
constexpr Limits kAllLimits[] = {{}, {.iops = true}, {.mb_s = true}, {.iops = true, .mb_s = true}};

/// The mean latency of a closed loop (devices/flash/waves_device.cpp), without limits.
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

/// What the limits make of it: requests that wait for tokens take their share of the rate.
double limited_us(double us, const Values& values, const std::string& limit_prefix, Limits limits,
                  const MeasuredPoint& point) {
  if (limits.iops) us = std::max(us, 1e6 * point.depth / values.at(limit_prefix + "limit_iops"));
  if (limits.mb_s) {
    const double bytes = static_cast<double>(point.bytes) * point.depth;
    us = std::max(us, bytes / values.at(limit_prefix + "limit_mb_s"));
  }
  return us;
}

/// The three numbers of each direction, and the limits that they share.
Fit fit_directions(std::span<const Direction* const> directions, std::uint64_t ring, Limits limits,
                   const std::string& limit_prefix, std::uint64_t& evaluations) {
  const auto residuals = [&](const Values& values) {
    ++evaluations;
    std::vector<double> errors;
    for (const Direction* direction : directions) {
      for (const MeasuredPoint& point : direction->points) {
        const double own = loop_us(values, direction->prefix, ring, point);
        const double us = limited_us(own, values, limit_prefix, limits, point);
        errors.push_back(robust_residual((point.shows_bucket() ? own : us) / own_us(point)));
        errors.push_back(robust_residual(1e6 * point.depth / us / point.iops));
      }
    }
    return errors;
  };
  std::vector<Unknown> unknowns;
  Values highest;
  for (const Direction* direction : directions) {
    for (const char* name : {"wave_us", "request_us", "transfer_mb_s"}) {
      unknowns.push_back({.name = direction->prefix + name});
    }
    double& iops = highest[limit_prefix + "limit_iops"];
    iops = std::max(iops, direction->highest_iops);
    double& mb_s = highest[limit_prefix + "limit_mb_s"];
    mb_s = std::max(mb_s, direction->highest_mb_s);
  }
  if (limits.iops) unknowns.push_back({.name = limit_prefix + "limit_iops", .max = 1e9});
  if (limits.mb_s) unknowns.push_back({.name = limit_prefix + "limit_mb_s"});
  struct Start {
    double share;         // of the lowest latency that a wave takes
    double busy;          // share of the time between requests that one takes
    double headroom = 1;  // of the rate of bytes
  };
  std::vector<Start> starts;
  if (limits.count() > 0) {
    // First with a disk that is far from its limits: what they hide stays so.
    for (const double share : {0.2, 0.5, 0.9}) starts.push_back({share, 0.05, 20});
  }
  for (const double share : {0.2, 0.5, 0.9}) starts.push_back({share, share, 1.2});
  Fit best{.values = {}, .loss = 1e300};
  for (const Start& start : starts) {
    Values values;
    for (const Direction* direction : directions) {
      values[direction->prefix + "wave_us"] = rounded(start.share * direction->lowest_us);
      values[direction->prefix + "request_us"] =
          rounded(start.busy * 1e6 / direction->highest_iops);
      values[direction->prefix + "transfer_mb_s"] =
          rounded(start.headroom * direction->highest_mb_s);
    }
    // A limit tells only where it binds: it begins below the highest rate.
    constexpr double kBelow = 0.9;
    if (limits.iops) {
      const std::string name = limit_prefix + "limit_iops";
      values[name] = rounded(kBelow * highest.at(name));
    }
    if (limits.mb_s) {
      const std::string name = limit_prefix + "limit_mb_s";
      values[name] = rounded(kBelow * highest.at(name));
    }
    const Fit fit = descend(values, unknowns, residuals, 60);
    const double to_beat = limits.count() > 0 ? 0.99 * best.loss : best.loss;
    if (fit.loss < to_beat) best = fit;
  }
  return best;
}

/// Reads and writes with their limits and the ring that explains them best.
struct BothFits {
  std::uint64_t ring = 0;
  Limits limits = {};
  Limits write_limits = {};
  bool apart = false;  ///< writes have limits of their own
  Values values = {};  ///< of reads and writes, where there are enough of them
  double loss = 0;

  /// A limit on one direction alone has to be told from one of both.
  [[nodiscard]] int limit_count() const {
    return apart ? std::max(2, limits.count() + write_limits.count()) : limits.count();
  }
};

class BothSearch {
 public:
  explicit BothSearch(std::span<const FittedPoint> points)
      : reads_(direction_to_fit(points, 0, "")), writes_(direction_to_fit(points, 1, "write_")) {}

  /// A ring has to earn its place: one loss in ten. So has a limit (score()).
  [[nodiscard]] BothFits run() {
    const std::vector<const Direction*> all = with_enough({&reads_, &writes_});
    if (all.empty()) return {};
    std::vector<BothFits> tried;
    for (const Limits limits : kAllLimits) {
      const auto fit = [&](std::uint64_t ring) {
        BothFits fits{.ring = ring, .limits = limits};
        if (limits.count() > 0) {
          add(fits, fit_directions(all, ring, limits, "", evaluations));
        } else {
          for (const Direction* one : all) add(fits, fit_one(*one, ring, {}));
        }
        return fits;
      };
      tried.push_back(best_ring(fit));
    }
    if (all.size() == 2) {
      for (const Limits limits : kAllLimits) {
        for (const Limits write_limits : kAllLimits) {
          if (limits.count() + write_limits.count() == 0) continue;
          const auto fit = [&](std::uint64_t ring) {
            BothFits fits{
                .ring = ring, .limits = limits, .write_limits = write_limits, .apart = true};
            add(fits, fit_one(reads_, ring, limits));
            add(fits, fit_one(writes_, ring, write_limits));
            return fits;
          };
          tried.push_back(best_ring(fit));
        }
      }
    }
    const BothFits* best = &tried.front();
    for (const BothFits& fits : tried) {
      if (score(fits) < score(*best)) best = &fits;
    }
    return *best;
  }

  std::uint64_t evaluations = 0;

 private:
  static std::vector<const Direction*> with_enough(std::vector<const Direction*> directions) {
    std::erase_if(directions, [](const Direction* direction) { return !direction->enough(); });
    return directions;
  }

  static void add(BothFits& fits, const Fit& fit) {
    fits.values.insert(fit.values.begin(), fit.values.end());
    fits.loss += fit.loss;
  }

  Fit fit_one(const Direction& direction, std::uint64_t ring, Limits limits) {
    const auto key = std::tuple(direction.prefix, ring, limits.iops, limits.mb_s);
    const auto known = fits_.find(key);
    if (known != fits_.end()) return known->second;
    const Direction* const one = &direction;
    return fits_[key] = fit_directions({&one, 1}, ring, limits, direction.prefix, evaluations);
  }

  template <typename FitWith>
  static BothFits best_ring(const FitWith& fit) {
    constexpr double kEnough = 0.9;
    std::optional<BothFits> best;
    double best_loss = 0;  // of the ring to beat
    for (const std::uint64_t ring : kRings) {
      BothFits fits = fit(ring);
      if (best && !(fits.loss < best_loss)) continue;
      best_loss = ring == 0 ? kEnough * fits.loss : fits.loss;
      best = std::move(fits);
    }
    return *std::move(best);
  }

  /// The limit that is added has to take off this many times what each point then has left (an F
  /// test; noise does so once in a thousand times). Below a misfit of 1 % per point, nothing is
  /// left to explain.
  [[nodiscard]] double score(const BothFits& fits) const {
    constexpr double kTimes = 15;
    constexpr double kSmall = 0.01;
    const auto points = static_cast<double>(reads_.points.size() + writes_.points.size());
    const double freedom = std::max(1.0, points - static_cast<double>(fits.values.size()));
    return std::pow(1 + kTimes / freedom, fits.limit_count()) *
           (fits.loss + 2 * points * kSmall * kSmall);
  }

  const Direction reads_;
  const Direction writes_;
  std::map<std::tuple<std::string, std::uint64_t, bool, bool>, Fit> fits_;
};

/// What no disk reaches stands for no limit, where writes have limits of their own (0 would mean
/// those of reads).
constexpr double kNoLimitIops = 1e9;

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
  BothSearch search(points);
  const BothFits fits = search.run();
  result.evaluations = search.evaluations;
  Values writes;
  for (const auto& [name, value] : fits.values) {
    (name.starts_with("write_") ? writes : result.fitted)[name] = value;
  }
  if (fits.apart && fits.write_limits.count() == 0) writes["write_limit_iops"] = kNoLimitIops;
  for (const auto& [name, value] : writes) result.decided_by_writes.insert(name);
  if (!result.fitted.contains("wave_us")) {  // writes alone
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
