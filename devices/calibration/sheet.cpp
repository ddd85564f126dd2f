#include "devices/calibration/sheet.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/key_value.hpp"
#include "base/number_text.hpp"
#include "base/size.hpp"
#include "base/table.hpp"
#include "devices/calibration/fitted_point.hpp"
#include "devices/calibration/least_squares.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {
namespace {

// ---- The sheet as text ----

struct Unit {
  const char* name;
  double factor;
};
constexpr std::array kRates{Unit{"MB/s", 1}, Unit{"GB/s", 1e3}, Unit{"MiB/s", 1.048576},
                            Unit{"KB/s", 1e-3}};
constexpr std::array kIops{Unit{"IOPS", 1},    Unit{"kIOPS", 1e3}, Unit{"KIOPS", 1e3},
                           Unit{"MIOPS", 1e6}, Unit{"k", 1e3},     Unit{"K", 1e3},
                           Unit{"M", 1e6}};
constexpr std::array kTimes{Unit{"us", 1}, Unit{"ms", 1e3}, Unit{"ns", 1e-3}};

/// A number above 0 with one of the units.
template <std::size_t N>
double number_in(const std::string& key, const std::string& text, const std::array<Unit, N>& units,
                 const char* example, const SourceLocation& place) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string unit(stop, end);
  const auto found =
      std::find_if(units.begin(), units.end(), [&](const Unit& one) { return unit == one.name; });
  if (error != std::errc{} || found == units.end() || !(number > 0) || !(number < 1e12)) {
    throw UserError(place, "found '" + text + "' for " + key, std::string("such as ") + example);
  }
  return number * found->factor;
}

struct Key {
  const char* name;
  const char* help;
  void (*read)(DataSheet&, const std::string& key, const std::string& value,
               const SourceLocation& place);
};

template <auto kMember>
void read_rate(DataSheet& sheet, const std::string& key, const std::string& value,
               const SourceLocation& place) {
  sheet.*kMember = number_in(key, value, kRates, "4200MB/s or 4.2GB/s", place);
}
template <auto kMember>
void read_iops(DataSheet& sheet, const std::string& key, const std::string& value,
               const SourceLocation& place) {
  sheet.*kMember = number_in(key, value, kIops, "500kIOPS or 500000IOPS", place);
}
template <auto kMember>
void read_time(DataSheet& sheet, const std::string& key, const std::string& value,
               const SourceLocation& place) {
  sheet.*kMember = number_in(key, value, kTimes, "60us or 0.5ms", place);
}
template <auto kMember>
void read_bytes(DataSheet& sheet, const std::string& key, const std::string& value,
                const SourceLocation& place) {
  const std::optional<std::int64_t> bytes = parse_size(value);
  if (!bytes || *bytes < 512 || *bytes > (64 << 20)) {
    throw UserError(place, "found '" + value + "' for " + key,
                    "a size such as 128KiB, up to 64MiB");
  }
  sheet.*kMember = static_cast<std::uint64_t>(*bytes);
}
template <auto kMember>
void read_depth(DataSheet& sheet, const std::string& key, const std::string& value,
                const SourceLocation& place) {
  std::uint32_t depth = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, depth);
  if (error != std::errc{} || stop != end || depth < 1 || depth > 4096) {
    throw UserError(place, "found '" + value + "' for " + key, "an integer from 1 to 4096");
  }
  sheet.*kMember = depth;
}

constexpr std::array kKeys{
    Key{"read", "MB/s in sequence", read_rate<&DataSheet::read_mb_s>},
    Key{"write", "MB/s in sequence", read_rate<&DataSheet::write_mb_s>},
    Key{"sustained_write", "MB/s once the write booster is full",
        read_rate<&DataSheet::sustained_write_mb_s>},
    Key{"random_read", "IOPS", read_iops<&DataSheet::random_read_iops>},
    Key{"random_write", "IOPS", read_iops<&DataSheet::random_write_iops>},
    Key{"latency", "us of a random read at depth 1", read_time<&DataSheet::latency_us>},
    Key{"write_latency", "us of a random write at depth 1",
        read_time<&DataSheet::write_latency_us>},
    Key{"size", "bytes of requests in sequence, 128KiB", read_bytes<&DataSheet::size>},
    Key{"depth", "requests outstanding in sequence, 32", read_depth<&DataSheet::depth>},
    Key{"random_size", "bytes of random requests, 4KiB", read_bytes<&DataSheet::random_size>},
    Key{"random_depth", "random requests outstanding, 32 or as many as the rate takes",
        read_depth<&DataSheet::random_depth>},
};

