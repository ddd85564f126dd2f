#include "devices/calibration/measured_points.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "base/config.hpp"
#include "base/document_hash.hpp"
#include "base/files.hpp"

namespace kvreplay {
namespace {

double number(const ConfigNode& node, double max = 1e15, double min = 0) {
  const Value value = node.argument().value;
  double found = 0;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    found = static_cast<double>(*integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    found = *real;
  } else {
    throw UserError(node.place(), "found " + to_text(value), "a number");
  }
  if (!(found >= min && found <= max)) {
    throw UserError(node.place(), "found " + to_text(value),
                    to_text(Value(min)) + " to " + to_text(Value(max)));
  }
  return found;
}

double above_zero(const ConfigNode& node, double max = 1e15) {
  const double found = number(node, max);
  if (found <= 0) {
    throw UserError(node.place(), "found " + to_text(Value(found)),
                    "above 0, at most " + to_text(Value(max)));
  }
  return found;
}

std::uint64_t positive(const ConfigNode& node, double maximum) {
  const double found = number(node);
  if (found < 1 || found > maximum || found != std::floor(found)) {
    throw UserError(node.place(), "found " + to_text(Value(found)),
                    "a whole number from 1 to " + to_text(Value(maximum)));
  }
  return static_cast<std::uint64_t>(found);
}

constexpr std::uint64_t kMaxBytes = 64 << 20;  // as in a probe; kMaxDepth likewise
constexpr std::uint64_t kMaxDepth = 1024;
constexpr std::uint64_t kMaxRange = 1'000'000'000'000'000;  // bytes
constexpr std::size_t kMaxPoints = 2000;                    // each model tried runs them all
constexpr double kMaxIops = 1e9;
constexpr double kMaxMixing = 10;  // measurement noise can push it outside 0 to 1
constexpr double kMaxRequests = 1e15;

std::vector<ConfigNode> array(const ConfigNode& node) {
  if (!node.is_array()) {
    throw UserError(node.place(), "found " + std::string(node.raw().type_name()), "an array");
  }
  return node.items();
}

/// An option of a fio job and its place in the file.
struct FioOption {
  std::string text;
  SourceLocation place = {};
};

/// "4k", "1M", "512": fio's K, M, G and T are powers of 1024 by default. Returns nothing for lists
/// and ranges. Throws UserError above `max`.
std::optional<std::uint64_t> fio_size(const FioOption& option, std::uint64_t max) {
  const std::string& text = option.text;
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const std::from_chars_result parsed = std::from_chars(text.data(), end, value);
  const std::errc code = parsed.ec;
  const auto at_most = [&](int shift) {
    if (code == std::errc() && value <= max >> shift) return value << shift;
    throw UserError(option.place, "found " + text, "at most " + std::to_string(max));
  };
  if (code == std::errc::invalid_argument) return std::nullopt;
  if (code == std::errc() && value == 0) return std::nullopt;
  std::string unit(parsed.ptr, end);
  for (char& letter : unit) letter = static_cast<char>(std::tolower(letter));
  if (unit.empty() || unit == "b") return at_most(0);
  for (const auto& [letter, shift] : {std::pair{'k', 10}, {'m', 20}, {'g', 30}, {'t', 40}}) {
    if (unit == std::string(1, letter) || unit == std::string(1, letter) + "b" ||
        unit == std::string(1, letter) + "ib") {
      return at_most(shift);
    }
  }
  return std::nullopt;
}

/// In a closed loop, rate x latency = outstanding requests (Little's law). Where the two sides are
/// far apart, one of the three is wrong, and nothing shows which: a rate limit, or an engine that
/// submits less, leaves fewer outstanding; fio with SQPOLL on few processors reports impossibly
/// high latencies. Such a point is no evidence.
void take_point(MeasuredPoints& found, const MeasuredPoint& point) {
  constexpr double kFactor = 1.5;
  const double outstanding = point.iops * point.mean_us * 1e-6;
  if (outstanding > point.depth / kFactor && outstanding < point.depth * kFactor) {
    found.points.push_back(point);
    return;
  }
  const auto text = [](double value) { return to_text(Value(std::round(value * 100) / 100)); };
  const std::string kind = point.write_share == 0   ? "reads"
                           : point.write_share == 1 ? "writes"
                                                    : "mix";
  found.notes.push_back(kind + " of " + std::to_string(point.bytes) + " bytes at depth " +
                        std::to_string(point.depth) + " left out: " + text(point.iops) +
                        " IOPS of " + text(point.mean_us) + " us are " + text(outstanding) +
                        " outstanding requests");
}

MeasuredPoints from_probe(const ConfigNode& root, WritePlaces writes) {
  MeasuredPoints found;
  const ConfigNode target = root.at("target");
  found.source = "kvreplay probe of " + target.at("path").text();
  found.place = "/points";
  const auto range = static_cast<std::uint64_t>(number(target.at("size_bytes")));
  if (target.has("offset_alignment_bytes")) {
    const ConfigNode node = target.at("offset_alignment_bytes");
    found.block_bytes = positive(node, kMaxBytes);
    if (!std::has_single_bit(found.block_bytes)) {
      throw UserError(node.place(), "found " + std::to_string(found.block_bytes), "a power of two");
    }
  }
  if (root.has("sha256") && root.at("sha256").text() != document_sha256(root.raw())) {
    throw UserError(root.at("sha256").place(), "does not match the measurement",
                    "an undamaged one; none after a change by hand");
  }
  std::size_t others = 0;
  std::size_t random_writes = 0;
  for (const ConfigNode& node : array(root.at("points"))) {
    const bool sequential = node.at("pattern").text() != "random";
    const bool wants_sequential =
        writes == WritePlaces::kSequential && number(node.at("write_share"), 1) == 1;
    if (sequential != wants_sequential) {
      ++(sequential ? others : random_writes);
      continue;
    }
    MeasuredPoint point{.bytes = positive(node.at("bytes"), kMaxBytes),
                        .depth = static_cast<std::uint32_t>(positive(node.at("depth"), kMaxDepth)),
                        .range_bytes = range,
                        .iops = above_zero(node.at("iops"), kMaxIops),
                        .mean_us = above_zero(node.at("mean_us")),
                        .write_share = number(node.at("write_share"), 1),
                        .sequential = sequential};
    if (point.write_share > 0) point.requests = positive(node.at("requests"), kMaxRequests);
    if (node.has("round_iops")) {
      double least = kMaxIops;
      double greatest = 0;
      for (const ConfigNode& round : array(node.at("round_iops"))) {
        const double iops = above_zero(round, kMaxIops);
        least = std::min(least, iops);
        greatest = std::max(greatest, iops);
      }
      point.scatter = std::max(0.0, greatest - least) / point.iops;
    }
    if (node.has("p50_us")) point.median_us = above_zero(node.at("p50_us"));
    if (node.has("reads")) point.read_us = above_zero(node.at("reads").at("mean_us"));
    if (node.has("writes")) point.write_us = above_zero(node.at("writes").at("mean_us"));
    take_point(found, point);
    if (node.has("burst") && node.at("burst").has("mixing")) {
      found.mixing = number(node.at("burst").at("mixing"), kMaxMixing, -kMaxMixing);
    }
  }
  if (others > 0) {
    found.notes.push_back(std::to_string(others) + " points in sequence are left out");
  }
  if (random_writes > 0) {
    found.notes.push_back(std::to_string(random_writes) + " points of random writes are left out");
  }
  return found;
}

/// An option of a fio job, from the job itself or the global section, as text. A default may be
/// absent.
std::optional<FioOption> fio_option(const ConfigNode& root, const ConfigNode& job,
                                    const std::string& name) {
  for (const auto& [node, section] : {std::pair{job, "job options"}, {root, "global options"}}) {
    if (!node.has(section) || !node.at(section).has(name)) continue;
    const ConfigNode option = node.at(section).at(name);
    return FioOption{option.text(), option.place()};
  }
  return std::nullopt;
}

/// Share of writes among a job's random requests; nothing for other jobs.
std::optional<double> fio_write_share(const ConfigNode& root, const ConfigNode& job) {
  const std::string pattern = fio_option(root, job, "rw").value_or(FioOption{"read"}).text;
  if (pattern == "randread") return 0;
  if (pattern == "randwrite") return 1;
  if (pattern != "randrw") return std::nullopt;
  for (const char* name : {"rwmixwrite", "rwmixread"}) {
    const std::optional<FioOption> option = fio_option(root, job, name);
    if (!option) continue;
    const std::string& text = option->text;
    int percent = 0;
    const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), percent);
    if (code != std::errc() || *rest != '\0' || percent < 0 || percent > 100) return std::nullopt;
    return (std::string(name) == "rwmixwrite" ? percent : 100 - percent) / 100.0;
  }
  return 0.5;  // fio's default
}