// ---- Solving ----

constexpr std::uint64_t kRangeBytes = 256 << 20;
constexpr double kMaxPerChannel = 256;
constexpr double kMaxChannels = 256;
constexpr double kMaxQueue = 4096;

/// The parameters of a flash model that is being changed.
class Solver {
 public:
  Solver(const ConfigNode& base, const DataSheet& sheet) : base_(base), sheet_(sheet) {
    const DeviceSpec spec = DeviceSpec::parse(base);
    if (spec.device.name() != "flash") {
      throw UserError(base.at("part").place(), "found " + spec.device.name(), "flash");
    }
    queued_ = spec.device.arguments().flag("command_queue");
    for (const Parameter& parameter : spec.device.part().parameters) {
      ranges_[parameter.name] = {parameter.minimum, parameter.maximum};
    }
    for (const auto& [name, argument] : spec.device.arguments().all()) {
      if (!std::holds_alternative<std::string>(argument.value) &&
          !std::holds_alternative<bool>(argument.value)) {
        values_[name] = value_of(spec, name);
      }
    }
    start_ = values_;
  }

  SheetDevice solve() {
    start_latency();
    start_random();
    start_sequential();
    start_writes();
    std::vector<SheetPoint> points = sheet_points();
    if (points.empty()) {
      throw UserError({"", "--from-spec"}, "found no number of the device", DataSheet::keys_text());
    }
    constexpr int kRounds = 24;
    double best = INFINITY;
    Values best_values;
    std::vector<SheetPoint> best_points;
    for (int round = 0; round < kRounds; ++round) {
      measure_all(points);
      double greatest = 0;
      for (const SheetPoint& point : points) greatest = std::max(greatest, std::abs(point.error()));
      if (greatest < best) {
        best = greatest;
        best_values = values_;
        best_points = points;
      }
      if (greatest < 0.003) break;
      for (const SheetPoint& point : points) correct(point);
    }
    values_ = best_values;
    return result(std::move(best_points));
  }

 private:
  [[nodiscard]] double at(const std::string& name) const { return values_.at(name); }
  [[nodiscard]] double of_write(const std::string& name, const std::string& of_any) const {
    return at(name) > 0 ? at(name) : at(of_any);
  }
  void set(const std::string& name, double value, const std::string& from) {
    value = std::clamp(value, ranges_.at(name).minimum, ranges_.at(name).maximum);
    const double four_digits = value == std::floor(value) ? value : rounded(value);
    if (four_digits == at(name)) return;
    values_[name] = four_digits;
    from_.try_emplace(name, from);
  }
  [[nodiscard]] double dies() const { return at("channels") * at("dies_per_channel"); }
  [[nodiscard]] double group_bytes() const { return at("planes") * at("page_bytes"); }
  [[nodiscard]] double read_units(double bytes) const {
    return std::ceil(bytes / at("read_unit_bytes")) * at("read_unit_bytes");
  }

  /// More dies; what they program together stays as fast.
  void double_dies(const std::string& from) {
    if (2 * at("dies_per_channel") <= kMaxPerChannel) {
      set("dies_per_channel", 2 * at("dies_per_channel"), from);
    } else if (2 * at("channels") <= kMaxChannels) {
      set("channels", 2 * at("channels"), from);
      set("channel_mb_s", at("channel_mb_s") / 2, from);
    } else {
      set("read_us", at("read_us") / 2, from);
      return;
    }
    set("program_us", 2 * at("program_us"), from);
    if (at("booster_bytes") > 0) set("booster_program_us", 2 * at("booster_program_us"), from);
  }

  // Of an idle device, a random read within a page: docs/device-model.md.
  [[nodiscard]] double unloaded_us() const {
    const auto size = static_cast<double>(sheet_.random_size);
    return at("command_latency_us") + at("command_overhead_us") + at("read_us") +
           read_units(size) / at("channel_mb_s") + size / at("link_mb_s");
  }

  void start_latency() {
    if (!sheet_.latency_us) return;
    const double too_long = unloaded_us() - *sheet_.latency_us;
    const double latency = at("command_latency_us");
    const std::string from = "latency";
    if (too_long <= 0.7 * latency) {
      set("command_latency_us", latency - too_long, from);
      return;
    }
    // Most of a short latency is the array's time.
    set("command_latency_us", 0.3 * *sheet_.latency_us, from);
    set("read_us", 0.5 * *sheet_.latency_us, from);
  }

  void start_random() {
    if (!sheet_.random_read_iops) {
      random_depth_ = sheet_.random_depth.value_or(sheet_.random_write_iops ? write_depth() : 32);
      raise_queue(random_depth_, "random_write");
      return;
    }
    const double iops = *sheet_.random_read_iops;
    const std::string from = "random_read";
    set("command_overhead_us", 1e6 / iops, from);
    if (!queued_) {
      random_depth_ = 1;
      if (unloaded_us() * iops > 1e6) shorten(1e6 / iops / unloaded_us(), from);
      return;
    }
    random_depth_ = sheet_.random_depth.value_or(32);
    const auto busy = [&] { return unloaded_us() * iops * 1e-6; };  // commands inside, at least
    if (!sheet_.random_depth) {
      while (random_depth_ < 1.5 * busy() && random_depth_ < kMaxQueue) random_depth_ *= 2;
    } else if (random_depth_ < busy()) {
      if (sheet_.latency_us) {
        throw UserError(
            {"", "--from-spec"},
            "random_read=" + fixed_text(iops, 0) +
                "IOPS at random_depth=" + std::to_string(random_depth_) + " takes reads of " +
                fixed_text(random_depth_ / iops * 1e6, 1) + " us, and latency says " +
                fixed_text(*sheet_.latency_us, 1) + " us",
            "random_depth=" + fixed_text(std::ceil(busy()), 0) + " or more, or a shorter latency");
      }
      shorten(0.8 * random_depth_ / busy(), from);
    }
    raise_queue(random_depth_, from);
    // Reads at random places leave some dies idle.
    const auto of_dies = [&] {
      const double q = random_depth_;
      return dies() / at("read_us") * 1e6 * q / (q + dies() - 1);
    };
    while (of_dies() < 1.15 * iops && of_dies() < 0.9e6 * random_depth_ / at("read_us")) {
      double_dies(from);
    }
  }

  [[nodiscard]] std::uint32_t write_depth() const {
    std::uint32_t depth = 32;
    const double us = of_write("write_latency_us", "command_latency_us");
    while (depth < 1.5e-6 * us * *sheet_.random_write_iops && depth < kMaxQueue) depth *= 2;
    return depth;
  }

  void raise_queue(std::uint32_t depth, const std::string& from) {
    if (queued_ && at("queue_depth") < depth) set("queue_depth", depth, from);
  }

  /// Latency, array time and, where no rate decides it, the controller's time by a factor.
  void shorten(double factor, const std::string& from) {
    set("command_latency_us", factor * at("command_latency_us"), from);
    set("read_us", factor * at("read_us"), from);
    if (!sheet_.random_read_iops) {
      set("command_overhead_us", factor * at("command_overhead_us"), from);
    }
  }

  void start_sequential() {
    if (!sheet_.read_mb_s) return;
    const double rate = *sheet_.read_mb_s;
    const std::string from = "read";
    set("link_mb_s", rate, from);
    widen_channels(1.25 * rate, from);
    const double idle_us = at("command_latency_us") + at("command_overhead_us") + at("read_us");
    const double under_way = queued_ ? std::min<double>(sheet_.depth, at("queue_depth")) : 1;
    const double budget_us = 0.4 * under_way * static_cast<double>(sheet_.size) / rate;
    if (idle_us > budget_us) shorten(budget_us / idle_us, from);
    while (dies() * group_bytes() / at("read_us") < 1.25 * rate) double_dies(from);
  }