MeasuredPoints from_fio(const ConfigNode& root) {
  MeasuredPoints found;
  found.source = root.at("fio version").text();
  found.place = "/jobs";
  for (const ConfigNode& job : array(root.at("jobs"))) {
    const std::string name = job.has("jobname") ? job.at("jobname").text() : "a job";
    const auto option = [&](const char* key, const char* otherwise) {
      return fio_option(root, job, key).value_or(FioOption{otherwise});
    };
    if (job.has("error") && number(job.at("error")) != 0) {
      found.notes.push_back(name + ": ended with an error and is left out");
      continue;
    }
    const std::optional<double> write_share = fio_write_share(root, job);
    std::optional<std::uint64_t> bytes;
    std::optional<std::uint64_t> iodepth;
    std::optional<std::uint64_t> jobs;
    if (write_share) {
      bytes = fio_size(option("bs", "4k"), kMaxBytes);
      iodepth = fio_size(option("iodepth", "1"), kMaxDepth);
      jobs = fio_size(option("numjobs", "1"), kMaxDepth);
    }
    if (!bytes || !iodepth || !jobs) {
      found.notes.push_back(name + ": not random requests of one size, and left out");
      continue;
    }
    if (*jobs > 1 && !fio_option(root, job, "group_reporting")) {
      found.notes.push_back(name + ": one of several at a time, and left out; use group_reporting");
      continue;
    }
    if (option("direct", "0").text != "1") {
      found.notes.push_back(name + ": without direct=1 the page cache may have been measured");
    }
    // These engines keep one request outstanding, whatever the iodepth.
    const std::string engine = option("ioengine", "psync").text;
    const bool one_at_a_time = engine == "sync" || engine == "psync" || engine == "vsync" ||
                               engine == "pvsync" || engine == "pvsync2" || engine == "mmap";
    const std::uint64_t depth = *jobs * (one_at_a_time ? 1 : *iodepth);
    if (depth > kMaxDepth) {
      throw UserError(
          option("numjobs", "1").place,
          "found " + std::to_string(*jobs) + " jobs of iodepth " + std::to_string(*iodepth),
          "at most " + std::to_string(kMaxDepth) + " outstanding requests");
    }
    MeasuredPoint point{.bytes = *bytes,
                        .depth = static_cast<std::uint32_t>(depth),
                        .range_bytes = fio_size(option("size", ""), kMaxRange).value_or(0),
                        .write_share = *write_share};
    // lat_ns runs from submission on; clat_ns excludes the submission.
    const auto add = [&](const char* direction) {
      const ConfigNode node = job.at(direction);
      const double iops = above_zero(node.at("iops"), kMaxIops);
      const double mean_us = above_zero(node.at("lat_ns").at("mean")) * 1e-3;
      if (*write_share > 0) point.requests += positive(node.at("total_ios"), kMaxRequests);
      point.mean_us += (mean_us - point.mean_us) * (iops / (point.iops + iops));
      point.iops += iops;
      return mean_us;
    };
    if (*write_share < 1) point.read_us = add("read");
    if (*write_share > 0) point.write_us = add("write");
    take_point(found, point);
  }
  return found;
}

}  // namespace