  void widen_channels(double rate, const std::string& from) {
    if (at("channels") * at("channel_mb_s") < rate) {
      set("channel_mb_s", rate / at("channels"), from);
    }
  }

  /// The time in which all dies together program at a rate; of one bit per cell, per page.
  [[nodiscard]] double program_us_at(double mb_s, bool boosted) const {
    return dies() * group_bytes() * (boosted ? 1 : at("program_pages")) / mb_s;
  }

  void start_writes() {
    if (sheet_.write_mb_s) {
      const double rate = *sheet_.write_mb_s;
      const bool boosted = at("booster_bytes") > 0;
      set("write_link_mb_s", rate, "write");
      widen_channels(1.25 * rate, "write");
      const char* time = boosted ? "booster_program_us" : "program_us";
      if (at(time) > program_us_at(1.25 * rate, boosted)) {
        set(time, program_us_at(1.25 * rate, boosted), "write");
      }
    }
    if (sheet_.sustained_write_mb_s) {
      set("program_us", program_us_at(*sheet_.sustained_write_mb_s, false), "sustained_write");
    }
    if (sheet_.random_write_iops) {
      const double us = 1e6 / *sheet_.random_write_iops;
      set("write_overhead_us", us, "random_write");
      const double rate = 1.25e-6 * *sheet_.random_write_iops *
                          std::max(static_cast<double>(sheet_.random_size), at("map_unit_bytes"));
      const bool boosted = at("booster_bytes") > 0;
      const char* time = boosted ? "booster_program_us" : "program_us";
      if (at(time) > program_us_at(rate, boosted)) {
        set(time, program_us_at(rate, boosted), "random_write");
      }
      const double inside = of_write("write_latency_us", "command_latency_us") + us;
      if (inside > 0.8 * random_depth_ * us) {
        set("write_latency_us", std::max(0.1, (0.8 * random_depth_ - 1) * us), "random_write");
      }
    }
    if (sheet_.write_latency_us) {
      const double rest =
          of_write("write_overhead_us", "command_overhead_us") +
          static_cast<double>(sheet_.random_size) / of_write("write_link_mb_s", "link_mb_s");
      set("write_latency_us", std::max(0.1, *sheet_.write_latency_us - rest), "write_latency");
    }
  }

  [[nodiscard]] std::vector<SheetPoint> sheet_points() const {
    std::vector<SheetPoint> points;
    const auto add = [&](const char* key, const char* unit, const std::optional<double>& value,
                         Workload workload, bool booster_full = false) {
      if (!value) return;
      workload.range_bytes = kRangeBytes;
      workload.requests =
          std::max<std::uint64_t>(workload.sequential ? 1500 : 12'000, 24ULL * workload.depth);
      points.push_back({key, unit, *value, 0, workload, booster_full});
    };
    const Workload sequential{.bytes = sheet_.size, .depth = sheet_.depth, .sequential = true};
    const Workload random{.bytes = sheet_.random_size, .depth = random_depth_};
    Workload write = sequential;
    write.write_share = 1;
    Workload sustained = write;
    sustained.write_buffer_full = true;
    Workload random_write = random;
    random_write.write_share = 1;
    Workload one{.bytes = sheet_.random_size, .depth = 1};
    Workload one_write = one;
    one_write.write_share = 1;
    add("read", "MB/s", sheet_.read_mb_s, sequential);
    add("write", "MB/s", sheet_.write_mb_s, write);
    add("sustained_write", "MB/s", sheet_.sustained_write_mb_s, sustained, true);
    add("random_read", "IOPS", sheet_.random_read_iops, random);
    add("random_write", "IOPS", sheet_.random_write_iops, random_write);
    add("latency", "us", sheet_.latency_us, one);
    add("write_latency", "us", sheet_.write_latency_us, one_write);
    return points;
  }

  [[nodiscard]] ConfigNode config() const {
    ConfigNode config = base_;
    for (const auto& [name, value] : values_) {
      if (value == start_.at(name)) continue;
      const bool whole = value == std::floor(value);
      config = config.with(name,
                           to_text(whole ? Value(static_cast<std::int64_t>(value)) : Value(value)));
    }
    return config;
  }

  void measure_all(std::vector<SheetPoint>& points) const {
    const ConfigNode config = this->config();
    const DeviceSpec spec = DeviceSpec::parse(config);
    const DeviceSpec without_booster = DeviceSpec::parse(config.with("booster_bytes", "0"));
    for (SheetPoint& point : points) {
      const Measurement found =
          measure(point.booster_full ? without_booster : spec, point.workload);
      point.model = point.unit == "us"     ? found.mean_us
                    : point.unit == "IOPS" ? found.iops
                                           : found.mb_s;
    }
  }

  /// One step towards a point. Where its own parameter does not help any more, another one limits.
  void correct(const SheetPoint& point) {
    const double ratio = std::clamp(point.model / point.sheet, 0.25, 4.0);
    if (std::abs(ratio - 1) < 0.002) return;
    if (point.key == "read") {
      const double rate = at("link_mb_s") / ratio;
      if (rate < 3 * point.sheet) return set("link_mb_s", rate, "read");
      if (at("channels") * at("channel_mb_s") < 8 * point.sheet) {
        widen_channels(1.5 * at("channels") * at("channel_mb_s"), "read");
      }
      shorten(0.8, "read");
    } else if (point.key == "write") {
      const double rate = of_write("write_link_mb_s", "link_mb_s") / ratio;
      if (rate < 3 * point.sheet) return set("write_link_mb_s", rate, "write");
      const char* time = at("booster_bytes") > 0 ? "booster_program_us" : "program_us";
      set(time, 0.8 * at(time), "write");
      set("write_latency_us", 0.7 * of_write("write_latency_us", "command_latency_us"), "write");
    } else if (point.key == "sustained_write") {
      set("program_us", at("program_us") * ratio, "sustained_write");
    } else if (point.key == "random_read") {
      const double us = at("command_overhead_us") * ratio;
      if (us > 0.3e6 / point.sheet) return set("command_overhead_us", us, "random_read");
      if (random_depth_ > 1) double_dies("random_read");
      if (!sheet_.latency_us) shorten(0.9, "random_read");
    } else if (point.key == "random_write") {
      const double us = of_write("write_overhead_us", "command_overhead_us") * ratio;
      if (us > 0.3e6 / point.sheet) return set("write_overhead_us", us, "random_write");
      set("write_latency_us", 0.7 * of_write("write_latency_us", "command_latency_us"),
          "random_write");
    } else if (point.key == "latency") {
      const double latency = at("command_latency_us") + point.sheet - point.model;
      if (latency >= 0) return set("command_latency_us", latency, "latency");
      set("command_latency_us", 0, "latency");
      set("read_us", std::max(0.1, at("read_us") + latency), "latency");
    } else {
      const double latency =
          of_write("write_latency_us", "command_latency_us") + point.sheet - point.model;
      set("write_latency_us", std::max(0.1, latency), "write_latency");
    }
  }

  [[nodiscard]] SheetDevice result(std::vector<SheetPoint> points) const {
    SheetDevice device{.config = config()};
    for (const auto& [name, value] : values_) {
      if (value != start_.at(name)) {
        device.changes[name] = {from_.at(name), start_.at(name), value};
      }
    }
    device.points = std::move(points);
    return device;
  }

  const ConfigNode base_;
  const DataSheet sheet_;
  bool queued_ = true;
  std::uint32_t random_depth_ = 32;
  std::map<std::string, Range> ranges_;  ///< that the parameters allow
  Values values_;
  Values start_;
  std::map<std::string, std::string> from_;  ///< by parameter: the key that asked for it
};

std::string sheet_value(const SheetPoint& point) {
  return point.key + "=" + format_text("%g", point.sheet) + point.unit;
}

}  // namespace