void tell_path(MeasuredPoints& measured, const MeasuredPoints& blank,
               const std::string& blank_file) {
  for (MeasuredPoint& point : measured.points) {
    const auto path = std::find_if(
        blank.points.begin(), blank.points.end(), [&point](const MeasuredPoint& candidate) {
          return candidate.depth == 1 && candidate.bytes == point.bytes &&
                 candidate.write_share == point.write_share;
        });
    const std::string what = std::to_string(point.bytes) + " bytes, " +
                             to_text(Value(100 * point.write_share)) + " % writes";
    if (path == blank.points.end()) {
      throw UserError({blank_file, ""}, "no requests of " + what + " at depth 1",
                      "all that were measured on the device");
    }
    if (path->mean_us >= point.mean_us) {
      throw UserError({blank_file, ""},
                      "requests of " + what + " take " + to_text(Value(path->mean_us)) +
                          " us, on the device " + to_text(Value(point.mean_us)) + " us",
                      "a device that takes no time");
    }
    point.path_us = path->mean_us;
  }
}

MeasuredPoints load_measured_points(const std::string& file, WritePlaces writes) {
  return parse_measured_points(read_text_file(file, "a measurement"), file, writes);
}

MeasuredPoints parse_measured_points(const std::string& text, const std::string& file,
                                     WritePlaces writes) {
  // fio prints its notes before the JSON.
  const std::size_t begin = text.find('{');
  const ConfigNode root =
      ConfigNode::parse(begin == std::string::npos ? text : text.substr(begin), file);
  MeasuredPoints found;
  if (root.has("format") && root.at("format").text() == "kvreplay probe 1") {
    found = from_probe(root, writes);
  } else if (root.has("fio version") && writes == WritePlaces::kSequential) {
    throw UserError({file, ""}, "is of fio, whose writes in sequence are not read",
                    "the JSON of `kvreplay device probe --pattern random,sequential`");
  } else if (root.has("fio version")) {
    found = from_fio(root);
  } else {
    throw UserError({file, ""}, "is no measurement",
                    "the JSON of `kvreplay device probe` or of fio --output-format=json");
  }
  if (found.points.empty()) {
    throw UserError({file, ""},
                    "has no point of random requests that can be used" +
                        (found.notes.empty() ? "" : " (" + found.notes.front() + ")"),
                    "random reads or writes of at least one size and depth");
  }
  if (found.points.size() > kMaxPoints) {
    throw UserError({file, found.place},
                    "found " + std::to_string(found.points.size()) + " points of random requests",
                    "at most " + std::to_string(kMaxPoints));
  }
  std::stable_sort(found.points.begin(), found.points.end(),
                   [](const MeasuredPoint& a, const MeasuredPoint& b) {
                     return std::tie(a.write_share, a.bytes, a.depth) <
                            std::tie(b.write_share, b.bytes, b.depth);
                   });
  return found;
}

}  // namespace kvreplay