DataSheet DataSheet::parse(const std::string& text, const SourceLocation& place) {
  DataSheet sheet;
  std::vector<std::string> known;
  for (const Key& key : kKeys) known.emplace_back(key.name);
  std::vector<std::string> seen;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::optional<KeyValue> given = split_key_value(item);
    if (!given || given->value.empty()) {
      throw UserError(place, "found '" + item + "'", "KEY=VALUE,... with " + keys_text());
    }
    const auto key = std::find(known.begin(), known.end(), given->key);
    if (key == known.end()) throw unknown_name(place, "number of a data sheet", given->key, known);
    if (std::find(seen.begin(), seen.end(), given->key) != seen.end()) {
      throw UserError(place, "found " + given->key + " twice", "each number once");
    }
    seen.push_back(given->key);
    kKeys[static_cast<std::size_t>(key - known.begin())].read(sheet, given->key, given->value,
                                                              place);
  }
  return sheet;
}

std::string DataSheet::keys_text() {
  std::string text;
  for (const Key& key : kKeys) {
    text += (text.empty() ? "" : ", ") + std::string(key.name) + " (" + key.help + ")";
  }
  return text;
}

SheetDevice solve_sheet(const ConfigNode& base, const DataSheet& sheet) {
  return Solver(base, sheet).solve();
}

std::string sheet_text(const SheetDevice& device) {
  constexpr auto kLeft = Table::Align::kLeft;
  Table points(
      {{"number", kLeft}, {"size"}, {"depth"}, {"sheet"}, {"model"}, {"unit", kLeft}, {"error %"}});
  for (const SheetPoint& point : device.points) {
    const int digits = point.sheet < 100 ? 2 : point.sheet < 10'000 ? 1 : 0;
    const double error = 100 * point.error();
    points.add_row({point.key, short_size_text(point.workload.bytes),
                    std::to_string(point.workload.depth), fixed_text(point.sheet, digits),
                    fixed_text(point.model, digits), point.unit,
                    (std::signbit(error) ? "" : "+") + fixed_text(error, 2)});
  }
  Table changes({{"parameter", kLeft}, {"base"}, {"solved"}, {"from", kLeft}});
  for (const auto& [name, change] : device.changes) {
    changes.add_row(
        {name, format_text("%g", change.base), format_text("%g", change.value), change.from});
  }
  return points.text() + '\n' + changes.text();
}

std::string sheet_json(const SheetDevice& device, const std::string& base, const std::string& title,
                       const std::string& source) {
  nlohmann::ordered_json json;
  json["title"] = title;
  json["source"] = source;
  double greatest = 0;
  std::map<std::string, std::string> asked;  // by key: as the sheet says it
  for (const SheetPoint& point : device.points) {
    greatest = std::max(greatest, std::abs(point.error()));
    asked[point.key] = sheet_value(point);
  }
  json["notes"] = "Solved from a data sheet, beginning at " + base + ": the model is within " +
                  fixed_text(100 * greatest, 1) +
                  " % of the sheet's numbers. A sheet has a device's best numbers; everything that "
                  "it does not say is the base's.";
  json["base"] = base;
  for (const std::string& set : device.given) {
    const std::optional<KeyValue> given = split_key_value(set);
    if (!given || device.changes.contains(given->key)) continue;
    nlohmann::ordered_json value = device.config.at(given->key).raw();
    json[given->key] = {{"value", std::move(value)}, {"source", "given: --set " + set}};
  }
  for (const auto& [name, change] : device.changes) {
    nlohmann::ordered_json member;
    if (change.value == std::floor(change.value)) {
      member["value"] = static_cast<std::int64_t>(change.value);
    } else {
      member["value"] = change.value;
    }
    const auto of_sheet = asked.find(change.from);
    member["source"] =
        "solved from the data sheet: " + (of_sheet == asked.end() ? change.from : of_sheet->second);
    json[name] = std::move(member);
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace kvreplay
